// Package balance tests with packets how Open vSwitch selects among the endpoints of the rows of lib/desired/service.
// There is no cluster: one host, a router, a switch, and a client with many addresses.
package balance

import (
	"context"
	"fmt"
	"net/netip"

	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/require"
)

const (
	clients   = 100 // of each family
	endpoints = 4
	port      = 80
)

// A lab is a host with OVN: pods "client" and "0" to "3" on the switch sw.
type lab struct {
	*testing.T
	ctx     context.Context
	host    *host.Host
	central *ovntest.Central
}

func newLab(t *testing.T) *lab {
	t.Helper()
	require.Nothing(t, require.Node, host.Missing())
	ctx, cancel := context.WithTimeout(t.Context(), limit.Of(3*time.Minute))
	t.Cleanup(cancel)
	fabric, err := host.NewFabric()
	must(t, err)
	t.Cleanup(fabric.Close)
	h, err := host.New(host.Options{Name: "alpha", Fabric: fabric})
	must(t, err)
	t.Cleanup(h.Close)
	must(t, h.StartOVS(ctx))
	central, err := h.StartCentral("")
	must(t, err)
	t.Cleanup(central.Close)
	must(t, h.StartController(ctx, central.SBTCP))
	l := &lab{t, ctx, h, central}
	l.nbctl("lr-add", "lr", "--", "lrp-add", "lr", "rtos", "0a:00:00:00:00:fe", "10.1.255.254/16", "fd01::fffe/64",
		"--", "ls-add", "sw", "--", "lsp-add", "sw", "stor", "--", "lsp-set-type", "stor", "router", "--", "lsp-set-addresses", "stor", "router",
		"--", "lsp-set-options", "stor", "router-port=rtos",
		"--", "create", "Chassis_Template_Var", "chassis=alpha", `variables={ovn_k8s_address4_0="192.0.2.1",ovn_k8s_address6_0="2001:db8::1",ovn_k8s_address4_1="`+loadbalancer.NoAddress(0).String()+`",ovn_k8s_address6_1="`+loadbalancer.NoAddress(1).String()+`"}`)
	l.pod("client", 200)
	for i := range clients {
		l.sh(fmt.Sprintf("ip -n client addr add 10.1.1.%[1]d/16 dev eth0; ip -n client addr add fd01::1:%[1]x/64 dev eth0 nodad", 1+i))
	}
	for i := range endpoints {
		name := fmt.Sprint(i)
		l.pod(name, 10+i)
		s, err := probe.Serve(h.Path("/run/netns/"+name), name, port)
		must(t, err)
		t.Cleanup(s.Close)
	}
	return l
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (l *lab) nbctl(args ...string) string {
	l.Helper()
	out, err := l.central.NBCtl(args...)
	must(l.T, err)
	return out
}

func (l *lab) sh(script string) string {
	l.Helper()
	out, err := l.host.Script(l.ctx, "set -e\n"+script)
	must(l.T, err)
	return out
}

// pod creates a pod with address number n of both families.
func (l *lab) pod(name string, n int) {
	l.Helper()
	l.nbctl("lsp-add", "sw", name, "--", "lsp-set-addresses", name, fmt.Sprintf("0a:00:00:00:00:%02x 10.1.0.%d fd01::%x", n, n, n), "unknown")
	l.sh(fmt.Sprintf(`
		ip netns add %[1]s
		ip link add veth%[2]d type veth peer name eth0 netns %[1]s
		ip -n %[1]s link set eth0 address 0a:00:00:00:00:%02[2]x
		ip -n %[1]s addr add 10.1.0.%[2]d/16 dev eth0
		ip -n %[1]s addr add fd01::%[2]x/64 dev eth0 nodad
		ip -n %[1]s link set lo up
		ip -n %[1]s link set eth0 up
		ip -n %[1]s route add default via 10.1.255.254
		ip -n %[1]s route add default via fd01::fffe
		ip netns exec %[1]s ethtool -K eth0 tx off >/dev/null
		ip link set veth%[2]d up
		ovs-vsctl add-port br-int veth%[2]d -- set Interface veth%[2]d external_ids:iface-id=%[1]s`, name, n))
}

// program puts the load balancers of a Service with affinity and some endpoints on the switch.
func (l *lab) program(some ...int) {
	l.Helper()
	l.nbctl("clear", "Logical_Switch", "sw", "load_balancer")
	for _, row := range rows(some) {
		lb := row.Model.(*nbdb.LoadBalancer)
		args := []string{"--id=@lb", "create", "Load_Balancer", "name=" + row.ID, "protocol=" + *lb.Protocol}
		for vip, to := range lb.Vips {
			args = append(args, fmt.Sprintf("vips:%q=%q", vip, to))
		}
		for k, v := range lb.Options {
			args = append(args, fmt.Sprintf("options:%s=%q", k, v))
		}
		for _, f := range lb.SelectionFields {
			args = append(args, "selection_fields="+string(f))
		}
		l.nbctl(append(args, "--", "add", "Logical_Switch", "sw", "load_balancer", "@lb")...)
	}
	must(l.T, l.central.Sync())
	l.forget()
}

// forget empties Open vSwitch's flow cache and connection tracking table.
func (l *lab) forget() {
	l.Helper()
	l.sh("ovs-appctl revalidator/purge; ovs-appctl dpctl/flush-conntrack")
}

// rows returns the rows of a dual-stack Service with affinity and a NodePort.
func rows(some []int) []nb.Row {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: "172.16.1.10", ClusterIPs: []string{"172.16.1.10", "fd02::10"}, SessionAffinity: corev1.ServiceAffinityClientIP,
			Ports: []corev1.ServicePort{
				{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: port, NodePort: 30080}, {Name: "udp", Protocol: corev1.ProtocolUDP, Port: port, NodePort: 30080},
			},
		},
	}
	var all []service.Slice
	for _, kind := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: string(kind), Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: kind,
		}
		for _, p := range s.Spec.Ports {
			number := int32(port)
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &number})
		}
		for _, i := range some {
			a := fmt.Sprintf("10.1.0.%d", 10+i)
			if kind == discoveryv1.AddressTypeIPv6 {
				a = fmt.Sprintf("fd01::%x", 10+i)
			}
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
		}
		all = append(all, service.NewSlice(slice, strings.Clone))
	}
	r := service.Resolve(service.New(s), all)
	return loadbalancer.New(&r, loadbalancer.Inputs{Addresses: [2]int{2, 2}, Selection: loadbalancer.Selection{Userspace: true}}).Rows()
}

// A question is one request of a client.
type question struct {
	network  string
	from     netip.Addr
	frontend netip.AddrPort
}

func questions() (out []question) {
	for i := range clients {
		for _, network := range []string{"tcp", "udp"} {
			four, six := netip.MustParseAddr(fmt.Sprintf("10.1.1.%d", 1+i)), netip.MustParseAddr(fmt.Sprintf("fd01::1:%x", 1+i))
			for _, at := range []string{"172.16.1.10:80", "192.0.2.1:30080"} {
				out = append(out, question{network, four, netip.MustParseAddrPort(at)})
			}
			for _, at := range []string{"[fd02::10]:80", "[2001:db8::1]:30080"} {
				out = append(out, question{network, six, netip.MustParseAddrPort(at)})
			}
		}
	}
	return out
}

// retransmitted returns the number of SYNs retransmitted by the client's kernel.
func (l *lab) retransmitted() int {
	l.Helper()
	out := l.sh(`ip netns exec client awk '/^TcpExt:/ {if (!n++) for (i = 1; i <= NF; i++) if ($i == "TCPSynRetrans") c = i; v = $c} END {print v}' /proc/net/netstat`)
	n, err := strconv.Atoi(strings.TrimSpace(out))
	must(l.T, err)
	return n
}

// askAll sends each request once: one datagram, or one SYN. It returns the name of the endpoint for each.
func (l *lab) askAll() map[question]string {
	l.Helper()
	before, out, lost := l.retransmitted(), map[question]string{}, 0
	for _, q := range questions() {
		ctx, cancel := context.WithTimeout(l.ctx, limit.Of(5*time.Second))
		text, err := probe.Probe{Netns: l.host.Path("/run/netns/client"), Network: q.network, Address: q.frontend, Source: q.from}.Once(ctx)
		cancel()
		if err != nil {
			if lost++; lost > 5 {
				l.Fatalf("no answer at the first try: %v", err)
			}
			l.Errorf("no answer at the first try: %v: %v", q, err)
			continue
		}
		name, from, err := probe.Answer(text)
		must(l.T, err)
		if from.Addr() != q.from {
			l.Errorf("%v: the endpoint saw %v", q, from)
		}
		out[q] = name
	}
	// On a busy machine an answer may take longer than the retransmission timeout of a second.
	if again := l.retransmitted() - before; again > len(out)/100 {
		l.Errorf("%d SYNs were sent again", again)
	}
	return out
}

// P12: with ClientIP affinity the first packet of each client gets an answer, at cluster IPs and at NodePorts, and the
// client keeps its endpoint: always after Open vSwitch has forgotten the client, and mostly when endpoints come and go.
func TestAffinityAtTheFirstTry(t *testing.T) {
	l := newLab(t)
	l.program(0, 1, 2)
	first := l.askAll()
	shares := map[string]int{}
	for q, name := range first {
		if q.from.Is4() {
			shares[name]++
		}
	}
	t.Logf("IPv4 clients by endpoint: %v", shares)
	if len(shares) != 3 {
		t.Errorf("IPv4 clients are led to %v", shares)
	}
	l.forget()
	if moved := movedTo(first, l.askAll()); len(moved) > 0 {
		t.Errorf("clients that Open vSwitch has forgotten moved to %v", moved)
	}
	l.program(0, 1, 2, 3)
	four := l.askAll()
	t.Logf("with a fourth endpoint, IPv4 clients moved to %v", movedTo(first, four))
	l.program(0, 1, 2)
	if moved := movedTo(first, l.askAll()); len(moved) > 0 {
		t.Errorf("clients do not come back: %v", moved)
	}
	// Findings, section 5: a host with fewer addresses than others.
	if out := l.sh("grep -h 'bad IP address\\||ERR|' /var/log/ovn/ovn-controller.log /var/log/openvswitch/ovn-controller.log 2>/dev/null || true"); out != "" {
		t.Errorf("ovn-controller complains: %.500s", out)
	}
}

// movedTo counts the IPv4 requests with another answer than before, by the new answer.
func movedTo(before, now map[question]string) map[string]int {
	out := map[string]int{}
	for q, name := range now {
		if q.from.Is4() && before[q] != name {
			out[name]++
		}
	}
	return out
}
