package watcher

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/watcher/failures"
	"ovn-k8s/lib/watcher/permission"
)

// idleEngine returns an engine of a watcher without a reachable API server. It is not run.
func idleEngine(t *testing.T) *engine {
	t.Helper()
	var w Watcher
	l := unreachable(t, &w)
	return w.newEngine(l, l.db)
}

// twoGateways is a cluster of two nodes, both gateways.
func twoGateways(t *testing.T) topology.Cluster {
	t.Helper()
	c, err := topology.New(names.ClusterRouter, []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}, []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes, c.Gateways = map[string][]netip.Prefix{}, map[string]topology.Gateway{}
	for i := range 2 {
		a, name := netip.AddrFrom4([4]byte{10, 128, byte(i), 0}), fmt.Sprintf("node-%d", i)
		c.Nodes[name] = []netip.Prefix{netip.PrefixFrom(a, 24)}
		c.Gateways[name] = topology.Gateway{Mode: topology.Physical, Interface: "breth0", Chassis: "chassis-" + name, IPs: []netip.Prefix{netip.PrefixFrom(a, 16)}, Tunnel: a, Node: name}
	}
	return c
}

// T9: the units written with the Lease, without it, and before all objects are read.
func TestWhatIsWrittenWithoutTheLease(t *testing.T) {
	e := idleEngine(t)
	e.network.Put(twoGateways(t))
	gateway, other := topology.GatewayUnit("node-0"), (pod.Key{Namespace: "a", Name: "b"}).Unit()
	onLAN := answer.Unit(netip.MustParseAddr("198.51.100.9"))
	written := func(what string, gateways, addresses, all bool) {
		t.Helper()
		if e.may.Write(gateway) != gateways || e.may.Write(onLAN) != addresses || e.may.Write(other) != all {
			t.Errorf("%s: gateways %v, addresses on LANs %v, others %v", what, e.may.Write(gateway), e.may.Write(onLAN), e.may.Write(other))
		}
	}
	written("nothing is known", false, false, false)
	if units := e.southAsked(); len(units) != 0 {
		t.Errorf("gateways are decided about before the topology is known: %v", units)
	}
	e.found(permission.Topology)
	written("addresses of Nodes are not known", false, false, false)
	if units := e.found(permission.Nodes); len(units) != 2 {
		t.Errorf("once gateways can be decided about, these are: %v", units)
	}
	written("pods are not known", true, false, false)
	clear(e.may.Missing)
	written("without the Lease", true, true, false)
	e.may.Full = true
	written("with the Lease", true, true, true)
	e.lapsed(nil)
	if err := e.lapse.Load().err; err == nil {
		t.Error("there is no reason for the loss of the Lease")
	}
	written("the Lease is lost", true, true, false)

	// A failed unit without another try is not reported as recovered.
	e.failures.Report([]nb.Unit{other}, map[nb.Unit]error{other: errors.New("a reason")})
	e.compute(other)
	failed := e.sync([]nb.Unit{other})(t.Context())
	e.synced([]nb.Unit{other}, failed)
	if failed[other] == nil || !e.failures.Has(other) {
		t.Errorf("a unit that waits for the Lease: %v", failed)
	}
}

// A leader once frozen learns the pods of the next leader before it notices the loss of its Lease. It assigns them other
// addresses in its World, and would advise people to delete them.
func TestAFrozenLeaderGivesNoAdvice(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		e := idleEngine(t)
		log, hook := test.NewNullLogger()
		e.running = failures.NewPods(e.network, logrus.NewEntry(log), e.send, func(nb.Unit, error) {})
		e.network.Put(twoGateways(t))
		clear(e.may.Missing)
		e.may.Full = true
		if frozen {
			term, err := e.connections.db.Lead(t.Context(), "host/1-1/1", "ns/lease", e.connections.cluster.Leads)
			if err != nil {
				t.Fatal(err)
			}
			e.term = term
		}
		e.onDirty(e.network.Put(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}, Spec: corev1.PodSpec{NodeName: "node-0"},
			Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "192.0.2.9"}}},
		}))
		if told := len(hook.AllEntries()) > 0; told == frozen {
			t.Errorf("frozen %v, told %v", frozen, told)
		}
	}
}
