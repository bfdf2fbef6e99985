package pod

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/pod/annotation"
	"ovn-k8s/lib/nb/nbdb"
)

func TestPoolGoesRound(t *testing.T) {
	p := NewPool([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/29")})
	k := func(n string) Key { return Key{"default", n} }
	var got []string
	take := func(name string) []netip.Addr {
		ips, full := p.Allocate(k(name), nil)
		if ips == nil {
			got = append(got, "full "+full.String())
			return nil
		}
		got = append(got, ips[0].String())
		return ips
	}
	a := take("a")
	p.Release(k("a"), a)
	b := take("b")
	take("c")
	take("d")
	take("e") // the first one again, after all others
	take("f")
	p.Release(k("x"), b) // not its own
	take("g")
	p.Release(k("b"), b)
	take("h")
	want := []string{"10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.3", "full 10.0.0.0/29", "full 10.0.0.0/29", "10.0.0.4"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadAssignmentIsTheInverseOfRows(t *testing.T) {
	p := New(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-0", UID: "u"}, Spec: corev1.PodSpec{NodeName: "n"}})
	a := annotation.Addresses{MAC: "0a:58:0a:00:00:03", IPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.3/24"), netip.MustParsePrefix("fd00::3/64")}}
	l, ok := ReadAssignment(Rows(p, a)[0].Model.(*nbdb.LogicalSwitchPort))
	if !ok || l.Key != p.Key || l.UID != "u" || l.MAC != a.MAC || len(l.IPs) != 2 || l.IPs[1] != a.IPs[1].Addr() {
		t.Errorf("%+v, %t", l, ok)
	}
	dynamic := "0a:00:00:00:00:07 10.0.0.9"
	python := &nbdb.LogicalSwitchPort{
		Name: "ns_web-1", Addresses: []string{"dynamic"}, DynamicAddresses: &dynamic,
		ExternalIDs: map[string]string{"namespace": "ns", "pod": "true"},
	}
	if l, ok := ReadAssignment(python); !ok || l.Name != "web-1" || l.MAC != "0a:00:00:00:00:07" || l.IPs[0].String() != "10.0.0.9" {
		t.Errorf("%+v, %t", l, ok)
	}
	python.ExternalIDs["pod"] = ""
	if _, ok := ReadAssignment(python); ok {
		t.Error("a port that is not a pod's has a lease")
	}
}

func TestAPodWithTooManyHostPortsHasNone(t *testing.T) {
	for n, want := range map[int]int{1000: 1000, 1001: 0} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.PodSpec{NodeName: "n1", Containers: make([]corev1.Container, 1)}}
		for i := range n {
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{HostPort: int32(1 + i), ContainerPort: 80})
		}
		if got := New(p); len(got.HostPorts) != want || len(got.Problems) != min(1, n-want) {
			t.Errorf("of %d it has %d, %v", n, len(got.HostPorts), got.Problems)
		}
	}
}
