package settings_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/settings"
)

// A server keeps the token of each request, by path.
type server struct {
	*httptest.Server
	mu   sync.Mutex // guards the field below
	seen []string
}

func newServer(t *testing.T) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, r.URL.Path+" "+r.Header.Get("Authorization"))
	}))
	t.Cleanup(s.Close)
	return s
}

// ask sends a request to the API server of a session.
func ask(t *testing.T, s settings.Session, path string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, s.Config.APIServer+path, nil)
	if err != nil {
		t.Error(err)
		return
	}
	r.Header.Set("Authorization", s.Token())
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return
	}
	answer.Body.Close()
}

// A session follows another token for its API server. A token that comes with another server goes to that one alone: the
// session that ends still has the former token, such as for releasing its Lease.
func TestATokenGoesToItsServerAlone(t *testing.T) {
	former, latter := newServer(t), newServer(t)
	var mu sync.Mutex // guards ids
	var ids map[string]string
	set := func(s *server, token string) {
		mu.Lock()
		defer mu.Unlock()
		ids = map[string]string{"k8s-api-server": s.URL, "k8s-api-token": token}
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	reload, sessions, ended := make(chan struct{}), make(chan settings.Session), make(chan error)
	f := settings.Follower{
		Reload: reload,
		Load: func(context.Context) (config.Config, error) {
			mu.Lock()
			defer mu.Unlock()
			return config.Resolve(config.Sources{ExternalIDs: ids})
		},
		Roles: []settings.Role{{Log: logrus.NewEntry(log), Reader: config.Watcher, Serve: func(ctx context.Context, s settings.Session, ready func()) error {
			ready()
			sessions <- s
			<-ctx.Done()
			ask(t, s, "/release")
			return ctx.Err()
		}}},
	}
	set(former, "one")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- f.Run(ctx, func() {}) }()
	s := <-sessions
	ask(t, s, "/1")
	set(former, "two")
	reload <- struct{}{}
	reload <- struct{}{} // received after the first was followed
	ask(t, s, "/2")
	set(latter, "three")
	reload <- struct{}{}
	next := <-sessions
	ask(t, s, "/late")
	ask(t, next, "/3")
	set(latter, "four")
	reload <- struct{}{}
	reload <- struct{}{}
	ask(t, s, "/late")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"/1 one", "/2 two", "/release two", "/late two", "/late two"}, former.seen); diff != "" {
		t.Errorf("the former server (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"/3 three", "/release four"}, latter.seen); diff != "" {
		t.Errorf("the latter server (-want +got):\n%s", diff)
	}
}
