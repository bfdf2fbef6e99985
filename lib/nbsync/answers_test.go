package nbsync_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
)

// P3: an upgrade replaces the rows by which all gateways answer; at each moment at least one gateway answers.
func TestRowsOfTheVersionBeforeAreReplacedWithoutAGap(t *testing.T) {
	c, db, s := open(t)
	s.Compare = desired.Compare
	w := desired.NewWorld()
	topo := cluster(t, 1, 2)
	for n := range 2 {
		g := topology.Gateway{
			Mode: topology.Physical, Interface: "eth1", Chassis: fmt.Sprint("chassis", n+1), MAC: fmt.Sprint("02:00:00:00:00:0", n+1),
			IPs: prefixes(fmt.Sprintf("198.18.0.%d/15", n+1)),
		}
		var err error
		if topo, err = topo.WithGateway(fmt.Sprint("gw", n+1), g); err != nil {
			t.Fatal(err)
		}
	}
	w.Put(topo)
	const services = 1500
	for i := range services {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("s", i)}}
		svc.Spec.Type, svc.Spec.ClusterIP = corev1.ServiceTypeLoadBalancer, fmt.Sprintf("172.16.%d.%d", i/250, i%250)
		svc.Spec.ClusterIPs, svc.Spec.ExternalIPs = []string{svc.Spec.ClusterIP}, []string{fmt.Sprintf("198.19.%d.%d", i/250, i%250)}
		svc.Spec.Ports = []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}
		w.Put(svc)
	}
	before := rowsOf(w, w.Units())
	for u, rows := range before {
		if _, ok := answer.Of(u); ok {
			before[u] = nil
		}
		for _, r := range rows {
			if lb, ok := r.Model.(*nbdb.LoadBalancer); ok {
				delete(lb.Options, "neighbor_responder")
			}
		}
	}
	apply(t, s, before)
	sent, err := c.NBRecords()
	if err != nil {
		t.Fatal(err)
	}
	apply(t, s, rowsOf(w, w.Units()))
	records, err := c.NBRecords()
	if err != nil {
		t.Fatal(err)
	}
	rows := 0 // of LoadBalancerTable, in the order of their transactions: the rows of gateways come first
	for _, r := range records[len(sent):] {
		if r.Rows[nbdb.LogicalRouterTable] > 0 && rows > services {
			t.Errorf("after %d load balancers a router gets one", rows)
		}
		rows += r.Rows[nbdb.LoadBalancerTable]
	}
	if rows != 2*services {
		t.Errorf("%d load balancers were written, want %d", rows, 2*services)
	}
	if n := len(db.Client().Cache().Table(nbdb.LoadBalancerTable).RowsShallow()); n != 2*services {
		t.Errorf("there are %d load balancers", n)
	}
	if changes := apply(t, s, rowsOf(w, w.Units())); len(changes) > 0 {
		t.Errorf("again: %d changes, as %v", len(changes), changes[0])
	}
	gone := w.Put(facts.Silent{w.Answers.Answering(netip.MustParseAddr("198.19.0.7")): true})
	changes := apply(t, s, rowsOf(w, gone))
	if i := slices.IndexFunc(changes, func(c nbsync.Change) bool { return c.Table == nbdb.LoadBalancerTable && c.Action != nbsync.Update }); i >= 0 || len(changes) == 0 {
		t.Errorf("a gateway goes: %d changes, change %d is no update", len(changes), i)
	}
}
