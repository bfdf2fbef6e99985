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
	// Settings are those of this host, such as settings.Source. They are asked for each request.
	Settings cni.Settings
	// Pods are those of this node, not nil. The caller runs Pods.Follow.
	Pods *Pods
	// Switch is the local Open vSwitch; nil: each request connects to it.
	Switch *vswitch.Switch
	// Log gets a line for each attachment and each failed request. It must not be nil.
	Log *logrus.Entry
	// Hints are those of cni.Host.
	Hints cni.Hints
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
	// lookEvery is how often the server looks whether its socket is still at its path.
	lookEvery = 2 * time.Second
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
// serves the socket. A socket removed later is made again.
func (s *Server) Serve(ctx context.Context) error {
	e, err := listen(ctx, s.Socket)
	if err != nil {
		return fmt.Errorf("CNI server: %w", err)
	}
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
	close(s.ready)
	for e != nil && err == nil {
		err = s.accept(ctx, server, e)
		e = nil
		if err == nil && ctx.Err() == nil {
			e = s.again(ctx)
		}
	}
	s.finish(end)
	_ = server.Close() // connections without a complete request
	return err
}

// accept accepts requests at a socket until ctx ends, or the socket is no longer at its path.
func (s *Server) accept(ctx context.Context, server *http.Server, e *entrance) error {
	defer e.leave()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(e) }()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("CNI server: accepting connections at %s: %w", s.Socket, err)
		case <-look.C:
			if e.there() {
				continue
			}
			s.Log.Warnf("%s is gone: making it again", s.Socket)
		case <-ctx.Done():
		}
		e.leave() // shims wait for the next server, and it need not wait for running requests
		<-ended
		return nil
	}
}

// again listens again at a removed socket, as soon as possible: nil at the end of ctx.
func (s *Server) again(ctx context.Context) *entrance {
	for said := ""; ; {
		e, err := listen(ctx, s.Socket)
		if err == nil {
			return e
		}
		if text := err.Error(); text != said && ctx.Err() == nil {
			said = text
			s.Log.Errorf("CNI server: trying again: %s", text)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookEvery):
		}
	}
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
