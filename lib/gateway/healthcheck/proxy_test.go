package healthcheck

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/service"
)

func status(h http.Handler, path string) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code
}

// /healthz is 503 until all parts are there, after a minute of failures, and for a leaving Node.
func TestHealthOfTheProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, broken := &Proxy{}, errors.New("broken")
		expect := func(what string, healthz, livez int) {
			t.Helper()
			if a, b := status(p, "/healthz"), status(p, "/livez"); a != healthz || b != livez {
				t.Errorf("%s: /healthz %d, /livez %d", what, a, b)
			}
		}
		expect("a start", 503, 503)
		p.Need([]string{"flows", "rules4"}, false)
		p.Tried("flows", nil)
		p.Tried("rules4", broken)
		expect("rules that never worked", 503, 503)
		p.Tried("rules4", nil)
		expect("all parts", 200, 200)
		p.Tried("flows", broken)
		time.Sleep(FailingFor - time.Second)
		p.Tried("flows", broken)
		p.Tried("other", broken)
		expect("a short failure", 200, 200)
		time.Sleep(time.Second)
		expect("a long failure", 503, 503)
		p.Tried("flows", nil)
		expect("it recovered", 200, 200)
		p.Need([]string{"flows", "rules4"}, true)
		expect("the Node leaves", 503, 200)
		if got := status(p, "/other"); got != 404 {
			t.Errorf("another path: %d", got)
		}
	})
}

// healthCheckNodePorts are unhealthy with the proxy, even with endpoints here.
func TestHealthChecksOfAnUnhealthyProxy(t *testing.T) {
	p := &Proxy{}
	s := New(logrus.NewEntry(logrus.New()), p)
	s.answers = map[uint16]nodeport.Health{30000: {Service: service.Key{Namespace: "default", Name: "lb"}, Local: 1}}
	if got := status(s.handler(30000), "/"); got != 503 {
		t.Errorf("before the rules are there: %d", got)
	}
	p.Need([]string{"rules4"}, false)
	p.Tried("rules4", nil)
	if got := status(s.handler(30000), "/"); got != 200 {
		t.Errorf("with rules: %d", got)
	}
}

// A busy address is one line of the log, and is taken once it is free.
func TestABusyAddress(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	var lines strings.Builder
	log := logrus.New()
	log.SetOutput(&lines)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	p := &Proxy{}
	go func() {
		p.Run(ctx, address, logrus.NewEntry(log))
		close(ended)
	}()
	<-time.After(2 * listenInterval)
	_ = l.Close()
	answered := func() bool {
		r, err := http.Get("http://" + address + "/healthz")
		if err != nil {
			return false
		}
		defer func() { _ = r.Body.Close() }()
		body, _ := io.ReadAll(r.Body)
		return r.StatusCode == 503 && strings.Contains(string(body), `"nodeEligible": true}`)
	}
	for began := time.Now(); !answered() && time.Since(began) < time.Minute; {
		<-time.After(100 * time.Millisecond)
	}
	if !answered() {
		t.Error("nothing answers")
	}
	cancel()
	<-ended
	if n := strings.Count(lines.String(), "level=warning"); n != 1 {
		t.Errorf("%d lines:\n%s", n, lines.String())
	}
}
