package healthcheck

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

const (
	// FailingFor is how long a part must fail before the proxy is unhealthy: kube-proxy's default, twice its longest
	// interval between updates.
	FailingFor = time.Minute
	// listenInterval is the time between tries to listen at a busy address, kube-proxy's.
	listenInterval = 5 * time.Second
)

// A Proxy is the health of this node's proxy of Services, as /healthz and /livez of kube-proxy report it. The zero value is
// that of a start: unhealthy. It may be used by several goroutines.
type Proxy struct {
	mu      sync.Mutex           // guards the following fields
	needed  []string             // parts of the node
	failing map[string]time.Time // by part, the start of the failures in a row; zero: it works
	updated time.Time            // the last time that a part was updated
	leaving bool
}

// Need sets the parts of the node that Services need, and whether the Node is about to leave.
func (p *Proxy) Need(parts []string, leaving bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.needed, p.leaving = parts, leaving
}

// Tried records the result of an update of a part with all Services known.
func (p *Proxy) Tried(part string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failing == nil {
		p.failing = map[string]time.Time{}
	}
	since, worked := p.failing[part]
	switch {
	case err == nil:
		p.failing[part], p.updated = time.Time{}, time.Now()
	case worked && since.IsZero():
		p.failing[part] = time.Now()
	}
}

// Healthy reports whether all parts have been updated, and none has failed for FailingFor.
func (p *Proxy) Healthy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.healthy()
}

func (p *Proxy) healthy() bool {
	for _, part := range p.needed {
		since, worked := p.failing[part]
		if !worked || !since.IsZero() && time.Since(since) >= FailingFor {
			return false
		}
	}
	return len(p.needed) > 0
}

// ServeHTTP answers as kube-proxy does (pkg/proxy/healthcheck of Kubernetes): for /healthz the state of the Node counts, too
// (KEP-3836).
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	healthy, eligible, updated, now := p.healthy(), !p.leaving, p.updated, time.Now()
	p.mu.Unlock()
	if healthy {
		updated = now
	}
	body := fmt.Sprintf(`{"lastUpdated": %q,"currentTime": %q`, updated, now)
	switch r.URL.Path {
	case "/healthz":
		body += fmt.Sprintf(`, "nodeEligible": %v`, eligible)
		healthy = healthy && eligible
	case "/livez":
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintln(w, body+"}") // the client may be gone
}

// Run answers at an address until ctx ends, "" for none. It tries again while another program listens there.
func (p *Proxy) Run(ctx context.Context, address string, log *logrus.Entry) {
	if address == "" {
		return
	}
	warned := false
	for ctx.Err() == nil {
		err := p.serve(ctx, address)
		if ctx.Err() == nil && !warned {
			warned = true
			log.Warnf("/healthz for load balancers: %v: trying again; stop that program, or set external_ids:ovn-k8s-healthz-bind-address", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenInterval):
		}
	}
}

func (p *Proxy) serve(ctx context.Context, address string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	s := newServer(p)
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	return s.Serve(new(limit).listener(l))
}
