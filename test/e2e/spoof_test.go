package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/host"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// onlyFriends lets only trusted pods to the pod "victim", and the neighbours of the
// nodes.
const onlyFriends = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friends, namespace: default}
spec:
  podSelector: {matchLabels: {app: victim}}
  ingress:
  - from:
    - podSelector: {matchLabels: {app: friend}}
    - ipBlock: {cidr: 100.64.0.0/16}
    - ipBlock: {cidr: 'fd98::/64'}
    - ipBlock: {cidr: 198.19.0.0/16}
    - ipBlock: {cidr: 'fd00:198:19::/64'}
`

// A segment is the place of a host outside. Its frames for pods go to a MAC there.
type segment struct {
	bridge string
	mac    net.HardwareAddr
}

// A host outside may route packets for pods to a node or a gateway. But it has
// none of the addresses that policies trust: not a pod's, not that of a node's
// management port, not a router's; to a gateway, not the pod's own node's either.
// Without any policy it is the same.
func TestNobodyOutsideHasAnAddressInside(t *testing.T) {
	p := pods(t, map[string]string{"victim": "minion2", "friend": "minion1"})
	victim, friend := p["victim"], p["friend"]
	tap, err := probe.Listen(victim.Netns, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tap.Close)
	inside := [][]netip.Addr{friend.Addresses, cluster.Node("minion2").Management, addrs([]string{"100.64.0.1", "fd98::1"})}
	node := cluster.Node("minion1")
	at := segment{"br0", macOf(t, node, "eth0")}
	t.Run("no policy", func(t *testing.T) { at.claim(t, tap, victim, "<unjudged", inside) })
	t.Cleanup(func() { dropPolicies(t, "default") })
	if err := cluster.Kube.Apply(t.Context(), []byte(onlyFriends)); err != nil {
		t.Fatal(err)
	}
	try(t, world.Attempts(friend, victim, friend.Addresses))
	const noGateway = "no gateway"
	for i, mode := range append([]string{noGateway}, world.Modes()...) {
		t.Run(mode, func(t *testing.T) {
			at, claims := at, inside
			if mode != noGateway {
				addGateway(t, node, mode)
				claims = append(slices.Clone(inside), nodeAddrs("minion2"))
			}
			if mode == world.Dedicated {
				at = segment{"br1", routerMAC(t, "rtoe-GR_minion1")}
			}
			at.claim(t, tap, victim, fmt.Sprintf("<spoofed %d", i), claims)
		})
	}
}

// A node takes in packets of its pods to hostPorts at its management address,
// but from pods only, also if no helper runs since the boot.
func TestNobodyOutsideIsAPodToAHostPort(t *testing.T) {
	node := cluster.Node("minion1")
	start := sync.OnceFunc(func() {
		if err := cluster.StartHelper(context.Background(), node); err != nil {
			t.Error(err)
		}
	})
	if !ovnkube() { // without it there are no new pods
		if err := node.Kill(t.Context(), world.HelperPidfile); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(start)
	}
	p := pods(t, map[string]string{"victim": node.Name, "friend": node.Name}, func(pod *corev1.Pod) {
		if c := &pod.Spec.Containers[0]; pod.Name == "victim" {
			c.Ports = append(c.Ports, corev1.ContainerPort{HostPort: anyPort, ContainerPort: claimedPort, Protocol: corev1.ProtocolUDP})
		}
	})
	victim, friend := p["victim"], p["friend"]
	tap, err := probe.Listen(victim.Netns, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tap.Close)
	at := segment{"br0", macOf(t, node, "eth0")}
	if !ovnkube() {
		_, err = node.Script(t.Context(), host.LostRules())
		if err == nil {
			err = cluster.Do(t.Context(), node, "ovn-k8s-overlay", "minion-init", "--cluster-ip-subnet="+world.ClusterSubnets, "--minion-switch-subnet="+node.Subnets, "--node-name="+node.Name)
		}
		if err != nil {
			t.Fatal(err)
		}
		at.claim(t, tap, victim, "<without a helper", [][]netip.Addr{friend.Addresses})
		start()
	}
	for _, a := range node.Management {
		text := "from " + friend.Name + " to " + a.String()
		eventually(t, text, func() bool {
			sendUDP(t, friend, probe.Address(a, anyPort), text)
			return len(tap.Saw([]byte(text))) > 0
		})
	}
	at.claim(t, tap, victim, "<to a hostPort", [][]netip.Addr{friend.Addresses})
}

// sendUDP sends one datagram.
func sendUDP(t *testing.T, from world.Endpoint, to netip.AddrPort, text string) {
	t.Helper()
	err := probe.In(from.Netns, func() error {
		conn, err := net.Dial("udp", to.String())
		if err != nil {
			return err
		}
		_, err = conn.Write([]byte(text))
		return errors.Join(err, conn.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// claimedPort is whence and where to claim sends.
const claimedPort = 4000

// claim sends from addresses that are somebody else's, and then from one that may
// come in by the same way.
func (s segment) claim(t *testing.T, tap *probe.Tap, victim world.Endpoint, mark string, claims [][]netip.Addr) {
	t.Helper()
	consistent(t)
	if _, err := cluster.Central.NBCtl("--wait=hv", "sync"); err != nil { // no flow is missing
		t.Fatal(err)
	}
	to := neighbourOf(t, victim)
	self := net.HardwareAddr{2, 0, 0, 0, 0, 0x77}
	from := func(marker string, source []netip.Addr) (frames [][]byte) {
		w := wire{t, []byte(marker)}
		for i, a := range source {
			frames = append(frames, w.udp(self, a.AsSlice(), claimedPort, s.mac, to.ips[i], claimedPort))
		}
		return frames
	}
	send := func(frames [][]byte) {
		t.Helper()
		if err := probe.Send(cluster.Fabric.Netns(), s.bridge, frames...); err != nil {
			t.Fatal(err)
		}
	}
	for i, source := range claims {
		marker := fmt.Sprintf("%s claim %d>", mark, i)
		send(from(marker, source))
		// Later ones do arrive, so these would have by now.
		for f, a := range addrs([]string{"198.19.0.99", "fd00:198:19::99"}) {
			end := fmt.Sprintf("%s end %d.%d>", mark, i, f)
			frame := wire{t, []byte(end)}.udp(self, a.AsSlice(), claimedPort, s.mac, to.ips[f], claimedPort)
			eventually(t, end+" arrives", func() bool {
				send([][]byte{frame})
				return len(tap.Saw([]byte(end))) > 0
			})
		}
		if got := tap.Saw([]byte(marker)); len(got) > 0 {
			t.Errorf("%d frames came in with an address of %v", len(got), source)
		}
	}
}

func macOf(t *testing.T, n *world.Node, iface string) net.HardwareAddr {
	t.Helper()
	return parseMAC(t, sh(t, n, "cat /sys/class/net/"+iface+"/address"))
}

// routerMAC is the MAC of a router's port.
func routerMAC(t *testing.T, port string) net.HardwareAddr {
	t.Helper()
	text, err := cluster.Central.NBCtl("get", "Logical_Router_Port", port, "mac")
	if err != nil {
		t.Fatal(err)
	}
	return parseMAC(t, strings.Trim(strings.TrimSpace(text), `"`))
}

func parseMAC(t *testing.T, text string) net.HardwareAddr {
	t.Helper()
	mac, err := net.ParseMAC(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return mac
}
