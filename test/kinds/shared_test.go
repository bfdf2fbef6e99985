package kinds

import (
	"context"
	"io"
	"net/http"
	"path"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/rest"

	"ovn-k8s/lib/kube"
)

// A counter counts requests by resource and verb.
type counter struct {
	mu               sync.Mutex
	open, most, made map[string]int // watches now, watches at once, and all requests, by "watch pods" or "list pods"
}

func newCounter() *counter {
	return &counter{open: map[string]int{}, most: map[string]int{}, made: map[string]int{}}
}

// A counted is a transport that counts its requests.
type counted struct {
	*counter
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	verb := "list "
	if r.URL.Query().Get("watch") != "" {
		verb = "watch "
	}
	name := verb + path.Base(r.URL.Path)
	c.add(name, 1)
	response, err := c.next.RoundTrip(r)
	if err != nil {
		c.add(name, -1)
		return nil, err
	}
	response.Body = &countedBody{response.Body, sync.OnceFunc(func() { c.add(name, -1) })}
	return response, nil
}

func (c *counter) add(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[name] += n
	c.most[name] = max(c.most[name], c.open[name])
	if n > 0 {
		c.made[name]++
	}
}

func (c *counter) get(of map[string]int, name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return of[name]
}

type countedBody struct {
	io.ReadCloser
	closed func()
}

// Close implements io.Closer.
func (b *countedBody) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}

// A role follows some kinds and has the names of their objects.
type role struct {
	mu    sync.Mutex
	names map[string]bool // by key
	lists map[string]int  // Replaces by kind
}

// follow subscribes to kinds until stop. If node is not "", it has only the pods on that node.
func follow(t *testing.T, api *kube.Cluster, node string, kinds ...kube.Kind) (r *role, stop func()) {
	r = &role{names: map[string]bool{}, lists: map[string]int{}}
	var all []kube.Subscription
	for _, k := range kinds {
		s := kube.Subscription{Kind: k, Send: func(e kube.Event) { r.record(k, e) }}
		if k.Is(&corev1.Pod{}) {
			s.Node = node
		}
		all = append(all, s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		api.Follow(ctx, silent(), all...)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return r, stop
}

func (r *role) record(k kube.Kind, e kube.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Replace {
		r.lists[k.Name]++
		for name := range r.names {
			if path.Dir(path.Dir(name)) == k.Name {
				delete(r.names, name)
			}
		}
		for o := range e.Objects {
			r.names[key(k, o)] = true
		}
		return
	}
	if r.names[key(k, e.Object)] = true; e.Gone {
		delete(r.names, key(k, e.Object))
	}
}

func (r *role) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names[name]
}

func (r *role) listed(k kube.Kind) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lists[k.Name] > 0
}

// Two roles of a process share informers: a watcher with all kinds, and another role with the kinds of a gateway
// helper. The API server sees one WATCH for each kind.
func TestRolesShareConnections(t *testing.T) {
	n := newNetwork(t)
	defineRoutes(t)
	count := newCounter()
	config := cluster.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{count, next} })
	informers := kube.NewInformers(config)
	var shared []kube.Kind
	for _, o := range []any{&corev1.Service{}, &discoveryv1.EndpointSlice{}, &corev1.Pod{}, &corev1.Node{}, &networkingv1.ServiceCIDR{}} {
		if k := kube.KindOf(o); slices.ContainsFunc(served(), func(s kube.Kind) bool { return s.Name == k.Name }) {
			shared = append(shared, k)
		}
	}
	share := func(*rest.Config) *kube.Informers { return informers }
	api, err := kube.NewCluster(cluster.Config(), "test", share)
	must(t, err)
	defer api.Close()
	pods := kube.KindOf(&corev1.Pod{})
	pod := func(name, node string) {
		t.Helper()
		_, err := cluster.CreatePod(t.Context(), "default", name, node, nil)
		must(t, err)
		t.Cleanup(func() { must(t, cluster.DeletePod(context.Background(), "default", name)) })
	}
	for _, node := range []string{"here", "there"} {
		_, err := cluster.CreateNode(t.Context(), node)
		must(t, err)
		t.Cleanup(func() { must(t, cluster.Client().CoreV1().Nodes().Delete(context.Background(), node, now)) })
	}

	first, stopFirst := follow(t, api, "here", shared...)
	for _, k := range shared {
		eventually(t, k.Name+" are listed", func() bool { return first.listed(k) })
		if count.get(count.made, "list "+k.Name) == 0 {
			t.Errorf("%s: objects came by a WATCH (WatchList), without pages", k.Name)
		}
	}
	pod("before", "here")
	pod("elsewhere", "there")
	eventually(t, "the helper has its pod", func() bool { return first.has("pods/default/before") })

	apply(t, "shared", `{prefix: 198.51.100.128/25, nextHop: 192.168.0.9}`)
	n.run(n.watcher(share, routeExtension(&routesSeen{})))
	n.awaitRoute("198.51.100.128/25", "192.168.0.9") // after all kinds are listed
	second, _ := follow(t, api, "", served()...)
	for _, k := range served() {
		eventually(t, k.Name+" are listed", func() bool { return second.listed(k) })
		eventually(t, k.Name+" are watched", func() bool { return count.get(count.open, "watch "+k.Name) == 1 })
	}
	pod("after", "here")
	for _, name := range []string{"before", "after"} {
		eventually(t, "both have their pod "+name, func() bool {
			return first.has("pods/default/"+name) && second.has("pods/default/"+name)
		})
	}
	if !second.has("pods/default/elsewhere") || first.has("pods/default/elsewhere") {
		t.Error("pods are not restricted to the node of the role")
	}
	for _, k := range served() {
		if most := count.get(count.most, "watch "+k.Name); most != 1 {
			t.Errorf("%s: %d watches at once", k.Name, most)
		}
	}

	stopFirst()
	pod("last", "here")
	eventually(t, "the other role goes on", func() bool { return second.has("pods/default/last") })
	if first.has("pods/default/last") {
		t.Error("a role that has left gets changes")
	}
	if open := count.get(count.open, "watch "+pods.Name); open != 1 {
		t.Errorf("%d watches of pods", open)
	}
}
