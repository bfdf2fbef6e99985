package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/host"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// The hostPorts of these tests: one at all addresses of the node, and one shared by
// several pods with different addresses or protocols.
const anyPort, sharedPort = 54321, 54323

// hostPorts adds hostPorts to the pods of these tests, all on minion1, by name: at
// all addresses, at the loopback address, at the node's own by TCP, and by UDP.
func hostPorts(pod *corev1.Pod) {
	add := func(ip string, port int32, protocol corev1.Protocol) {
		c := &pod.Spec.Containers[0]
		c.Ports = append(c.Ports, corev1.ContainerPort{HostIP: ip, HostPort: port, ContainerPort: kubelet.DefaultPort, Protocol: protocol})
	}
	switch pod.Name {
	case "all":
		for _, network := range world.Networks() {
			add("", anyPort, world.Protocol(network))
		}
	case "loopback":
		add("127.0.0.1", sharedPort, corev1.ProtocolTCP)
		add("::1", sharedPort, corev1.ProtocolTCP)
	case "tcp", "udp":
		for _, a := range nodeAddrs("minion1") {
			add(a.String(), sharedPort, world.Protocol(pod.Name))
		}
	}
}

// hostPortWays returns the Attempts from an endpoint to all hostPorts at addresses of
// minion1 except the loopback address.
func hostPortWays(p map[string]world.Endpoint, from world.Endpoint, at, seen []netip.Addr) (attempts []world.Attempt) {
	for _, a := range at {
		type to struct {
			pod, network string
			port         int
		}
		ports := []to{{"tcp", "tcp", sharedPort}, {"udp", "udp", sharedPort}}
		for _, network := range world.Networks() {
			ports = append(ports, to{"all", network, anyPort})
		}
		for _, to := range ports {
			if to.port == sharedPort && !slices.Contains(nodeAddrs("minion1"), a) {
				continue // the gateway's, or the management port's
			}
			attempts = append(attempts, world.Attempt{
				Row: from.Name, Column: to.pod + "'s hostPort", From: from, Network: to.network,
				Address: probe.Address(a, to.port), Answers: []world.Endpoint{p[to.pod]}, Seen: seen,
			})
		}
	}
	return attempts
}

// loopbackWays returns the Attempts of minion1 to itself: as "curl --interface NODE",
// and for IPv4 also without. The kernel does not forward packets with the source
// ::1.
func loopbackWays(p map[string]world.Endpoint) (attempts []world.Attempt) {
	self := hosts()[1]
	for f, a := range []string{"127.0.0.1", "::1"} {
		for i, pod := range []string{"all", "loopback"} {
			attempt := world.Attempt{
				Row: "minion1", Column: a, From: self, Network: "tcp", Source: nodeAddrs("minion1")[f],
				Address: probe.Address(netip.MustParseAddr(a), []int{anyPort, sharedPort}[i]), Answers: []world.Endpoint{p[pod]}, Seen: self.Addresses,
			}
			attempts = append(attempts, attempt)
			if attempt.Source = (netip.Addr{}); f == 0 {
				attempts = append(attempts, attempt)
			}
		}
	}
	return attempts
}

// TestHostPorts connects to hostPorts from all kinds of clients, without a gateway
// (pods cannot answer the outside then) and with a gateway of each mode on the same
// host. Clients keep their addresses.
func TestHostPorts(t *testing.T) {
	p := pods(t, map[string]string{
		"all": "minion1", "loopback": "minion1", "tcp": "minion1", "udp": "minion1", "near": "minion1", "far": "minion2",
	}, hostPorts)
	own, around := nodeAddrs("minion1"), surround(t)
	inside := func(t *testing.T, more ...[]world.Attempt) {
		t.Helper()
		attempts := slices.Concat(
			hostPortWays(p, p["near"], own, p["near"].Addresses), hostPortWays(p, p["far"], own, p["far"].Addresses),
			hostPortWays(p, p["all"], own, slices.Concat(p["all"].Addresses, own)),
			hostPortWays(p, hosts()[1], own, hosts()[1].Addresses), hostPortWays(p, hosts()[2], own, nodeAddrs("minion2")),
			loopbackWays(p),
			hostPortWays(p, hosts()[2], hosts()[1].Addresses, hosts()[2].Addresses), hostPortWays(p, p["near"], hosts()[1].Addresses, p["near"].Addresses),
		)
		try(t, append(attempts, slices.Concat(more...)...))
	}
	inside(t)
	for _, port := range []int{anyPort + 1, sharedPort} { // 127.0.0.1 belongs to each node
		for _, from := range []world.Endpoint{p["far"], around.Outside} {
			refused(t, from, netip.AddrPortFrom(nodeAddrs("minion2")[0], uint16(port)))
		}
	}
	consistent(t)
	shown := sh(t, cluster.Master(), "ovs-appctl -t "+watcher()+" hostport/show default/all")
	if want := fmt.Sprintf("%v/TCP", probe.Address(own[0], anyPort)); !strings.Contains(shown, want) || !strings.Contains(shown, "all/hostport/tcp@default") {
		t.Errorf("hostport/show lacks %s:\n%s", want, shown)
	}
	for _, mode := range world.Modes() {
		t.Run(mode, func(t *testing.T) {
			seen := addGateway(t, cluster.Node("minion1"), mode)
			more := hostPortWays(p, around.Outside, own, around.Outside.Addresses)
			if mode == world.Dedicated { // has its own addresses
				join := []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")}
				more = slices.Concat(more, hostPortWays(p, around.Outside, seen, firstGateway(join)), hostPortWays(p, p["far"], seen, p["far"].Addresses))
			}
			inside(t, more)
		})
	}
}

// Policies match clients of hostPorts by their own addresses, and pods by their
// labels.
func TestPoliciesOfHostPorts(t *testing.T) {
	p := pods(t, map[string]string{"all": "minion1", "near": "minion1", "far": "minion2"}, hostPorts)
	outside, near := surround(t).Outside, slices.Concat(nodeAddrs("minion1"), cluster.Node("minion1").Management)
	addGateway(t, cluster.Node("minion2"), world.Local) // or pods could not answer the outside
	t.Cleanup(func() { dropPolicies(t, "default") })
	for _, allowed := range []world.Endpoint{outside, p["far"], p["near"]} {
		if err := cluster.Kube.Apply(t.Context(), []byte(fromBlocks(allowed.Addresses))); err != nil {
			t.Fatal(err)
		}
		for _, from := range []world.Endpoint{outside, p["far"], p["near"]} {
			at := near
			if from.Name == outside.Name { // it cannot reach the management port
				at = nodeAddrs("minion1")
			}
			for _, a := range at {
				q := packet{text: from.Name, probe: probe.Probe{Netns: from.Netns, Network: "tcp", Address: probe.Address(a, anyPort)}}
				if err := q.becomes(from.Name == allowed.Name); err != nil {
					t.Errorf("%s to %v, policy for %s: %v", from.Name, a, allowed.Name, err)
				}
			}
		}
	}
}

// Servers on the node's loopback address are not reachable through the management
// port, although route_localnet is set there.
func TestHostPortsDoNotOpenTheLoopbackAddress(t *testing.T) {
	p := pods(t, map[string]string{"all": "minion1", "thief": "minion1"}, hostPorts)
	n := cluster.Node("minion1")
	try(t, loopbackWays(p)[:1])
	server, err := probe.Serve(n.Netns(), "the node's own", 7777)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	mac := sh(t, n, "cat /sys/class/net/k8s-minion1/address")
	inPod(t, p["thief"], fmt.Sprintf(`sysctl -qw net.ipv4.conf.eth0.route_localnet=1
		ip route del local 127.0.0.0/8 dev lo table local; ip addr del 127.0.0.1/8 dev lo
		ip route add 127.0.0.1/32 via %s dev eth0 onlink; ip neigh replace %s lladdr %s dev eth0`, n.Management[0], n.Management[0], mac))
	q := probe.Probe{Netns: p["thief"].Netns, Network: "tcp", Address: netip.MustParseAddrPort("127.0.0.1:7777"), Source: p["thief"].Addresses[0]}
	ctx, cancel := context.WithTimeout(t.Context(), limit.Of(10*time.Second))
	defer cancel()
	if err := q.Silence(ctx, 2); err != nil {
		t.Error(err)
	}
	if sh(t, n, "cat /proc/sys/net/ipv4/conf/k8s-minion1/route_localnet") != "1" {
		t.Error("the attack would have failed anyway")
	}
}

// A client that keeps its UDP socket reaches the pod that has the hostPort now, and
// the host deletes conntrack entries of a deleted pod.
func TestHostPortsOfPodsThatGo(t *testing.T) {
	outside, to := surround(t).Outside, probe.Address(nodeAddrs("minion1")[0], anyPort)
	addGateway(t, cluster.Node("minion2"), world.Local)
	var conn net.Conn
	err := probe.In(outside.Netns, func() (err error) {
		conn, err = net.Dial("udp", to.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	asks := func() string {
		_ = conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
		_, _ = conn.Write([]byte("hello\n")) // a refusal is reported by the next call
		answer := make([]byte, 100)
		n, err := conn.Read(answer)
		if err != nil {
			return ""
		}
		name, _, _ := strings.Cut(string(answer[:n]), " ")
		return name
	}
	if got := asks(); got != "" {
		t.Errorf("%s answers already", got)
	}
	seen := map[string]bool{}
	for range 2 {
		p := pods(t, map[string]string{"all": "minion1"}, hostPorts)
		seen[p["all"].Addresses[0].String()] = true
		eventually(t, "the pod answers the client that had asked before", func() bool { return asks() == "default/all" })
		remove(t, map[string]string{"all": ""})
		eventually(t, "nobody answers any more", func() bool { return asks() == "" })
	}
	if len(seen) != 2 {
		t.Errorf("it was no other pod: %v", seen)
	}
	n := cluster.Node("minion1")
	var left string
	eventually(t, "nothing of the hostPort is left", func() bool {
		left = sh(t, n, fmt.Sprintf(`{ `+host.RulesScript+`; } | grep -e HOSTPORTS -e svc-translate-hostports || :; cat /proc/sys/net/ipv4/conf/k8s-minion1/route_localnet
			conntrack -L -p udp 2>/dev/null | grep "dport=%d .* src=10.128.1" || :`, anyPort))
		return left == "0"
	}, &left)
}
