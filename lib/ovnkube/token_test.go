package ovnkube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/settings"
)

// Another token in external_ids reaches the shared informers, also after their first role has begun again.
func TestAnotherTokenReachesInformers(t *testing.T) {
	var valid atomic.Value
	valid.Store("first")
	lists, renewed := make(chan string, 100), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		token := r.Header.Get("Authorization")
		watch := r.URL.Query().Get("watch") != ""
		if !watch {
			lists <- token
		}
		switch {
		case token != "Bearer "+valid.Load().(string):
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`)
		case watch:
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
			case <-renewed: // as the API server, which ends each WATCH after some minutes
			}
		default:
			fmt.Fprint(w, `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[]}`)
		}
	}))
	defer s.Close()
	var mu sync.Mutex // guards the next two
	token, mtu := "first", 1400
	load := func(context.Context) (config.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		ids := map[string]string{"k8s-api-server": s.URL, "k8s-api-token": token, "ovn-k8s-mtu": strconv.Itoa(mtu)}
		return options.Config(config.Sources{Flags: map[string]string{"init-node": "n1"}, ExternalIDs: ids})
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	reload, share := make(chan struct{}), kube.Share()
	// Both subscribe to one informer: the first begins again, the second stays.
	first, second := newLocator(Options{}, share).role(), newLocator(Options{}, share).role()
	first.Reader, second.Reader = options.Node, options.Master
	first.Log, second.Log = logrus.NewEntry(log), logrus.NewEntry(log)
	sessions := make(chan struct{}, 10)
	serve := first.Serve
	first.Serve = func(ctx context.Context, s settings.Session, ready func()) error {
		return serve(ctx, s, func() { ready(); sessions <- struct{}{} })
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- settings.Follower{Load: load, Reload: reload, Roles: []settings.Role{first, second}}.Run(ctx, func() {})
	}()
	<-sessions
	mu.Lock()
	mtu = 1300
	mu.Unlock()
	reload <- struct{}{}
	<-sessions
	mu.Lock()
	token = "second"
	mu.Unlock()
	reload <- struct{}{}
	reload <- struct{}{} // received after the first was followed
	valid.Store("second")
	for len(lists) > 0 {
		<-lists
	}
	close(renewed)
	late := time.After(30 * time.Second)
	for got := ""; got != "Bearer second"; {
		select {
		case got = <-lists:
		case <-late:
			t.Fatalf("the last LIST had %q", got)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
