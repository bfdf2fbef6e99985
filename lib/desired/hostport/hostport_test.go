package hostport

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// web is a dual-stack pod on node1 with ports "[HOSTIP,]PORT:TARGET/PROTOCOL".
func web(t *testing.T, ports ...string) Pod {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{}}},
	}
	for _, text := range ports {
		port := corev1.ContainerPort{}
		ip, rest, found := strings.Cut(text, ",")
		if port.HostIP = ip; !found {
			port.HostIP, rest = "", text
		}
		if _, err := fmt.Sscanf(strings.ReplaceAll(rest, "/", " "), "%d:%d %s", &port.HostPort, &port.ContainerPort, &port.Protocol); err != nil {
			t.Fatal(err)
		}
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, port)
	}
	return Pod{Pod: pod.New(p), Addrs: addrs("10.0.1.3", "fd00:0:0:1::3")}
}

func node(change ...func(*Node)) Node {
	n := Node{
		Addrs: addrs("192.0.2.1", "198.51.100.1", "2001:db8::1"), Returns: addrs("10.0.1.2", "fd00:0:0:1::2"),
		Inside: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("fd00::/48"), netip.MustParsePrefix("192.0.2.1/32")},
		Holder: func(netip.Addr, pod.HostPort) string { return "" },
	}
	for _, c := range change {
		c(&n)
	}
	return n
}

// text is rows as lines, in their order.
func text(rows []nb.Row) (out []string) {
	for _, r := range rows {
		switch m := r.Model.(type) {
		case *nbdb.LoadBalancer:
			var vips []string
			for _, k := range slices.Sorted(maps.Keys(m.Vips)) {
				vips = append(vips, k+"="+m.Vips[k])
			}
			out = append(out, fmt.Sprintf("%s in %s: %s %v", strings.TrimPrefix(r.ID, "pod/default/web/hostport/"), r.In[0].ID, strings.Join(vips, " "), m.Options))
		case *nbdb.LogicalRouterPolicy:
			out = append(out, fmt.Sprintf("%s %d %s %v: %s", strings.TrimPrefix(r.ID, "pod/default/web/hostport/"), m.Priority, m.Action, m.Nexthops, m.Match))
		}
	}
	return out
}

func TestRows(t *testing.T) {
	const (
		return4 = "return4 3001 reroute [10.0.1.2]: ip4.src == 10.0.1.3 && tcp.src == 8080"
		inside4 = "inside4 3002 allow []: ip4.src == 10.0.1.3 && tcp.src == 8080 && ip4.dst == {10.0.0.0/16, 192.0.2.1}"
		return6 = "return6 3001 reroute [fd00:0:0:1::2]: ip6.src == fd00:0:0:1::3 && tcp.src == 8080"
		inside6 = "inside6 3002 allow []: ip6.src == fd00:0:0:1::3 && tcp.src == 8080 && ip6.dst == {fd00::/48}"
	)
	gateway := func(n *Node) { n.Gateway, n.Routers = addrs("198.51.100.1"), []string{"GR_n1"} }
	shared := func(n *Node) {
		n.Gateway, n.Shared, n.Returns = addrs("192.0.2.1"), []string{"GR_n1"}, addrs("100.64.0.2")
	}
	both := func(n *Node) { shared(n); n.Gateway, n.Routers = addrs("192.0.2.1", "198.51.100.1"), []string{"GR_b"} }
	for _, tt := range []struct {
		name  string
		ports []string
		node  Node
		want  []string
	}{
		{"every address", []string{"80:8080/TCP"}, node(), []string{
			"tcp in ovn-k8s-switches: 192.0.2.1:80=10.0.1.3:8080 198.51.100.1:80=10.0.1.3:8080 [2001:db8::1]:80=[fd00:0:0:1::3]:8080 map[]", return4, inside4, return6, inside6}},
		{"one family", []string{"0.0.0.0,80:8080/TCP"}, node(), []string{
			"tcp in ovn-k8s-switches: 192.0.2.1:80=10.0.1.3:8080 198.51.100.1:80=10.0.1.3:8080 map[]", return4, inside4}},
		{"the other family", []string{"::,80:8080/TCP"}, node(), []string{
			"tcp in ovn-k8s-switches: [2001:db8::1]:80=[fd00:0:0:1::3]:8080 map[]", return6, inside6}},
		{"one address", []string{"192.0.2.1,80:8080/TCP"}, node(), []string{"tcp in ovn-k8s-switches: 192.0.2.1:80=10.0.1.3:8080 map[]", return4, inside4}},
		{"an address that only the kernel knows", []string{"203.0.113.1,80:8080/TCP"}, node(), []string{return4, inside4}},
		{"loopback only", []string{"127.0.0.1,80:8080/TCP", "::1,80:8080/TCP"}, node(), nil},
		{"protocols", []string{"192.0.2.1,53:53/TCP", "192.0.2.1,53:5353/UDP", "192.0.2.1,54:54/UDP"}, node(), []string{
			"tcp in ovn-k8s-switches: 192.0.2.1:53=10.0.1.3:53 map[]",
			"udp in ovn-k8s-switches: 192.0.2.1:53=10.0.1.3:5353 192.0.2.1:54=10.0.1.3:54 map[ct_flush:true]",
			"return4 3001 reroute [10.0.1.2]: ip4.src == 10.0.1.3 && (tcp.src == 53 || udp.src == {54, 5353})",
			"inside4 3002 allow []: ip4.src == 10.0.1.3 && (tcp.src == 53 || udp.src == {54, 5353}) && ip4.dst == {10.0.0.0/16, 192.0.2.1}"}},
		{"a gateway with a NIC of its own", []string{"0.0.0.0,80:8080/TCP"}, node(gateway), []string{
			"tcp in ovn-k8s-switches: 192.0.2.1:80=10.0.1.3:8080 198.51.100.1:80=10.0.1.3:8080 map[]",
			"tcp/gateway in GR_n1: 198.51.100.1:80=10.0.1.3:8080 map[]", return4, inside4}},
		{"a gateway that shares the NIC", []string{"0.0.0.0,80:8080/TCP"}, node(shared), []string{
			"tcp in ovn-k8s-switches: 192.0.2.1:80=10.0.1.3:8080 198.51.100.1:80=10.0.1.3:8080 map[]",
			"tcp/gateway in GR_n1: 192.0.2.1:80=10.0.1.3:8080 map[skip_snat:true]",
			strings.Replace(return4, "10.0.1.2", "100.64.0.2", 1), inside4}},
		{"both", []string{"0.0.0.0,80:8080/TCP"}, node(both), []string{
			"tcp in ovn-k8s-switches: 192.0.2.1:80=10.0.1.3:8080 198.51.100.1:80=10.0.1.3:8080 map[]",
			"tcp/gateway in GR_n1: 192.0.2.1:80=10.0.1.3:8080 198.51.100.1:80=10.0.1.3:8080 map[skip_snat:true]",
			"tcp/gateway/own in GR_b: 192.0.2.1:80=10.0.1.3:8080 198.51.100.1:80=10.0.1.3:8080 map[]",
			strings.Replace(return4, "10.0.1.2", "100.64.0.2", 1), inside4}},
		{"others have some", []string{"0.0.0.0,80:8080/TCP"}, node(func(n *Node) {
			n.Holder = func(a netip.Addr, _ pod.HostPort) string {
				return map[string]string{"192.0.2.1": "pod default/old"}[a.String()]
			}
		}), []string{"tcp in ovn-k8s-switches: 198.51.100.1:80=10.0.1.3:8080 map[]", return4, inside4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, text(tt.node.Rows(web(t, tt.ports...)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Packets from pods of the node to hostPorts at the management port's address are accepted at
// the management port, there and back, if the hostPort exists and has no other owner.
func TestSentOn(t *testing.T) {
	local := func(n *Node) {
		n.Switch, n.Management, n.Subnets = "node1", addrs("10.0.1.2", "fd00:0:0:1::2"), []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24"), netip.MustParsePrefix("fd00:0:0:1::/64")}
	}
	taken := func(n *Node) {
		n.Holder = func(_ netip.Addr, h pod.HostPort) string { return map[uint16]string{80: "pod default/old"}[h.Port] }
	}
	const (
		port = ` == "k8s-node1" && `
		both = "(ip4.src == 10.0.1.0/24 && ip4.src != 10.0.1.2 && ip4.dst == 10.0.1.3 && %s) || (ip6.src == fd00:0:0:1::/64 && ip6.src != fd00:0:0:1::2 && ip6.dst == fd00:0:0:1::3 && %[1]s)"
	)
	for _, tt := range []struct {
		name  string
		ports []string
		node  Node
		want  string
	}{
		{"every address", []string{"80:8080/TCP"}, node(local), port + "(" + fmt.Sprintf(both, "tcp.dst == 8080") + ")"},
		{"one family", []string{"0.0.0.0,80:8080/TCP"}, node(local), port + "ip4.src == 10.0.1.0/24 && ip4.src != 10.0.1.2 && ip4.dst == 10.0.1.3 && tcp.dst == 8080"},
		{"the address itself", []string{"10.0.1.2,80:8080/TCP", "192.0.2.1,81:81/TCP"}, node(local), port + "ip4.src == 10.0.1.0/24 && ip4.src != 10.0.1.2 && ip4.dst == 10.0.1.3 && tcp.dst == 8080"},
		{"several", []string{"80:8080/TCP", "81:81/TCP", "53:53/UDP"}, node(local), port + "(" + fmt.Sprintf(both, "(tcp.dst == {81, 8080} || udp.dst == 53)") + ")"},
		{"another has one", []string{"80:8080/TCP", "81:81/TCP"}, node(local, taken), port + "(" + fmt.Sprintf(both, "tcp.dst == 81") + ")"},
		{"another address", []string{"192.0.2.1,80:8080/TCP", "127.0.0.1,81:81/TCP"}, node(local), ""},
		{"a node that the topology does not know", []string{"80:8080/TCP"}, node(), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := map[nbdb.ACLDirection]string{}
			for _, r := range tt.node.Rows(web(t, tt.ports...)) {
				if m, ok := r.Model.(*nbdb.ACL); ok {
					got[m.Direction] += m.Match
					if m.Action != nbdb.ACLActionAllowStateless || r.In[0].ID != "node1" {
						t.Errorf("%+v in %v", m, r.In)
					}
				}
			}
			want := map[nbdb.ACLDirection]string{}
			if tt.want != "" {
				want[nbdb.ACLDirectionFromLport], want[nbdb.ACLDirectionToLport] = "inport"+tt.want, "outport"+tt.want
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	p := web(t, "80:8080/TCP", "lots,81:8080/TCP", "192.0.2.1,82:8080/TCP")
	n := node(func(n *Node) {
		n.Holder = func(_ netip.Addr, h pod.HostPort) string {
			return map[uint16]string{80: "pod default/old", 82: "service default/dns"}[h.Port]
		}
	})
	if diff := cmp.Diff([]string{
		`hostIP "lots" of hostPort 81/TCP of pod default/web is no IP address: give one of its node's, or none`,
		"hostPort 80/TCP of pod default/web is in use by pod default/old on node node1: choose another one",
		"hostPort 192.0.2.1:82/TCP of pod default/web is in use by service default/dns on node node1: choose another one",
	}, n.Problems(p, 9)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// equalPlaces compares all fields but Holder, which no place has.
func TestEveryFieldOfAPlaceIsCompared(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Node]()) {
		if f.Name == "Holder" {
			continue
		}
		var n Node
		v := reflect.ValueOf(&n).Elem().FieldByIndex(f.Index)
		switch v.Kind() {
		case reflect.String:
			v.SetString("x")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		default:
			t.Fatalf("no value for %s", f.Name)
		}
		if equalPlaces(n, Node{}) || !equalPlaces(n, n) {
			t.Errorf("%s is not compared", f.Name)
		}
	}
}
