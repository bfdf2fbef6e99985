package master

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/desired/nodeclaim"
	"ovn-k8s/lib/desired/nodes"
	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/overlay/store"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/watcher"
	"ovn-k8s/lib/watcher/failures"
	"ovn-k8s/lib/watcher/records"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// newNumberer returns a numberer for some Nodes in a new cluster, without its loop.
func newNumberer(t *testing.T, central *ovntest.Central, names ...string) *numberer {
	t.Helper()
	fatal := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	model, err := ovsdb.NBModel()
	fatal(err)
	db, err := ovsdb.Open(t.Context(), ovsdb.Options{Name: "NB", Remotes: []string{central.NB}, Model: model})
	fatal(err)
	t.Cleanup(db.Close)
	ranges, err := nodesubnet.ParseRanges("10.0.0.0/16/24")
	fatal(err)
	join := []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")}
	made, err := membership.Numbering{Program: "ovnkube", Ranges: ranges, Join: join}.Begin()(membership.State{})
	fatal(err)
	to := &nbsync.Sync{DB: db}
	_, err = store.Commit(t.Context(), to, nil, membership.Rows(topology.Cluster{}, made, topology.ClusterUnit))
	fatal(err)
	state, err := read(db)
	fatal(err)
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	n := &numberer{links: watcher.Links{DB: db}, log: logrus.NewEntry(quiet), ranges: ranges, router: state.Router, sync: to, blocked: map[nb.Unit]error{}}
	n.failures = failures.New(n.log, n.send, n.tell)
	n.index = nodes.New(ranges, state.Topology(), nil)
	n.index.Replace(func(yield func(any) bool) {
		for _, name := range names {
			yield(kubetest.Node(name))
		}
	})
	return n
}

// startCentral starts OVN's databases until the end of the test.
func startCentral(t *testing.T) *ovntest.Central {
	t.Helper()
	require.Nothing(t, require.Central, ovntest.Missing())
	central, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(central.Close)
	return central
}

// Nodes whose subnets met another record come again all together, once that record is known.
func TestConflict(t *testing.T) {
	central := startCentral(t)
	n := newNumberer(t, central, "a", "b")
	all := []nb.Unit{topology.NodeUnit("a"), topology.NodeUnit("b")}
	work := n.plan(all)
	if _, err := central.NBCtl("set", "Logical_Router", names.ClusterRouter, "external_ids:x=1"); err != nil {
		t.Fatal(err)
	}
	failed := work(t.Context())
	for _, u := range all {
		if !errors.Is(failed[u], nbsync.ErrConflict) || !errors.Is(failed[u], failures.ErrPending) {
			t.Fatalf("%s: %v", u, failed[u])
		}
	}
	n.synced(all, failed)
	var again []nb.Unit
	for end := time.Now().Add(time.Minute); len(again) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		n.stale.Store(true) // as the handler of the router does
		again = n.readRecord()
	}
	if slices.Sort(again); !slices.Equal(again, all) {
		t.Fatalf("after the change: %v", again)
	}
	n.stale.Store(true)
	if more := n.readRecord(); len(more) > 0 {
		t.Errorf("and then: %v", more)
	}
	if failed := n.plan(nil)(t.Context()); len(failed) > 0 {
		t.Errorf("nothing to do: %v", failed)
	}
	if all := n.reconnected(); len(all) != 2 {
		t.Errorf("after a new connection: %v", all)
	}
}

// A Node with two next hops of one family, such as a stolen one may publish, holds up no other Node.
func TestABadClaimHoldsUpNobody(t *testing.T) {
	central := startCentral(t)
	n := newNumberer(t, central, "good", "stolen")
	stolen := kubetest.Node("stolen")
	stolen.Annotations = nodeclaim.Claim{Chassis: "c1", Gateway: &topology.Gateway{
		Mode: topology.Bridge, Interface: "breth0", MAC: "0a:58:c0:a8:02:03", IPs: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")},
		NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.253"), netip.MustParseAddr("192.0.2.254")},
	}}.Annotations("stolen")
	n.index.Put(stolen)
	n.links.Cluster = new(kube.Cluster) // without the Lease: no annotations are written
	all := []nb.Unit{topology.NodeUnit("good"), topology.NodeUnit("stolen")}
	if err := n.plan(all)(t.Context())[all[0]]; !errors.Is(err, context.Canceled) {
		t.Errorf("good: %v", err)
	}
	for query, want := range map[string]string{"Logical_Switch name=good": "good", "Logical_Router name=" + names.GatewayRouter("stolen"): ""} {
		if out, err := central.NBCtl(append([]string{"--bare", "--columns=name", "find"}, strings.Fields(query)...)...); err != nil || out != want {
			t.Errorf("%s: %q, %v", query, out, err)
		}
	}
}

// A Node with rows refused by the database, here because another row of ours has a name, holds up no other Node, and is told:
// also beside a Node with a refused claim, which each step looks at.
func TestARefusedNodeHoldsUpNobody(t *testing.T) {
	central := startCentral(t)
	good := []string{"a", "b", "c", "clone", "d", "z"}
	n := newNumberer(t, central, append(good, "stolen")...)
	for _, name := range []string{"a", "clone"} {
		o := kubetest.Node(name)
		o.Annotations = nodeclaim.Claim{Chassis: "c9"}.Annotations(name)
		n.index.Put(o)
	}
	if _, err := central.NBCtl("ls-add", "other", "--", "lsp-add", "other", "breth0_stolen", "--", "set", "Logical_Switch_Port", "breth0_stolen",
		"external_ids:"+names.Owner+"=pod/other/x", "external_ids:"+names.ID+"=other_x"); err != nil {
		t.Fatal(err)
	}
	stolen := kubetest.Node("stolen")
	stolen.Annotations = nodeclaim.Claim{Chassis: "c1", Gateway: &topology.Gateway{
		Mode: topology.Bridge, Interface: "breth0", MAC: "0a:58:c0:a8:02:03", IPs: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")},
	}}.Annotations("stolen")
	n.index.Put(stolen)
	n.links.Cluster = new(kube.Cluster) // without the Lease: no annotations are written
	dirty, bad := n.index.All(), topology.NodeUnit("stolen")
	var reason error
	for steps := 0; reason == nil || len(n.apart.groups) > 0; dirty = nil {
		if steps++; steps > 20 {
			t.Fatalf("left: %v, stolen: %v", n.apart.groups, reason)
		}
		for u, err := range n.plan(dirty)(t.Context()) {
			switch {
			case u == bad:
				reason = err
			case u == topology.NodeUnit("clone") && strings.Contains(err.Error(), "is that of node a"):
			case !errors.Is(err, failures.ErrPending) && !errors.Is(err, context.Canceled):
				t.Errorf("%s: %v", u, err)
			}
		}
	}
	told := func(reason error) {
		t.Helper()
		if reason == nil || errors.Is(reason, failures.ErrPending) || !strings.Contains(reason.Error(), "breth0_stolen") {
			t.Errorf("stolen: %v", reason)
		}
	}
	told(reason)
	told(n.plan([]nb.Unit{bad})(t.Context())[bad]) // after its backoff
	for _, name := range good {
		if out, err := central.NBCtl("--bare", "--columns=name", "find", "Logical_Switch", "name="+name); err != nil || out != name {
			t.Errorf("switch of %s: %q, %v", name, out, err)
		}
	}
}

// While a gateway of the record does not fit in, the log has one line for the reason, whatever else changes in the record.
func TestAGatewayLeftOutIsToldOnce(t *testing.T) {
	central := startCentral(t)
	n := newNumberer(t, central)
	var log bytes.Buffer
	n.log.Logger.SetOutput(&log)
	r := records.New(n.links.DB)
	change := func(key, value string) {
		t.Helper()
		if out, err := central.NBCtl("set", "Logical_Router", names.ClusterRouter, "external_ids:"+key+"="+value); err != nil {
			t.Fatal(out, err)
		}
		for end := time.Now().Add(time.Minute); n.router.ExternalIDs[key] != strings.NewReplacer("\\", "", `"{`, "{", `}"`, "}").Replace(value); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %v", key, n.router.ExternalIDs)
			}
			n.stale.Store(true) // as the handler of the router does
			n.readRecord()
		}
		if _, _, err := r.UsableTopology(n.log); err != nil {
			t.Error(err)
		}
	}
	gateway := func(chassis, join string) string {
		return `"{\"mode\":\"physical\",\"interface\":\"eth1\",\"chassis\":\"` + chassis + `\",\"mac\":\"0a:58:c0:a8:02:04\",\"ips\":[\"192.0.2.1/24\"],\"join\":[\"` + join + `\"]}"`
	}
	change(names.GatewayPrefix+"x", gateway("c1", "100.64.0.2"))
	for i := range 3 {
		change(names.GatewayPrefix+"y", gateway("c2", "100.64.0.3"))
		for j := range 5 {
			change("x", fmt.Sprint(j))
		}
		if got := strings.Count(log.String(), "left out"); got != 2*(i+1) {
			t.Errorf("%d lines, want one of the master and one of the watcher each time: %s", got, &log)
		}
		change(names.GatewayPrefix+"y", strings.ReplaceAll(gateway("c2", "100.64.0.3"), "192.0.2.1/", "192.0.2.2/"))
	}
}
