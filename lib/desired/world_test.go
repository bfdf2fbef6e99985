package desired

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/pod/annotation"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/test/policymodel"
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// cluster returns a dual-stack topology with the given nodes, each with room for 5 pods.
func cluster(t testing.TB, nodes ...int) topology.Cluster {
	t.Helper()
	c, err := topology.New(names.ClusterRouter, prefixes("10.0.0.0/16", "fd00::/48"), prefixes("100.64.0.0/16", "fd98::/64"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		c, err = c.WithNode(fmt.Sprintf("n%d", n), prefixes(fmt.Sprintf("10.0.%d.8/29", n), fmt.Sprintf("fd00:0:0:%d::/64", n)))
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func newPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

func annotated(p *corev1.Pod, ips ...string) *corev1.Pod {
	a := annotation.Addresses{MAC: "0a:58:01:02:03:04"}
	for _, ip := range ips {
		pre := netip.MustParsePrefix(ip)
		a.IPs = append(a.IPs, pre)
		a.Gateways = append(a.Gateways, pre.Masked().Addr().Next())
	}
	p.Annotations = map[string]string{names.Annotation: a.Annotation()}
	return p
}

// given returns the addresses of each pod with an assignment, "ip ip".
func given(w *World) map[string]string {
	out := map[string]string{}
	for k := range w.Pods.Keys() {
		if a, ok := w.Pods.Annotation(k.Unit()); ok {
			var s []string
			for _, ip := range a.Addresses.IPs {
				s = append(s, ip.String())
			}
			out[k.Name] = strings.Join(s, " ")
		}
	}
	return out
}

// annotationOf returns the desired annotation of a pod of the namespace default.
func annotationOf(w *World, name string) pod.Annotation {
	a, _ := w.Pods.Annotation(pod.Key{Namespace: "default", Name: name}.Unit())
	return a
}

func TestAnnotationIsOnlyAWish(t *testing.T) {
	for _, tt := range []struct {
		name string
		pods []*corev1.Pod
		want map[string]string
	}{
		{"honoured if free", []*corev1.Pod{annotated(newPod("a", "n1"), "10.0.1.12/29", "fd00:0:0:1::77/64")},
			map[string]string{"a": "10.0.1.12/29 fd00:0:0:1::77/64"}},
		{"not outside the node's subnet", []*corev1.Pod{annotated(newPod("a", "n1"), "10.0.2.12/29", "fd00:0:0:1::77/64")},
			map[string]string{"a": "10.0.1.11/29 fd00:0:0:1::77/64"}},
		{"not the router's", []*corev1.Pod{annotated(newPod("a", "n1"), "10.0.1.9/29", "fd00:0:0:1::1/64")},
			map[string]string{"a": "10.0.1.11/29 fd00:0:0:1::3/64"}},
		{"not the management port's", []*corev1.Pod{annotated(newPod("a", "n1"), "10.0.1.10/29", "fd00:0:0:1::2/64")},
			map[string]string{"a": "10.0.1.11/29 fd00:0:0:1::3/64"}},
		{"not broadcast", []*corev1.Pod{annotated(newPod("a", "n1"), "10.0.1.15/29", "fd00:0:0:1::5/64")},
			map[string]string{"a": "10.0.1.11/29 fd00:0:0:1::5/64"}},
		{"one family is honoured, and the other added", []*corev1.Pod{annotated(newPod("a", "n1"), "10.0.1.12/29")},
			map[string]string{"a": "10.0.1.12/29 fd00:0:0:1::3/64"}},
		{"what the kubelet says wins", []*corev1.Pod{
			annotated(newPod("a", "n1"), "10.0.1.12/29", "fd00:0:0:1::77/64"),
			func() *corev1.Pod {
				p := newPod("b", "n1")
				p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.1.12"}, {IP: "fd00:0:0:1::77"}}
				return p
			}(),
		}, map[string]string{"a": "10.0.1.13/29 fd00:0:0:1::78/64", "b": "10.0.1.12/29 fd00:0:0:1::77/64"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := NewWorld()
			w.Put(cluster(t, 1, 2))
			for _, p := range tt.pods {
				w.Put(p)
			}
			w.Allocate()
			if got := given(w); !maps.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestTheDatabaseWinsOverTheAnnotation(t *testing.T) {
	w := NewWorld()
	w.Put(pod.Assignment{Key: pod.Key{Namespace: "default", Name: "b"}, UID: "uid-b", MAC: "0a:58:0a:00:01:0c",
		IPs: []netip.Addr{netip.MustParseAddr("10.0.1.12"), netip.MustParseAddr("fd00:0:0:1::c")}})
	w.Put(cluster(t, 1))
	w.Put(annotated(newPod("a", "n1"), "10.0.1.12/29", "fd00:0:0:1::c/64"))
	w.Put(newPod("b", "n1"))
	w.Allocate()
	if got := given(w); got["b"] != "10.0.1.12/29 fd00:0:0:1::c/64" || got["a"] == got["b"] || got["a"] == "" {
		t.Errorf("got %v", got)
	}
}

func TestAnAnnotationWrittenLaterChangesNothing(t *testing.T) {
	w := NewWorld()
	w.Put(cluster(t, 1))
	w.Put(newPod("a", "n1"))
	w.Allocate()
	before := given(w)["a"]
	w.Put(annotated(newPod("a", "n1"), "10.0.1.14/29", "fd00:0:0:1::e/64"))
	w.Allocate()
	if got := given(w)["a"]; got != before {
		t.Errorf("the pod moved from %s to %s", before, got)
	}
	if a, ok := w.Pods.Annotation("pod/default/a"); !ok || a.Addresses.Annotation() == a.Pod.Annotation {
		t.Errorf("the wrong annotation is not seen as wrong: %+v", a)
	}
}

func TestAddressesAreNotReusedAtOnce(t *testing.T) {
	w := NewWorld()
	w.Put(cluster(t, 1))
	var seen []string
	for range 3 {
		w.Put(newPod("a", "n1"))
		w.Allocate()
		seen = append(seen, given(w)["a"])
		w.Remove(newPod("a", "n1"))
	}
	if slices.Sort(seen); len(slices.Compact(seen)) != 3 {
		t.Errorf("3 pods in a row had %v", seen)
	}
	// A pod does not get the address of a pod just deleted by wishing for the last one.
	w.Put(cluster(t, 2))
	w.Put(newPod("victim", "n2"))
	w.Allocate()
	victim := given(w)["victim"]
	w.Remove(newPod("victim", "n2"))
	w.Put(annotated(newPod("wish", "n2"), "10.0.2.14/29", "fd00:0:0:2::ff:ffff/64"))
	w.Allocate()
	w.Put(newPod("heir", "n2"))
	if w.Allocate(); given(w)["wish"] != "10.0.2.14/29 fd00::2:0:0:ff:ffff/64" || given(w)["heir"] == victim {
		t.Errorf("after %s came %v", victim, given(w))
	}
}

func TestAFullSubnetIsNamedAndRetriedWhenAPodGoes(t *testing.T) {
	w := NewWorld()
	w.Put(cluster(t, 1))
	for i := range 5 {
		w.Put(newPod(fmt.Sprint("p", i), "n1"))
	}
	w.Allocate()
	_, err := w.Rows("pod/default/p4")
	if want := "subnet 10.0.1.8/29 of node n1 has no free address: all 4 are in use"; err == nil || err.Error() != want {
		t.Fatalf("got error %v, want %q", err, want)
	}
	w.Remove(newPod("p0", "n1"))
	if touched := w.Allocate(); !slices.Contains(touched, nb.Unit("pod/default/p4")) {
		t.Errorf("a free address touches %v, not the pod that waits for it", touched)
	}
	if rows, err := w.Rows("pod/default/p4"); err != nil || len(rows) != 1 {
		t.Errorf("got %v, %v", rows, err)
	}
}

func TestPodsWithoutPorts(t *testing.T) {
	w := NewWorld()
	w.Put(cluster(t, 1))
	for name, change := range map[string]func(*corev1.Pod){
		"unscheduled": func(p *corev1.Pod) { p.Spec.NodeName = "" },
		"host":        func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"succeeded":   func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"failed":      func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
	} {
		p := newPod(name, "n1")
		w.Put(p)
		w.Allocate()
		change(p)
		w.Put(p)
		w.Allocate()
		if rows, err := w.Rows(nb.Unit("pod/default/" + name)); rows != nil || err != nil {
			t.Errorf("%s: got rows %v, %v", name, rows, err)
		}
	}
	if len(given(w)) != 0 {
		t.Errorf("addresses are held: %v", given(w))
	}
}

// rowsOf returns the rows of a unit.
func rowsOf(t testing.TB, w *World, u nb.Unit) []nb.Row {
	t.Helper()
	rows, err := w.Rows(u)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// The watcher leaves the record of who gives nodes their subnets to its writer, even while it has read none.
func TestTheRecordOfTheNumberingStays(t *testing.T) {
	w := NewWorld()
	w.Put(cluster(t, 1))
	for _, r := range rowsOf(t, w, topology.ClusterUnit) {
		if r.ID == names.ClusterRouter && !slices.Contains(r.OnlyNew, names.NumberedBy) {
			t.Errorf("the router's row would remove %s: %v", names.NumberedBy, r.OnlyNew)
		}
	}
}

// state returns every unit's rows as text, without parts written only once.
func state(w *World, more []nb.Unit) map[nb.Unit]string {
	out := map[nb.Unit]string{}
	for _, u := range append(w.Units(), more...) {
		rows, err := w.Rows(u)
		for _, r := range rows {
			if lr, ok := r.Model.(*nbdb.LogicalRouter); ok {
				maps.DeleteFunc(lr.ExternalIDs, func(k, _ string) bool {
					return slices.ContainsFunc(r.OnlyNew, func(prefix string) bool { return strings.HasPrefix(k, prefix) })
				})
			}
		}
		out[u] = fmt.Sprint(rows, err)
	}
	return out
}

// A change must return every unit with other rows afterwards, or a running watcher would not update it.
func TestTouchedIsComplete(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := NewWorld()
		before := state(w, nil)
		for step := range 150 {
			what, touched := randomChange(t, r, w)
			touched = append(touched, w.Allocate()...)
			after := state(w, slices.Collect(maps.Keys(before)))
			for u, rows := range after {
				if !Known(u) { // T10
					t.Fatalf("unit %s has a kind that Known does not know", u)
				}
				was, known := before[u]
				if !known {
					was = fmt.Sprint([]nb.Row(nil), error(nil))
				}
				if rows != was && !slices.Contains(touched, u) {
					t.Fatalf("seed %d step %d: %s changed %s, which it did not report:\n%s\n%s", seed, step, what, u, was, rows)
				}
			}
			before = after
			noTwoShareAnAddress(t, w)
		}
	}
}

func noTwoShareAnAddress(t *testing.T, w *World) {
	t.Helper()
	holders := map[netip.Addr]string{}
	for k := range w.Pods.Keys() {
		a, _ := w.Pods.Annotation(k.Unit())
		for _, ip := range a.Addresses.IPs {
			if other := holders[ip.Addr()]; other != "" {
				t.Fatalf("%s and %s share %s", other, k, ip)
			}
			holders[ip.Addr()] = k.String()
		}
	}
}

func randomChange(t *testing.T, r *rand.Rand, w *World) (string, []nb.Unit) {
	t.Helper()
	node := fmt.Sprint("n", r.IntN(4))
	name := fmt.Sprint("p", r.IntN(12))
	if r.IntN(2) == 0 {
		return randomPolicyChange(policymodel.Source{Rand: r}, w)
	}
	if r.IntN(6) == 0 {
		return randomGatewayChange(t, r, w)
	}
	switch r.IntN(15) {
	case 10, 11, 12, 13, 14:
		return randomServiceChange(t, r, w)
	case 0:
		var nodes []int
		for n := range 4 {
			if r.IntN(4) > 0 {
				nodes = append(nodes, n)
			}
		}
		return fmt.Sprint("topology ", nodes), w.Put(cluster(t, nodes...))
	case 1:
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		if r.IntN(2) == 0 {
			return "remove node " + node, w.Remove(n)
		}
		return "node " + node, w.Put(n)
	case 2, 3:
		return "remove " + name, w.Remove(newPod(name, node))
	case 4:
		p := newPod(name, node)
		p.Status.Phase = corev1.PodSucceeded
		return "finish " + name, w.Put(p)
	case 5:
		p := newPod(name, node)
		p.UID = types.UID(fmt.Sprint("new", r.Int()))
		return "recreate " + name, w.Put(p)
	case 6:
		pods := []any{}
		for i := range 12 {
			if r.IntN(2) == 0 {
				pods = append(pods, newPod(fmt.Sprint("p", i), fmt.Sprint("n", r.IntN(4))))
			}
		}
		return fmt.Sprint("replace by ", len(pods)), w.Replace(&corev1.Pod{}, slices.Values(pods))
	}
	p := newPod(name, node)
	if r.IntN(8) == 0 { // a gateway's port may have this name
		p.Namespace, p.Name = "eth1", fmt.Sprint("gw", r.IntN(3))
	}
	randomHostPorts(r, p)
	if r.IntN(3) == 0 {
		var n int
		fmt.Sscanf(node, "n%d", &n)
		annotated(p, fmt.Sprintf("10.0.%d.%d/29", n, 8+r.IntN(8)), fmt.Sprintf("fd00:0:0:%d::%x/64", n, 1+r.IntN(8)))
	}
	return fmt.Sprint("pod ", name, " on ", node, " ", p.Annotations, p.Spec.Containers), w.Put(p)
}

// randomPolicyChange changes inputs of policies.
func randomPolicyChange(r policymodel.Source, w *World) (string, []nb.Unit) {
	ns := [...]string{"default", "other"}[r.IntN(2)]
	name := fmt.Sprint("policy", r.IntN(6))
	switch r.IntN(12) {
	case 0:
		n := r.Namespace(ns)
		if r.IntN(2) == 0 {
			n.Annotations = map[string]string{names.ACLLogging: `{"deny": "alert", "allow": "info"}`}
		}
		return fmt.Sprint("namespace ", ns, n.Labels, n.Annotations), w.Put(n)
	case 1:
		return "remove namespace " + ns, w.Remove(r.Namespace(ns))
	case 2:
		return "replace namespaces", w.Replace(&corev1.Namespace{}, slices.Values([]any{r.Namespace(ns)}))
	case 3, 4:
		return "remove " + ns + "/" + name, w.Remove(r.Policy(ns, name))
	case 5:
		return "replace policies", w.Replace(&networkingv1.NetworkPolicy{}, slices.Values([]any{r.Policy("default", name), r.Policy("other", name)}))
	case 6:
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", r.IntN(4))}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprint("192.0.2.", 1+r.IntN(3))}}
		return fmt.Sprint("node ", n.Name, n.Status.Addresses), w.Put(n)
	case 7:
		p := r.Policy(ns, name) // also one that cannot be honoured
		p.Spec.PodSelector.MatchLabels = map[string]string{"not a label": "x"}
		return fmt.Sprintf("bad %s/%s", ns, name), w.Put(p)
	case 8, 9, 10:
		p := r.Policy(ns, name)
		return fmt.Sprintf("%s/%s %+v", ns, name, p.Spec), w.Put(p)
	}
	p := r.Pod(ns, fmt.Sprint("p", r.IntN(12)), fmt.Sprint("n", r.IntN(4)))
	p.UID = types.UID("uid-" + p.Name)
	return fmt.Sprint("pod ", p.Name, p.Labels, p.Spec.Containers[0].Ports), w.Put(p)
}
