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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// oneNode is a topology with node n1 and its subnets.
func oneNode(t testing.TB, subnets ...string) topology.Cluster {
	t.Helper()
	var all, join []netip.Prefix
	for _, s := range prefixes(subnets...) {
		if s.Addr().Is4() {
			all, join = append(all, prefixes("10.0.0.0/8")...), append(join, prefixes("100.64.0.0/16")...)
		} else {
			all, join = append(all, prefixes("fd00::/16")...), append(join, prefixes("fd98::/64")...)
		}
	}
	c, err := topology.New(names.ClusterRouter, all, join)
	if err == nil {
		c, err = c.WithNode("n1", prefixes(subnets...))
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// started is a pod with addresses reported by the kubelet.
func started(name string, created int64, ips ...string) *corev1.Pod {
	p := newPod(name, "n1")
	p.CreationTimestamp = metav1.Unix(created, 0)
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

// run reports the assigned addresses as a kubelet does. Pods already running keep theirs.
func run(w *World, pods map[string]*corev1.Pod) {
	for name, ips := range given(w) {
		p := pods[name]
		if p == nil || len(p.Status.PodIPs) > 0 {
			continue
		}
		for _, ip := range strings.Fields(ips) {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: netip.MustParsePrefix(ip).Addr().String()})
		}
		w.Put(p.DeepCopy())
	}
}

// restarted returns a new World after reading the rows of w.
func restarted(w *World, pods map[string]*corev1.Pod) *World {
	next := NewWorld()
	for _, u := range w.Units() {
		rows, _ := w.Rows(u)
		for _, r := range rows {
			if port, ok := r.Model.(*nbdb.LogicalSwitchPort); ok {
				if a, ok := pod.ReadAssignment(port); ok {
					next.Put(a)
				} else if m, ok := pod.ReadMarks(port); ok {
					next.Put(m)
				}
			}
		}
	}
	next.Put(w.Facts().Cluster)
	for _, p := range pods {
		next.Put(p.DeepCopy())
	}
	next.Allocate()
	return next
}

// T3: a running pod keeps its addresses through every change of families, and through restarts on the way, also of an
// emptied database.
func TestConversionsKeepWhatRunningPodsHave(t *testing.T) {
	const v4, v6 = "10.0.1.0/24", "fd00:0:0:1::/64"
	for _, tt := range []struct {
		name string
		way  [][]string
	}{
		{"v4 to dual and back", [][]string{{v4}, {v4, v6}, {v4}, {v4, v6}}},
		{"v6 to dual and back", [][]string{{v6}, {v4, v6}, {v6}, {v4, v6}}},
		{"dual to v4 and back", [][]string{{v4, v6}, {v4}, {v4, v6}}},
		{"dual to v6 and back", [][]string{{v4, v6}, {v6}, {v4, v6}}},
		{"another subnet and back", [][]string{{v4}, {"10.0.7.0/24"}, {v4}}},
		{"removed and back", [][]string{{v4, v6}, nil, {v4, v6}}},
	} {
		for _, restart := range []string{"no restart", "restarts", "the database is emptied"} {
			t.Run(tt.name+"/"+restart, func(t *testing.T) { convert(t, tt.way, restart) })
		}
	}
}

func convert(t *testing.T, way [][]string, restart string) {
	r := rand.New(rand.NewPCG(1, 2))
	w, pods := NewWorld(), map[string]*corev1.Pod{}
	had := map[string][]netip.Addr{} // addresses of a running pod's interface
	macs := map[string]string{}
	for i, subnets := range way {
		if subnets == nil {
			c, _ := w.Facts().Cluster.WithoutNode("n1")
			w.Put(c)
		} else {
			w.Put(oneNode(t, subnets...))
		}
		w.Allocate()
		switch restart {
		case "restarts":
			w = restarted(w, pods)
		case "the database is emptied":
			empty := NewWorld()
			empty.Put(w.Facts().Cluster)
			for _, p := range pods {
				empty.Put(p.DeepCopy())
			}
			empty.Allocate()
			w = empty
		}
		for name, ips := range had {
			state := annotationOf(w, name)
			for _, ip := range ips {
				if slices.ContainsFunc(prefixes(subnets...), func(s netip.Prefix) bool { return s.Contains(ip) }) && !slices.Contains(facts.Addrs(state.Addresses.IPs), ip) {
					t.Errorf("after step %d, %v: pod %s runs with %v, and has %v", i, subnets, name, ips, state.Addresses.IPs)
				}
			}
			if subnets != nil && i != 1 && state.Addresses.MAC != macs[name] {
				t.Errorf("after step %d, %v: pod %s runs with MAC %s, and has %s", i, subnets, name, macs[name], state.Addresses.MAC)
			}
		}
		noTwoShareAnAddress(t, w)
		for n := range 20 { // in no order of names
			name := fmt.Sprint("p", r.IntN(1000))
			if pods[name] == nil {
				pods[name] = started(name, int64(100*i+n))
				w.Put(pods[name].DeepCopy())
			}
		}
		w.Allocate()
		for name, p := range pods {
			if r.IntN(4) == 0 {
				w.Remove(p)
				delete(pods, name)
				delete(had, name)
			}
		}
		run(w, pods)
		for name := range given(w) {
			if state := annotationOf(w, name); had[name] == nil {
				had[name], macs[name] = facts.Addrs(state.Addresses.IPs), state.Addresses.MAC
				pods[name].Annotations = map[string]string{names.Annotation: state.Addresses.Annotation(), names.AnnotationUID: state.Pod.UID}
				w.Put(pods[name].DeepCopy())
			}
		}
	}
}

// T3: if pods have one address, the one with the best evidence keeps it, and with equal evidence the oldest.
func TestWhoHasAnAddressOfSeveralPods(t *testing.T) {
	assigned := func(name string, ips ...string) pod.Assignment {
		a := pod.Assignment{Key: pod.Key{Namespace: "default", Name: name}, UID: "uid-" + name, MAC: "0a:58:0a:00:01:63"}
		for _, ip := range ips {
			a.IPs = append(a.IPs, netip.MustParseAddr(ip))
		}
		return a
	}
	for _, tt := range []struct {
		name string
		puts []any
		want string // the pod with 10.0.1.12
	}{
		{"the older of two running pods", []any{started("a", 2, "10.0.1.12"), started("b", 1, "10.0.1.12")}, "b"},
		{"a running pod, not an older one that was only assigned it", []any{assigned("a", "10.0.1.12"), started("a", 1), started("b", 2, "10.0.1.12")}, "b"},
		{"a running pod that was assigned it, not an older one that was not", []any{assigned("b", "10.0.1.12"), started("a", 1, "10.0.1.12"), started("b", 2, "10.0.1.12")}, "b"},
		{"who was assigned it, not who wishes it", []any{assigned("b", "10.0.1.12"), annotated(started("a", 1), "10.0.1.12/29"), started("b", 2)}, "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := NewWorld()
			w.Put(oneNode(t, "10.0.1.8/29"))
			for _, o := range tt.puts {
				w.Put(o)
			}
			w.Allocate()
			noTwoShareAnAddress(t, w)
			for name, ip := range given(w) {
				if (name == tt.want) != (ip == "10.0.1.12/29") {
					t.Errorf("got %v", given(w))
				}
			}
		})
	}
}

// T3: a running pod keeps its addresses also if the other family is full.
func TestAFullFamilyTakesNothing(t *testing.T) {
	w := NewWorld()
	w.Put(oneNode(t, "fd00:0:0:1::/64"))
	pods := map[string]*corev1.Pod{}
	for i := range 6 {
		name := fmt.Sprint("p", i)
		pods[name] = started(name, int64(i))
		w.Put(pods[name].DeepCopy())
	}
	w.Allocate()
	run(w, pods)
	before := given(w)
	w.Put(oneNode(t, "10.0.1.8/29", "fd00:0:0:1::/64")) // 4 addresses for 6 pods
	w.Allocate()
	for name, ips := range before {
		if got := given(w)[name]; !strings.HasSuffix(got, ips) {
			t.Errorf("%s has %s instead of %s", name, got, ips)
		}
	}
	rows, err := w.Rows("pod/default/p5")
	if len(rows) != 1 || err == nil || !strings.Contains(err.Error(), "10.0.1.8/29 of node n1 has no free address") {
		t.Errorf("the youngest: %v, %v", rows, err)
	}
	w.Remove(pods["p0"])
	if touched := w.Allocate(); !slices.Contains(touched, nb.Unit("pod/default/p4")) || len(strings.Fields(given(w)["p4"])) != 2 {
		t.Errorf("a free address went to none of those that wait: %v, %v", touched, given(w))
	}
}

// T2: a pod running with other addresses than assigned is reported.
func TestMismatch(t *testing.T) {
	w := NewWorld()
	w.Put(oneNode(t, "10.0.1.8/29"))
	pods := map[string]*corev1.Pod{"a": started("a", 1)}
	w.Put(pods["a"].DeepCopy())
	w.Allocate()
	const unit = nb.Unit("pod/default/a")
	expect := func(when, want string) {
		t.Helper()
		got := w.Pods.Mismatch(unit)
		if want == "" && got != nil || want != "" && (got == nil || got.Message != want) {
			t.Errorf("%s: %v, want %q", when, got, want)
		}
	}
	expect("not running yet", "")
	run(w, pods)
	expect("as it should be", "")
	w.Put(oneNode(t, "10.0.1.8/29", "fd00:0:0:1::/64"))
	w.Allocate()
	expect("dual stack", "pod default/a runs without address fd00:0:0:1::3, which it was assigned after its start: delete the pod to recreate it with all addresses")
	w.Put(oneNode(t, "fd00:0:0:1::/64"))
	w.Allocate()
	expect("the other family", "pod default/a runs with address 10.0.1.11, but is assigned fd00:0:0:1::3: its packets are dropped; delete the pod to recreate it")
	pods["a"].Status.PodIPs = append(pods["a"].Status.PodIPs, corev1.PodIP{IP: "fd00:0:0:1::3"})
	if touched := w.Put(pods["a"].DeepCopy()); !slices.Contains(touched, unit) {
		t.Errorf("another status touches %v", touched)
	}
	expect("a family that is gone", "pod default/a runs with address 10.0.1.11, which is not in the subnets of node n1: its packets are dropped; delete the pod to recreate it without")
}

// T7: after a restart, the watcher does not assign recently released addresses.
func TestARestartContinuesTheRound(t *testing.T) {
	w, pods := NewWorld(), map[string]*corev1.Pod{}
	w.Put(oneNode(t, "10.0.1.0/24", "fd00:0:0:1::/64"))
	var last []string
	for i := range 60 {
		name := fmt.Sprint("p", i)
		p := newPod(name, "n1")
		w.Put(p)
		w.Allocate()
		ips := given(w)[name]
		if slices.Contains(last, ips) {
			t.Fatalf("pod %d has %s again, after %v", i, ips, last)
		}
		if last = append(last, ips); len(last) > 10 {
			last = last[1:]
		}
		if i%2 == 0 {
			w.Remove(p) // the latest
		} else {
			pods[name] = p
		}
		before := state(w, nil)
		if w = restarted(w, pods); !maps.Equal(before, state(w, nil)) {
			t.Fatalf("a restart changes rows:\n%v\n%v", before, state(w, nil))
		}
	}
}

// T8: a static pod keeps its address when its mirror is created again: its sandbox is still running.
func TestAStaticPodKeepsItsAddress(t *testing.T) {
	static := func(uid, id string) *corev1.Pod {
		p := newPod("etcd-n1", "n1")
		p.UID = types.UID(uid)
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: id}
		return p
	}
	port := func(w *World) *nbdb.LogicalSwitchPort {
		rows, err := w.Rows("pod/default/etcd-n1")
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		return rows[0].Model.(*nbdb.LogicalSwitchPort)
	}
	w := NewWorld()
	w.Put(oneNode(t, "10.0.1.0/24"))
	w.Put(static("u1", "hash"))
	w.Allocate()
	before := given(w)["etcd-n1"]
	if ver := port(w).Options[names.IfaceIDVer]; ver != "" {
		t.Errorf("its port is bound only by interfaces of UID %s", ver)
	}
	w.Remove(static("u1", "hash"))
	w.Put(newPod("other", "n1"))
	w.Allocate()
	w.Put(static("u2", "hash"))
	w.Allocate()
	if got := given(w)["etcd-n1"]; got != before {
		t.Errorf("deleted and made again: %s, want %s", got, before)
	}
	w.Put(static("u3", "hash")) // as after a relist
	w.Allocate()
	if got := given(w)["etcd-n1"]; got != before || port(w).ExternalIDs[names.PodUID] != "u3" {
		t.Errorf("replaced: %s, want %s; %v", got, before, port(w))
	}
	w = restarted(w, map[string]*corev1.Pod{"": static("u4", "hash")})
	if got := given(w)["etcd-n1"]; got != before {
		t.Errorf("while the watcher was down: %s, want %s", got, before)
	}
	w.Put(static("u5", "another manifest"))
	w.Allocate()
	if got := given(w)["etcd-n1"]; got == before {
		t.Error("another static pod has the address at once")
	}
}

// L7: pods waiting for an address do not slow down other events.
func TestWaitingPodsCostNothing(t *testing.T) {
	w := NewWorld()
	w.Put(oneNode(t, "10.0.1.8/29"))
	for i := range 20_000 {
		p := started(fmt.Sprint("p", i), int64(i))
		if i%2 == 0 {
			p.Spec.NodeName = "nowhere"
		}
		w.Put(p)
	}
	w.Allocate()
	w.Put(started("other", 1<<40))
	if touched := w.Allocate(); len(touched) != 1 {
		t.Errorf("a pod that waits touches %d units", len(touched))
	}
	if n := testing.AllocsPerRun(10, func() { w.Put(sayer("n1", 1)); w.Allocate() }); n > 100 {
		t.Errorf("an event that helps nobody allocates %v times", n)
	}
	w.Remove(newPod("p1", "n1"))
	if touched := w.Allocate(); !slices.Equal(touched, []nb.Unit{"pod/default/p9", "node/n1"}) {
		t.Errorf("a free address touches %v", touched)
	}
	if got := given(w); len(got) != 4 || got["p9"] != "10.0.1.11/29" {
		t.Errorf("the oldest does not get it: %v", got)
	}
	for range 3 { // and each of those waiting can be removed
		for i := range 20_000 {
			w.Remove(newPod(fmt.Sprint("p", i), "n1"))
		}
	}
	w.Allocate()
	w.Remove(newPod("other", "n1"))
	if len(given(w)) != 0 {
		t.Errorf("left: %v", given(w))
	}
}

// T3: with random conversions, restarts and changes of pods, two pods never share an address, and a running pod never
// loses an address in the node's subnets if no other pod has it.
func TestRandomConversions(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 7))
		w, pods := NewWorld(), map[string]*corev1.Pod{}
		choices := [][]string{{"10.0.1.0/28"}, {"fd00:0:0:1::/64"}, {"10.0.1.0/28", "fd00:0:0:1::/64"}, {"10.0.2.0/28"}, {"10.0.1.0/28", "fd00:0:0:2::/64"}}
		for step := range 200 {
			name := fmt.Sprint("p", r.IntN(10))
			switch r.IntN(8) {
			case 0:
				w.Put(oneNode(t, choices[r.IntN(len(choices))]...))
			case 1:
				w.Allocate()
				w = restarted(w, pods)
			case 2:
				if pods[name] != nil {
					w.Remove(pods[name])
					delete(pods, name)
				}
			default:
				if pods[name] == nil {
					pods[name] = started(name, int64(step))
					pods[name].UID = types.UID(fmt.Sprint(name, step))
					w.Put(pods[name].DeepCopy())
				}
			}
			w.Allocate()
			run(w, pods)
			noTwoShareAnAddress(t, w)
			claimed := map[string]int{}
			for _, p := range pods {
				for _, ip := range p.Status.PodIPs {
					claimed[ip.IP]++
				}
			}
			for name, p := range pods {
				have := facts.Addrs(annotationOf(w, name).Addresses.IPs)
				for _, ip := range p.Status.PodIPs {
					a := netip.MustParseAddr(ip.IP)
					if ipnet.Within([]netip.Prefix{netip.PrefixFrom(a, a.BitLen())}, w.Facts().Cluster.Nodes["n1"]) && claimed[ip.IP] == 1 && !slices.Contains(have, a) {
						t.Fatalf("seed %d step %d: %s runs with %s and has %v", seed, step, name, a, have)
					}
				}
			}
		}
	}
}

// The interface of a pod of an older release has no UID: ovn-controller binds it only if its port has none either, also after
// a restart.
func TestAPortOfAnOlderReleaseTakesItsInterface(t *testing.T) {
	dynamic := "0a:00:00:00:00:05 10.0.1.5"
	older, ok := pod.ReadAssignment(&nbdb.LogicalSwitchPort{
		Name: "default_old", Addresses: []string{"dynamic"}, DynamicAddresses: &dynamic,
		ExternalIDs: map[string]string{names.Namespace: "default", names.Pod: "true"},
	})
	if !ok {
		t.Fatal("it is no pod's port")
	}
	pods := map[string]*corev1.Pod{"old": started("old", 1, "10.0.1.5"), "new": newPod("new", "n1")}
	w := NewWorld()
	w.Put(oneNode(t, "10.0.1.0/24"))
	w.Put(older)
	for _, p := range pods {
		w.Put(p.DeepCopy())
	}
	w.Allocate()
	expect := func(when string, want map[string]string) {
		t.Helper()
		for name, want := range want {
			port := rowsOf(t, w, nb.Unit("pod/default/"+name))[0].Model.(*nbdb.LogicalSwitchPort)
			if got := port.Options[names.IfaceIDVer]; got != want {
				t.Errorf("%s the port of %s is bound only by interfaces of UID %q, want %q", when, name, got, want)
			}
		}
	}
	want := map[string]string{"old": "", "new": string(pods["new"].UID)}
	expect("at first", want)
	w = restarted(w, pods)
	expect("after a restart", want)
	record := w.Facts().Cluster
	w = NewWorld() // of an emptied database
	w.Put(record)
	for _, p := range pods {
		w.Put(p.DeepCopy())
	}
	w.Allocate()
	expect("with an emptied database", want)
	w = restarted(w, pods)
	expect("after the next restart", want)
	run(w, pods)
	expect("once it runs", want)
	next := newPod("old", "n1") // as of a StatefulSet
	next.UID = "uid-next"
	w.Put(next)
	w.Allocate()
	expect("made again", map[string]string{"old": "uid-next"})
}
