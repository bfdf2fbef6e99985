package kinds

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/watcher"
	"ovn-k8s/test/northbound"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// A network is a Northbound database with a topology, and the settings of watchers.
type network struct {
	*testing.T
	central *ovntest.Central
	flags   map[string]string
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	needCluster(t)
	require.Nothing(t, require.Central, ovntest.Missing())
	central, err := ovntest.Start(ovntest.Options{})
	must(t, err)
	t.Cleanup(central.Close)
	dir := t.TempDir()
	for _, name := range []string{"OVS_RUNDIR", "OVS_LOGDIR", "OVN_RUNDIR", "OVS_SYSCONFDIR", "OVS_DBDIR"} {
		t.Setenv(name, dir)
	}
	token := filepath.Join(dir, "token")
	must(t, os.WriteFile(token, []byte(cluster.Token), 0o600))
	n := &network{t, central, map[string]string{
		"ovn-nb": central.NB, "k8s-api-server": cluster.URL, "k8s-api-token-file": token, "k8s-ca-certificate": cluster.CAFile,
	}}
	n.writeTopology()
	return n
}

// writeTopology writes a cluster without nodes, as master-init does.
func (n *network) writeTopology() {
	n.Helper()
	c, err := topology.New(names.ClusterRouter, []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}, []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")})
	must(n.T, err)
	db, err := northbound.Open(n.Context(), n.central.NB)
	must(n.T, err)
	defer db.Close()
	_, err = (&nbsync.Sync{DB: db}).ApplyAll(n.Context(), map[nb.Unit][]nb.Row{topology.ClusterUnit: c.Rows()})
	must(n.T, err)
}

// watcher returns a watcher with extensions.
func (n *network) watcher(informers kube.Sharing, extensions ...watcher.Extension) *watcher.Watcher {
	return &watcher.Watcher{Options: watcher.Options{
		Flags: n.flags, Extensions: extensions, Informers: informers,
		Log: func(module string) *logrus.Entry { return testLog(n.T).WithField("module", module) },
	}}
}

// testLog returns a log in the output of the test.
func testLog(t *testing.T) *logrus.Logger {
	log := logrus.New()
	log.SetOutput(t.Output())
	return log
}

// run runs a watcher until stop.
func (n *network) run(w *watcher.Watcher) (stop func()) {
	ctx, cancel := context.WithCancel(n.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx, func() {})
	}()
	stop = func() {
		cancel()
		<-ended
	}
	n.Cleanup(stop)
	return stop
}

// route is the next hop of a prefix on the cluster's router, "" if it has no such route.
func (n *network) route(prefix string) string {
	n.Helper()
	out, err := n.central.NBCtl("--bare", "--columns=nexthop", "find", "logical_router_static_route", "ip_prefix="+prefix)
	must(n.T, err)
	return strings.TrimSpace(out)
}

func (n *network) awaitRoute(prefix, nextHop string) {
	n.Helper()
	eventually(n.T, prefix+" has the next hop "+nextHop, func() bool { return n.route(prefix) == nextHop })
}

// apply creates or updates a Route. The API server serves a new custom resource after a moment.
func apply(t *testing.T, name, spec string) {
	t.Helper()
	eventually(t, "a Route is created", func() bool {
		return cluster.Apply(t.Context(), []byte("apiVersion: test.example.com/v1\nkind: Route\nmetadata: {name: "+name+"}\nspec: "+spec)) == nil
	})
}

func routeClient(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(cluster.Config())
	must(t, err)
	return c.Resource(schema.GroupVersionResource{Group: "test.example.com", Version: "v1", Resource: "routes"})
}

func deleteRoute(t *testing.T, name string) {
	t.Helper()
	must(t, routeClient(t).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// defineRoutes creates the custom resource, and deletes all Routes and Events at the end.
func defineRoutes(t *testing.T) {
	t.Helper()
	must(t, cluster.Apply(t.Context(), []byte(routeDefinition)))
	t.Cleanup(func() {
		ctx := context.Background()
		must(t, routeClient(t).DeleteCollection(ctx, now, metav1.ListOptions{}))
		must(t, cluster.Client().CoreV1().Events("default").DeleteCollection(ctx, now, metav1.ListOptions{}))
	})
}

// A kind of this test alone is listed, watched, trimmed, reconciled, pruned, and reported in Events and by --check.
// Apart from the feature in route_test.go, only one value knows of it: the Extension.
func TestAKindFromOutside(t *testing.T) {
	n := newNetwork(t)
	defineRoutes(t)
	seen := &routesSeen{}
	w := n.watcher(nil, routeExtension(seen))
	apply(t, "listed", `{prefix: 198.51.100.0/24, nextHop: 192.168.0.9, note: long}`)
	stop := n.run(w)
	n.awaitRoute("198.51.100.0/24", "192.168.0.9")
	apply(t, "watched", `{prefix: 203.0.113.0/24, nextHop: 192.168.0.9, note: long}`)
	n.awaitRoute("203.0.113.0/24", "192.168.0.9")
	apply(t, "watched", `{prefix: 203.0.113.0/24, nextHop: 192.168.0.10, note: long}`)
	n.awaitRoute("203.0.113.0/24", "192.168.0.10")

	_, err := n.central.NBCtl("lr-route-del", names.ClusterRouter, "203.0.113.0/24")
	must(t, err)
	n.awaitRoute("203.0.113.0/24", "192.168.0.10")

	apply(t, "bad", `{prefix: nonsense, nextHop: 192.168.0.9}`)
	want := `prefix "nonsense" of route bad is no prefix: give one such as 192.0.2.0/24`
	eventually(t, "an Event about the Route", func() bool {
		events, err := cluster.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Route,involvedObject.name=bad,reason=BadRoute"})
		must(t, err)
		return len(events.Items) == 1 && events.Items[0].Message == want && events.Items[0].InvolvedObject.APIVersion == "test.example.com/v1"
	})

	deleteRoute(t, "watched")
	n.awaitRoute("203.0.113.0/24", "")
	stop()
	deleteRoute(t, "listed")
	apply(t, "new", `{prefix: 192.0.2.0/24, nextHop: 192.168.0.9}`)
	var out bytes.Buffer
	equal, err := w.Check(t.Context(), &out)
	must(t, err)
	for _, line := range []string{"- Logical_Router_Static_Route test/listed", "+ Logical_Router_Static_Route test/new", "! route/bad: " + want} {
		if equal || !strings.Contains(out.String(), line) {
			t.Errorf("--check has no line %q:\n%s", line, &out)
		}
	}
	n.run(w)
	n.awaitRoute("192.0.2.0/24", "192.168.0.9")
	n.awaitRoute("198.51.100.0/24", "")

	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, r := range seen.all {
		if r.Spec.Note != "" || len(r.ManagedFields) > 0 {
			t.Errorf("route %s is not trimmed: %+v", r.Name, r)
		}
	}
}
