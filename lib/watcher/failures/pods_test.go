package failures

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// network is a desired.World as a World.
type network struct{ *desired.World }

func (n network) Mismatch(u nb.Unit) *feature.Problem { return n.Pods.Mismatch(u) }

// An Event about a pod without an interface is written once, also where many more pods lose theirs later.
func TestDisconnectedPodsAreToldOnce(t *testing.T) {
	const node = "node1"
	subnet := netip.MustParsePrefix("10.0.0.0/16")
	c, err := topology.New(names.ClusterRouter, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")})
	if err == nil {
		c, err = c.WithNode(node, []netip.Prefix{subnet})
	}
	if err != nil {
		t.Fatal(err)
	}
	w := desired.NewWorld()
	w.Put(c.WithChassis(node, "chassis"))
	w.Put(facts.Registered{"chassis": true})
	p := NewPods(network{w}, logrus.NewEntry(logrus.New()), func(func() []nb.Unit) {}, func(nb.Unit, error) {})
	down := map[string]bool{}
	add := func(prefix string, count int) {
		ip := subnet.Addr()
		for i := range count {
			name := fmt.Sprintf("%s%03d", prefix, i)
			ip = ip.Next()
			w.Put(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: node},
				Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: ip.String()}}},
			})
			down["default_"+name] = true
		}
	}
	add("z", 50)
	p.Disconnected(down)
	first := maps.Clone(p.disconnected)
	add("a", eventBatch+10)
	for _, want := range []int{50 + eventBatch, 60 + eventBatch} {
		p.Disconnected(down)
		if len(first) != 50 || len(p.disconnected) != want {
			t.Errorf("%d pods at first, then %d, want %d", len(first), len(p.disconnected), want)
		}
		for u := range first {
			if !p.disconnected[u] {
				t.Fatalf("%s is forgotten, so that it would be told again", u)
			}
		}
	}
}

// wrong is a World whose pods have wrong addresses.
type wrong struct {
	World
	of map[nb.Unit]string
}

func (w wrong) Mismatch(u nb.Unit) *feature.Problem {
	if m := w.of[u]; m != "" {
		return &feature.Problem{Reason: "AddressMismatch", Message: m}
	}
	return nil
}

// A kubelet that reports other addresses of its pods in turns causes a few lines in the log, and then one a minute about
// each pod. The Events are not fewer.
func TestAddressesInTurnsHaveFewLines(t *testing.T) {
	logger, hook := test.NewNullLogger()
	logger.SetOutput(io.Discard)
	w := wrong{of: map[nb.Unit]string{}}
	events := 0
	p := NewPods(w, logrus.NewEntry(logger), func(func() []nb.Unit) {}, func(nb.Unit, error) { events++ })
	const u = nb.Unit("pod/default/a")
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for _, l := range hook.AllEntries() {
			got = append(got, fmt.Sprint(l.Level, " ", l.Data["unit"], " ", l.Message))
		}
		if hook.Reset(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	turn := func(messages ...string) {
		for i := range 100 {
			w.of[u] = messages[i%len(messages)]
			p.Mismatches([]nb.Unit{u})
		}
	}
	turn("has a", "has b")
	expect("warning pod/default/a has a", "warning pod/default/a has b")
	p.lines.sumUp(u)
	expect("warning pod/default/a has b (changes since the last line: 98)")
	turn("has c", "")
	p.lines.sumUp(u)
	expect("info pod/default/a recovered (changes since the last line: 100)")
	if events != 150 {
		t.Errorf("%d events", events)
	}
	p.lines.sumUp(u)
	all := []nb.Unit{"pod/default/x", "pod/default/y", "pod/default/z"}
	for i := range 100 {
		for _, u := range all {
			w.of[u] = fmt.Sprint("has ", i)
		}
		p.Mismatches(all)
	}
	if n := len(hook.AllEntries()); n != 2*linesAtOnce {
		t.Errorf("%d lines about three pods", n)
	}
}
