package nbsync_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/test/ovntest"
)

// A town is a world of 1 000 pods with 20 labels in one namespace, and 200 policies, ten for each label. The rules
// of a policy select another label.
type town struct {
	*testing.T
	central *ovntest.Central
	sync    *nbsync.Sync
	world   *desired.World
}

const (
	townNodes  = 8
	townPods   = 1000
	townLabels = 20
)

func newTown(t *testing.T) *town {
	t.Helper()
	c, _, s := open(t)
	w := &town{t, c, s, desired.NewWorld()}
	w.world.Put(cluster(t, 0, 1, 2, 3, 4, 5, 6, 7))
	w.namespace("default", nil)
	for i := range townPods {
		w.world.Put(citizen(i, i%townLabels))
	}
	for i := range 10 * townLabels {
		w.world.Put(fromNext("default", i, app(i)))
	}
	w.world.Allocate()
	apply(t, s, rowsOf(w.world, w.world.Units()))
	return w
}

func (w *town) namespace(name string, labels map[string]string) []nb.Unit {
	return w.world.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

func app(i int) map[string]string { return map[string]string{"app": fmt.Sprint("app-", i%townLabels)} }

// citizen is a pod with one of the labels.
func citizen(i, label int) *corev1.Pod {
	p := newPod(fmt.Sprint("p", i), fmt.Sprint("n", i%8))
	p.Labels = app(label)
	return p
}

// fromNext is a policy to allow ingress from pods of the next label.
func fromNext(namespace string, i int, subject map[string]string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("policy-", i)}}
	p.Spec.PodSelector.MatchLabels = subject
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: app(i + 1)}}},
	}}
	return p
}

// everywhere allows ingress from all pods of namespaces with a label.
func everywhere(label string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "everywhere-" + label}}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"is": label}}}},
	}}
	return p
}

// transactions are the transactions for the rows of units in the database's file.
func (w *town) transactions(units ...nb.Unit) []ovntest.Record {
	w.Helper()
	before, err := w.central.NBRecords()
	if err != nil {
		w.Fatal(err)
	}
	units = append(units, w.world.Allocate()...)
	apply(w, w.sync, rowsOf(w.world, units))
	after, err := w.central.NBRecords()
	if err != nil {
		w.Fatal(err)
	}
	return slices.DeleteFunc(after[len(before):], func(r ovntest.Record) bool { return r.Comment != "" }) // northd's
}

func rows(r ovntest.Record) (n int) {
	for _, of := range r.Rows {
		n += of
	}
	return n
}

// one checks for one transaction of at most most rows.
func (w *town) one(what string, records []ovntest.Record, most int) {
	w.Helper()
	if len(records) != 1 || rows(records[0]) > most {
		w.Errorf("%s: %d transactions, want one of at most %d rows: %v", what, len(records), most, records)
		return
	}
	w.Logf("%s: %v", what, records[0].Rows)
}

// The changes for existing pods are one transaction, so that no client sees half of them.
func TestTransactionsOfPolicies(t *testing.T) {
	w := newTown(t)
	for _, tt := range []struct {
		name string
		do   func(*town)
	}{
		{"rows that a pod touches", rowsOfOnePod},
		{"a policy comes at once", atOnce},
		{"new pods come after their policies", newPodsLast},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.do(&town{t, w.central, w.sync, w.world}) })
	}
}

// rowsOfOnePod checks the cost of one pod: a starting pod changes its port, its switch and its groups; a changed
// label the groups left and joined. Each label here has one group, shared by ten policies and ten rules.
func rowsOfOnePod(w *town) {
	w.one("a pod starts", w.transactions(w.world.Put(citizen(townPods, 3))...), 1+2)
	w.one("a label changes", w.transactions(w.world.Put(citizen(townPods, 4))...), 2)
	w.one("a pod goes", w.transactions(w.world.Remove(citizen(townPods, 4))...), 1+2)
}

func atOnce(w *town) {
	const few = 8
	w.one("a policy for all", w.transactions(w.world.Put(everywhere("home"))...), few)
	w.one("its namespace gets the label", w.transactions(w.namespace("default", map[string]string{"is": "home"})...), few)
	w.one("and loses it", w.transactions(w.namespace("default", nil)...), few)
	away := everywhere("away")
	away.Name = everywhere("home").Name
	w.one("the policy names another label", w.transactions(w.world.Put(away)...), few)
	w.one("the policy goes", w.transactions(w.world.Remove(away)...), few)
	var touched []nb.Unit
	for i := range townPods {
		touched = append(touched, w.world.Put(citizen(i, (i+1)%townLabels))...)
	}
	w.one("all pods get another label", w.transactions(touched...), townLabels)
}

// newPodsLast checks that new pods come after the changes of existing pods. Each joins all its groups in the
// transaction creating its port.
func newPodsLast(w *town) {
	touched := w.world.Put(everywhere("home"))
	for i := range 700 {
		touched = append(touched, w.world.Put(citizen(townPods+i, i%townLabels))...)
	}
	records := w.transactions(touched...)
	if len(records) != 3 {
		w.Fatalf("%d transactions, want one and two of new pods: %v", len(records), records)
	}
	first := records[0].Rows
	// Management ports record the positions of their nodes' address pools.
	if first[nbdb.LogicalSwitchPortTable] > townNodes || first[nbdb.ACLTable] != 2 {
		w.Errorf("the first transaction has no ports of pods, and the ACLs of the policy: %v", first)
	}
	for _, r := range records[1:] {
		// The groups of the labels, and the group of all pods.
		if r.Rows[nbdb.LogicalSwitchPortTable] > 500 || r.Rows[nbdb.PortGroupTable] != townLabels+1 || r.Rows[nbdb.ACLTable] != 0 {
			w.Errorf("a transaction of new pods: %v", r.Rows)
		}
	}
}
