package objects

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/rest"

	"ovn-k8s/lib/kube"
)

// lists are empty lists of each kind.
var lists = map[string]string{
	"services": "v1 ServiceList", "endpointslices": "discovery.k8s.io/v1 EndpointSliceList", "pods": "v1 PodList",
	"nodes": "v1 NodeList", "servicecidrs": "networking.k8s.io/v1 ServiceCIDRList",
}

// A helper with a refused token waits, and says for what and why, until the token is renewed.
func TestARefusedTokenIsTold(t *testing.T) {
	var renewed atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version, kind, _ := strings.Cut(lists[path.Base(r.URL.Path)], " ")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !renewed.Load():
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`)
		case r.URL.Query().Get("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"7"},"items":[]}`, kind, version)
		}
	}))
	defer s.Close()
	cluster, err := kube.NewCluster(&rest.Config{Host: s.URL}, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	o, changes, waits := New(Parts{}, false), make(chan func() []string, 100), ""
	o.Waits = func(reason string) { waits = reason }
	log := logrus.New()
	log.SetOutput(io.Discard)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		o.Follow(ctx, logrus.NewEntry(log), cluster, o.Inputs(), func(f func() []string) { changes <- f })
	}()
	late := time.After(time.Minute)
	until := func(what string, is func() bool) {
		t.Helper()
		for !is() {
			select {
			case f := <-changes:
				f()
			case <-late:
				t.Fatalf("%s: it waits for %q, %q", what, waits, o.Awaited())
			}
		}
	}
	until("refused", func() bool {
		return strings.HasPrefix(waits, "endpointslices, nodes, pods, servicecidrs, services: the API server refuses this host's token or rights: ") && waits == o.Awaited()
	})
	renewed.Store(true)
	until("renewed", func() bool { return waits == "" && o.Awaited() == "" && o.Complete() })
	cancel()
	<-ended
}
