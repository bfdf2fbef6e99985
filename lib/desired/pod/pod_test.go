package pod

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/nb/nbdb"
)

func TestParseAnnotation(t *testing.T) {
	single := Addresses{"0a:00:00:00:00:01", []netip.Prefix{netip.MustParsePrefix("192.168.2.3/24")}, []netip.Addr{netip.MustParseAddr("192.168.2.1")}}
	dual := Addresses{
		"0a:58:c0:a8:02:03",
		[]netip.Prefix{netip.MustParsePrefix("192.168.2.3/24"), netip.MustParsePrefix("fd01::3/64")},
		[]netip.Addr{netip.MustParseAddr("192.168.2.1"), netip.MustParseAddr("fd01::1")},
	}
	for _, tt := range []struct {
		name, in string
		want     Addresses
		err      string
	}{
		{name: "JSON", in: `{"ip_address": "192.168.2.3/24", "mac_address": "0a:00:00:00:00:01", "gateway_ip": "192.168.2.1"}`, want: single},
		{name: "Python", in: `{'gateway_ip': '192.168.2.1', 'ip_address': u'192.168.2.3/24', 'mac_address': '0a:00:00:00:00:01'}`, want: single},
		{name: "dual stack", in: dual.Annotation(), want: dual},
		{name: "empty", in: "", err: "is not a JSON object"},
		{name: "huge", in: `{"ip_address": "` + strings.Repeat(",", 200_000) + `"}`, err: "has 200018 bytes: it is not of this suite"},
		{name: "a list", in: "[]", err: "is not a JSON object"},
		{name: "nothing in it", in: "{}", err: `mac_address "" is not a unicast MAC`},
		{name: "multicast MAC", in: strings.Replace(single.Annotation(), "0a:", "0b:", 1), err: "unicast"},
		{name: "no prefix length", in: strings.Replace(single.Annotation(), "/24", "", 1), err: `ip_address "192.168.2.3" is not an address with a prefix length`},
		{name: "gateway elsewhere", in: strings.Replace(single.Annotation(), "192.168.2.1", "192.168.3.1", 1), err: "does not match"},
		{name: "one gateway for two", in: strings.Replace(dual.Annotation(), ",fd01::1", "", 1), err: "does not match"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseAnnotation(tt.in)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || got.Annotation() != tt.want.Annotation() {
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func FuzzParseAnnotation(f *testing.F) {
	f.Add(`{"ip_address": "192.168.2.3/24", "mac_address": "0a:00:00:00:00:01", "gateway_ip": "192.168.2.1"}`)
	f.Add(`{'ip_address': u'1.2.3.4/24,fd01::3/64'}`)
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAnnotation(s)
		if err != nil {
			return
		}
		if again, err := ParseAnnotation(a.Annotation()); err != nil || again.Annotation() != a.Annotation() {
			t.Errorf("%q: %s does not parse as itself: %v", s, a.Annotation(), err)
		}
	})
}

func TestPoolGoesRound(t *testing.T) {
	p := NewPool([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/29")})
	k := func(n string) Key { return Key{"default", n} }
	var got []string
	take := func(name string) []netip.Addr {
		ips, full := p.Take(k(name), nil)
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
	a := Addresses{MAC: "0a:58:0a:00:00:03", IPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.3/24"), netip.MustParsePrefix("fd00::3/64")}}
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
