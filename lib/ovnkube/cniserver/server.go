// Package cniserver is the CNI server of ovnkube: it executes the requests of ovn-k8s-cni-shim on this host, as the
// stand-alone plugin would. docs/architecture.md, "The CNI server", describes it; package protocol has the requests.
package cniserver

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/cni"
	"ovn-k8s/lib/cni/protocol"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// Options configure New.
type Options struct {
	// Socket is the path of the server's socket; "": protocol.Socket. Its directory belongs to the server.
	Socket string
	// Settings are those of this host, such as settings.Source. They are read for each request.
	Settings cni.Settings
	// Pods are those of this node, not nil. The caller runs Pods.Follow.
	Pods *Pods
	// Switch is the local Open vSwitch; nil: each request connects to it.
	Switch *vswitch.Switch
	// Log gets a line for each attachment and each failed request. It must not be nil.
	Log *logrus.Entry
}

// A Server serves one socket. It is used once.
type Server struct {
	Options
	ready   chan struct{}
	running sync.RWMutex // held for reading by each request, for writing at the end
	turns   turns
}

const (
	// readTimeout bounds the time for the header of a request, and for its body.
	readTimeout = 5 * time.Second
	// writeTimeout bounds the time for an answer.
	writeTimeout = 5 * time.Second
	// grace is the time for running requests at the end. Then they are undone.
	grace = 5 * time.Second
	// maxHeader bounds the header of a request in bytes.
	maxHeader = 16 << 10
)

// errEnding ends requests that take longer than grace at the end of the server.
var errEnding = errors.New("ovnkube ends")

// New returns a server. It does nothing until Serve.
func New(o Options) *Server {
	if o.Socket == "" {
		o.Socket = protocol.Socket
	}
	return &Server{Options: o, ready: make(chan struct{})}
}

// Ready is closed once the socket accepts requests.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Serve serves requests until ctx ends. Then it accepts no further ones and waits for those that run: they end soon, or
// are undone. It returns nil at the end of ctx. Another error is one line: the directory cannot be used, or another process
// serves the socket.
func (s *Server) Serve(ctx context.Context) error {
	l, release, err := listen(ctx, s.Socket)
	if err != nil {
		return fmt.Errorf("CNI server: %w", err)
	}
	defer release()
	defer func() { _ = l.Close() }()
	life, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	server := &http.Server{
		Handler:           http.HandlerFunc(s.handle),
		BaseContext:       func(net.Listener) context.Context { return life },
		ReadHeaderTimeout: readTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          stdlog.New(lines{s.Log}, "", 0),
	}
	server.SetKeepAlivesEnabled(false)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	close(s.ready)
	select {
	case err = <-ended:
		err = fmt.Errorf("CNI server: accepting connections at %s: %w", s.Socket, err)
	case <-ctx.Done():
		_ = l.Close()
		release() // shims wait for the next server, which need not wait for running requests
		<-ended
	}
	s.finish(end)
	_ = server.Close() // connections without a complete request
	return err
}

// finish waits until no request runs. Later ones are refused.
func (s *Server) finish(end context.CancelCauseFunc) {
	done := make(chan struct{})
	go func() {
		s.running.Lock() // for good
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(grace):
		end(errEnding)
		<-done // each command bounds the time to undo it
	}
}

// lines is a log for net/http: a connection that breaks concerns its client.
type lines struct{ log *logrus.Entry }

// Write implements io.Writer.
func (l lines) Write(text []byte) (int, error) {
	l.log.Debug(strings.TrimSpace(string(text)))
	return len(text), nil
}
