package cniserver

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"

	"ovn-k8s/lib/cni"
	"ovn-k8s/lib/cni/protocol"
)

// A request that ends before its turn has done nothing: its client, which still listens, must not take that for success.
func TestARequestThatEndsBeforeItsTurnFails(t *testing.T) {
	for name, end := range map[string]struct {
		by     func(c *net.UnixConn, stop func())
		status int
		want   string
	}{
		"by its client": {func(c *net.UnixConn, _ func()) { _ = c.CloseWrite() }, http.StatusBadRequest, `"code":11,"msg":"the request ended while it waited`},
		"by the server": {func(_ *net.UnixConn, stop func()) { stop() }, http.StatusServiceUnavailable, "ovnkube ends"},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Options{Socket: newSocket(t), Settings: noSwitch{t.TempDir()}, Pods: NewPods(), Log: quiet()})
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Serve(ctx) }()
			defer func() {
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			<-s.Ready()
			running, leave, err := s.turns.enter(t.Context(), cni.Request{Command: "ADD", Args: &skel.CmdArgs{ContainerID: "0123"}})
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
			c, err := net.Dial("unix", s.Socket)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if _, err := io.WriteString(c, post(body(t, conf, "CNI_COMMAND=DEL", "CNI_CONTAINERID=0123", "CNI_NETNS="))); err != nil {
				t.Fatal(err)
			}
			<-running.Done() // DEL has ended ADD, and waits for it
			end.by(c.(*net.UnixConn), stop)
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Body.Close() }()
			text, err := io.ReadAll(r.Body)
			if err != nil || r.StatusCode != end.status || !strings.Contains(string(text), end.want) {
				t.Errorf("status %d, %s, %v", r.StatusCode, text, err)
			}
			var f protocol.Failure
			if r.StatusCode == http.StatusBadRequest && (json.Unmarshal(text, &f) != nil || f.Error == nil) {
				t.Errorf("not a failure: %s", text)
			}
		})
	}
}
