package kubelets

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"ovn-k8s/test/probe"
)

// dialTimeout bounds a connection to a kubelet.
const dialTimeout = 5 * time.Second

// An egress lets the API server reach kubelets and pods in their network
// namespaces, as if it ran on the master.
type egress struct{ config, socket string }

// writeEgress writes the API server's EgressSelectorConfiguration: connections to
// the cluster use an HTTP proxy on a unix socket.
func writeEgress(dir string) (egress, error) {
	e := egress{config: filepath.Join(dir, "egress.yaml"), socket: filepath.Join(dir, "egress.sock")}
	text := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: %s
`, e.socket)
	return e, os.WriteFile(e.config, []byte(text), 0o644)
}

// A tunnel is the HTTP proxy of an egress. It dials from inside a network namespace.
type tunnel struct {
	netns    string
	listener net.Listener
	done     sync.WaitGroup
}

func openTunnel(socket, netns string) (*tunnel, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("opening the way to kubelets: %w", err)
	}
	t := &tunnel{netns: netns, listener: l}
	t.done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go t.serve(conn) // ends when the API server closes the connection
		}
	})
	return t, nil
}

func (t *tunnel) close() {
	_ = t.listener.Close() // once is enough
	t.done.Wait()
}

// serve serves one CONNECT request (RFC 9110, section 9.3.6).
func (t *tunnel) serve(near net.Conn) {
	defer near.Close()
	reader := bufio.NewReader(near)
	request, err := http.ReadRequest(reader)
	if err != nil || request.Method != http.MethodConnect {
		return
	}
	far, err := t.dial(request.Host)
	if err != nil {
		fmt.Fprintf(near, "HTTP/1.1 502 Bad Gateway\r\n\r\n%v\n", err)
		return
	}
	defer far.Close()
	if _, err := io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	back := make(chan struct{})
	go func() {
		_, _ = io.Copy(near, far) // an error ends it like EOF
		_ = near.Close()
		close(back)
	}()
	_, _ = io.Copy(far, reader)
	_ = far.Close()
	<-back
}

func (t *tunnel) dial(address string) (conn net.Conn, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	err = probe.In(t.netns, func() (err error) {
		// no fallback: it would dial from other threads
		conn, err = (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, "tcp", address)
		return err
	})
	return conn, err
}
