package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/test/policymodel"
)

// lowLimits are within the reach of small clusters.
func lowLimits() limits {
	return limits{perPod: 1, minMembers: 12, perSpace: 2, perFlows: 2, portSets: 3, portBytes: 900, unit: 2, nameBytes: 8}
}

// dump returns all rows and references of an index, by unit.
func dump(x *Index) map[nb.Unit]string {
	out := map[nb.Unit]string{}
	for _, u := range x.Units() {
		rows, problem := x.Rows(u)
		var lines []string
		for _, r := range rows {
			lines = append(lines, r.String())
		}
		slices.Sort(lines)
		out[u] = strings.Join(append(lines, problem), "\n")
	}
	for k := range x.members {
		if refs := x.Refs(k); len(refs) > 0 {
			out[k.Unit()] = fmt.Sprint(refs)
		}
	}
	return out
}

// dangling lists the port groups that ports and ACLs refer to, but no unit has.
func dangling(x *Index) (missing []string) {
	known, wanted := map[string]bool{}, map[string]bool{}
	want := func(refs []nb.Ref) {
		for _, r := range refs {
			wanted[r.ID] = true
		}
	}
	for _, u := range x.Units() {
		rows, _ := x.Rows(u)
		for _, r := range rows {
			known[r.ID] = known[r.ID] || r.Table == nbdb.PortGroupTable
			want(r.In)
		}
	}
	for k := range x.members {
		want(x.Refs(k))
	}
	for id := range wanted {
		if !known[id] {
			missing = append(missing, id)
		}
	}
	return missing
}

// L1, L2: policies get over the limits and back, as pods and other policies come and go. The
// touched units are complete, and the result does not depend on the order.
func TestLimitsDoNotDependOnTheOrder(t *testing.T) {
	if closed := walk(t, lowLimits(), randomChange); len(closed) < 4 {
		t.Errorf("not all limits were reached: %v", closed)
	}
}

// L2: the same in two namespaces whose pods have the same few numbers of a named port. A policy comes before or after the pods,
// and no number is gone while the other namespace has it.
func TestNamedPortsDoNotDependOnTheOrder(t *testing.T) {
	few := defaultLimits()
	few.portSets = 3
	if closed := walk(t, few, twinChange); closed["choked"] == 0 || closed["leftOut"] == 0 {
		t.Errorf("not all limits were reached: %v", closed)
	}
}

// L1: the same with many policies in one namespace, and its limit is applied once for several of them.
func TestTheLimitOfANamespaceDoesNotDependOnTheOrder(t *testing.T) {
	few := lowLimits()
	few.perPod, few.perSpace = 0, 1
	if closed := walk(t, few, crowdChange); closed["spaceExcess"] < 1000 {
		t.Errorf("the limit was rarely reached: %v", closed)
	}
}

// walk makes random changes. Again and again the latest change of each object at once has the same result. It counts how often
// each limit was exceeded.
func walk(t *testing.T, l limits, random func(policymodel.Source) (string, func(*Index) []nb.Unit)) (closed map[string]int) {
	t.Helper()
	closed = map[string]int{}
	for seed := range uint64(20) {
		s := policymodel.NewSource(seed)
		x := newIndex(l)
		changes := map[string]func(*Index) []nb.Unit{}
		for i := range 150 {
			key, change := random(s)
			before := dump(x)
			touched := map[nb.Unit]bool{nb.Unit("pod/" + key): true} // touched by the World
			for _, u := range append(change(x), x.Settle()...) {
				touched[u] = true
			}
			changes[key] = change
			after := dump(x)
			if bad := dangling(x); len(bad) > 0 {
				t.Fatalf("seed %d: %s: there is no %v", seed, key, bad)
			}
			for _, u := range slices.Concat(slices.Collect(maps.Keys(before)), slices.Collect(maps.Keys(after))) {
				if before[u] != after[u] && !touched[u] {
					t.Fatalf("seed %d: %s: %s is not touched:\n%s\n---\n%s", seed, key, u, before[u], after[u])
				}
			}
			for _, p := range x.policies.all {
				for j, why := range []string{p.excess, p.spaceExcess, p.choked} {
					if why != "" {
						closed[[]string{"excess", "spaceExcess", "choked"}[j]]++
					}
				}
				if p.leftOut(l) != "" {
					closed["leftOut"]++
				}
			}
			if i%5 == 4 {
				atOnce(t, rand.NewPCG(seed, uint64(i)), l, changes, after)
			}
		}
	}
	return closed
}

// atOnce makes the latest change of each object in some order. The result is the same as after a walk.
func atOnce(t *testing.T, order rand.Source, l limits, changes map[string]func(*Index) []nb.Unit, walked map[nb.Unit]string) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(changes))
	rand.New(order).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	fresh := newIndex(l)
	for _, k := range keys { // removed keys are removed from nothing
		changes[k](fresh)
	}
	fresh.Settle()
	b := dump(fresh)
	if maps.Equal(walked, b) {
		return
	}
	for u := range walked {
		if walked[u] != b[u] {
			t.Fatalf("%s is, after a walk and at once:\n%s\n---\n%s", u, walked[u], b[u])
		}
	}
	t.Fatalf("%d units, and %d at once", len(walked), len(b))
}

// randomChange puts or removes an object and returns its key.
func randomChange(s policymodel.Source) (string, func(*Index) []nb.Unit) {
	ns, i := fmt.Sprint("ns-", s.IntN(3)), s.IntN(8)
	switch s.IntN(6) {
	case 0:
		o := s.Namespace(ns)
		if s.IntN(4) == 0 {
			return ns, func(x *Index) []nb.Unit { return x.RemoveNamespace(ns) }
		}
		return ns, func(x *Index) []nb.Unit { return x.PutNamespace(o) }
	case 1, 2, 3:
		k := pod.Key{Namespace: ns, Name: fmt.Sprint("pod-", i)}
		if s.IntN(4) == 0 {
			return k.String(), func(x *Index) []nb.Unit { return x.RemovePod(k) }
		}
		p := s.Pod(ns, k.Name, "node")
		return k.String(), func(x *Index) []nb.Unit { return x.PutPod(k, p.Labels, Ports(p)) }
	}
	k := Key{ns, fmt.Sprint("policy-", i%4)}
	if s.IntN(4) == 0 {
		return k.String(), func(x *Index) []nb.Unit { return x.RemovePolicy(k) }
	}
	p := s.Policy(ns, k.Name)
	p.CreationTimestamp = metav1.Unix(int64(s.IntN(3)), 0)
	return k.String(), func(x *Index) []nb.Unit { return x.PutPolicy(New(p)) }
}

// twinChange puts a namespace, or puts or removes a policy to named ports, or a pod with one of few numbers.
func twinChange(s policymodel.Source) (string, func(*Index) []nb.Unit) {
	ns := fmt.Sprint("ns-", s.IntN(2))
	switch s.IntN(10) {
	case 0:
		return ns, func(x *Index) []nb.Unit {
			return x.PutNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		}
	case 1, 2:
		p := toNamed()
		p.Namespace = ns
		k := Key{ns, p.Name}
		if s.IntN(3) == 0 {
			return k.String(), func(x *Index) []nb.Unit { return x.RemovePolicy(k) }
		}
		return k.String(), func(x *Index) []nb.Unit { return x.PutPolicy(New(p)) }
	}
	k := pod.Key{Namespace: ns, Name: fmt.Sprint("pod-", s.IntN(6))}
	if s.IntN(3) == 0 {
		return k.String(), func(x *Index) []nb.Unit { return x.RemovePod(k) }
	}
	number := 8000 + s.IntN(6)
	return k.String(), func(x *Index) []nb.Unit {
		return x.PutPod(k, nil, []Port{{"p0", corev1.ProtocolTCP, uint16(number)}})
	}
}

// crowdChange puts or removes a pod, or one of many policies in one namespace. Their ages do not follow their names.
func crowdChange(s policymodel.Source) (string, func(*Index) []nb.Unit) {
	app := metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", s.IntN(9))}}
	if s.IntN(4) == 0 {
		k := pod.Key{Namespace: "ns-0", Name: fmt.Sprint("pod-", s.IntN(12))}
		if s.IntN(3) == 0 {
			return k.String(), func(x *Index) []nb.Unit { return x.RemovePod(k) }
		}
		return k.String(), func(x *Index) []nb.Unit { return x.PutPod(k, app.MatchLabels, nil) }
	}
	p := from("ns-0", fmt.Sprint("policy-", s.IntN(60)), []networkingv1.NetworkPolicyPeer{{PodSelector: &app}})
	p.Spec.PodSelector.MatchLabels = map[string]string{"app": fmt.Sprint("app-", s.IntN(9))}
	p.CreationTimestamp = metav1.Unix(int64(s.IntN(20)), 0)
	if s.IntN(4) == 0 {
		return Key{p.Namespace, p.Name}.String(), func(x *Index) []nb.Unit { return x.RemovePolicy(Key{p.Namespace, p.Name}) }
	}
	return Key{p.Namespace, p.Name}.String(), func(x *Index) []nb.Unit { return x.PutPolicy(New(p)) }
}
