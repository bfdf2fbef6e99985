// Package healthcheck tells load balancers whether this node serves Services, and has endpoints of one.
package healthcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/nodeport"
)

// Servers tell load balancers whether the node has endpoints of a Service, in
// kube-proxy's format.
type Servers struct {
	log   *logrus.Entry
	proxy *Proxy
	wg    sync.WaitGroup
	limit limit // of the connections to all ports

	mu      sync.Mutex // guards the following fields
	servers map[uint16]*http.Server
	answers map[uint16]nodeport.Health
}

// New returns Servers without ports, on a node with this proxy.
func New(log *logrus.Entry, proxy *Proxy) *Servers {
	return &Servers{log: log, proxy: proxy, servers: map[uint16]*http.Server{}}
}

// Serve answers at exactly the given ports from now on. It returns the errors by
// port.
func (h *Servers) Serve(answers map[uint16]nodeport.Health) map[uint16]error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers = answers
	for port, s := range h.servers {
		if _, wanted := answers[port]; !wanted {
			_ = s.Close()
			delete(h.servers, port)
		}
	}
	failed := map[uint16]error{}
	for port, a := range answers {
		if h.servers[port] != nil {
			continue
		}
		if err := h.listen(port, a); err != nil {
			failed[port] = err
		}
	}
	return failed
}

// listen answers at a port until the server is closed. If the kernel ends that, the next Serve listens again. The caller holds mu.
func (h *Servers) listen(port uint16, a nodeport.Health) error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return fmt.Errorf("health checks of service %s: %w: give the service another healthCheckNodePort", a.Service, err)
	}
	s := newServer(h.handler(port))
	h.servers[port] = s
	h.wg.Go(func() {
		if err := s.Serve(h.limit.listener(l)); !errors.Is(err, http.ErrServerClosed) {
			h.log.Errorf("health checks at port %d end, trying again: %v", port, err)
			_ = s.Close()
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.servers[port] == s {
				delete(h.servers, port)
			}
		}
	})
	return nil
}

// handler answers as kube-proxy does (pkg/proxy/healthcheck of Kubernetes).
func (h *Servers) handler(port uint16) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h.mu.Lock()
		a := h.answers[port]
		h.mu.Unlock()
		type service struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(a.Local))
		healthy := h.proxy.Healthy()
		if a.Local == 0 || !healthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(struct { // the client may be gone
			Service service `json:"service"`
			Local   int     `json:"localEndpoints"`
			Healthy bool    `json:"serviceProxyHealthy"`
		}{service{a.Service.Namespace, a.Service.Name}, a.Local, healthy})
	})
}

// Close ends all answers.
func (h *Servers) Close() {
	h.mu.Lock()
	for _, s := range h.servers {
		_ = s.Close()
	}
	h.mu.Unlock()
	h.wg.Wait()
}
