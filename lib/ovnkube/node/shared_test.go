package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/host"
)

// newShared is a complete node with a shared NIC.
func newShared(t *testing.T, name string) *world {
	t.Helper()
	w := newNode(t, name, "10.128.2.0/23", "fd01:0:0:2::/64")
	w.start("gateway-mode=shared")
	w.complete()
	return w
}

// rebooted leaves the host as after a reboot: its own configuration has given eth0 its addresses, Open vSwitch has made its
// bridges, and the kernel and /run have nothing of ours.
func (w *world) rebooted() {
	w.t.Helper()
	w.script(`set -e
		rm -r /var/run/ovn-kubernetes
		for d in eth0 breth0 k8s-` + w.Name + `; do
			ip address flush dev $d
			sysctl -qw net.ipv6.conf.$d.disable_ipv6=1 net.ipv6.conf.$d.disable_ipv6=0 net.ipv4.conf.$d.arp_ignore=0
			ip link set $d up
		done
		ip address add 198.18.0.11/24 dev eth0
		ip address add fd00:198:18::b/64 dev eth0 nodad
		ip route add default via 198.18.0.1 dev eth0
		ip -6 route add default via fd00:198:18::1 dev eth0`)
}

// AC-46: after a reboot the NIC moves again by itself, also without an API server, and pods wait until all is there.
func TestCheck46_Reboot(t *testing.T) {
	w := newShared(t, "n3")
	before := sorted(w.settled())
	w.stop()
	w.rebooted()
	w.cut()
	w.script("touch /etc/server-not-ready")
	w.start("gateway-mode=shared")
	w.says("remove /etc/cni/net.d/10-ovn-kubernetes.conflist, until the host is complete")
	w.says("moved eth0 to bridge breth0")
	w.says("waiting: the CNI server is not ready")
	has(t, w.script("ip route; ip address show dev k8s-n3"), "default via 198.18.0.1 dev breth0", "10.128.0.0/14 via 10.128.2.1 dev k8s-n3", "10.128.2.2/23")
	w.script("! test -e /etc/cni/net.d/10-ovn-kubernetes.conflist; rm /etc/server-not-ready")
	w.complete()
	w.connectAPI()
	w.same("a reboot", before)
	w.stop()
	w.clean("gateway-mode=shared")
	has(t, w.script("ip route; ip -6 route; ! ovs-vsctl br-exists breth0 && echo gone"), "default via 198.18.0.1 dev eth0", "default via fd00:198:18::1 dev eth0", "gone")
}

// A NIC that was moved for a former gateway, or under a former name of the node, moves again after a reboot, also without an API
// server: the network configuration of the host still gives it the addresses.
func TestNICOfAFormerGatewayReturns(t *testing.T) {
	w := newShared(t, "n53")
	for i, options := range [][]string{{"gateway-mode=local"}, nil} {
		w.stop()
		w.start(options...)
		w.complete()
		if log := w.role.Output(); strings.Contains(log, `"ovn-k8s-util bridges-to-nic breth0" gives it back`) != (i == 0) {
			t.Error(log)
		}
		w.stop()
		w.rebooted()
		w.cut()
		w.start(options...)
		w.says("moved eth0 to bridge breth0")
		w.connectAPI()
		w.complete()
		w.until("check", func() error { return w.check(options...) })
		has(t, w.script("ip route; ip -6 route"), "default via 198.18.0.1 dev breth0", "default via fd00:198:18::1 dev breth0")
	}
	w.stop()
	w.rebooted()
	w.cut()
	w.Name = "n53b"
	w.start("gateway-mode=local")
	w.says("moved eth0 to bridge breth0")
}

// A move by which the host loses the API server is undone, and not tried again at once.
func TestUndoneMove(t *testing.T) {
	w := newShared(t, "n8")
	w.stop()
	w.rebooted()
	port := w.api[strings.LastIndex(w.api, ":")+1:]
	w.script("ovs-ofctl add-flow breth0 priority=60000,tcp,tp_src=" + port + ",actions=drop")
	w.start("gateway-mode=shared")
	w.says("eth0 is as it was before; the next try is at")
	has(t, w.script("ip route"), "default via 198.18.0.1 dev eth0")
	w.stop()
	w.script("ovs-ofctl --strict del-flows breth0 priority=60000,tcp,tp_src=" + port)
	w.start("gateway-mode=shared")
	w.complete()
	has(t, w.script("ip route"), "default via 198.18.0.1 dev breth0")
}

// An operator's move with --confirm-within is undone, though the role could reach the API server during it by another NIC. It is
// no failure of the role.
func TestOperatorsMove(t *testing.T) {
	w := newShared(t, "n52")
	before := w.settled()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if _, log, err := w.Run(w.ctx, self, "move", "eth1"); err != nil {
		t.Fatal(err, log)
	}
	w.script("ovs-vsctl port-to-br eth1")
	w.becomes("a move that nobody confirms", before)
	if log := w.role.Output(); strings.Contains(log, "trying again") {
		t.Error(log)
	}
	w.until("check", func() error { return w.check("gateway-mode=shared") })
}

// Another DHCP lease or router: the claim follows the host's default route.
func TestFollowsTheDefaultRoute(t *testing.T) {
	w := newShared(t, "n4")
	w.script("ip route replace default via 198.18.0.9 dev breth0")
	w.claims(`"next-hops":["198.18.0.9","fd00:198:18::1"]`)
	w.await("ovs-vsctl get Interface k8s-patch-br-int-breth0 external_ids:ovn-k8s-gateway-next-hops | grep 198.18.0.9,fd00:198:18::1")
	w.script("ip -6 route del default")
	w.claims(`"ip-addresses":["198.18.0.11/24"],"ip-address":"198.18.0.11/24","next-hops":["198.18.0.9"]`)
	w.script("ip route del default")
	w.says("no default route leads through breth0, the interface of the gateway")
	w.claims(`"next-hops":["198.18.0.9"]`)
	w.script("ip route add default via 198.18.0.1 dev breth0 && ip -6 route add default via fd00:198:18::1 dev breth0")
	w.claims(`"next-hops":["198.18.0.1","fd00:198:18::1"]`)
}

// The gateway keeps its address of IPv6 when a program adds another one, also after a restart. The kernel lists the newest one
// first.
func TestKeepsItsAddress(t *testing.T) {
	w := newShared(t, "n50")
	const same = `"ip-addresses":["198.18.0.11/24","fd00:198:18::b/64"],"ip-address":"198.18.0.11/24","next-hops":["198.18.0.%d","fe80::1"]`
	w.script("ip address add 2001:db8::99/64 dev breth0 nodad && ip -6 route replace default via fe80::1 dev breth0")
	w.claims(fmt.Sprintf(same, 1))
	w.stop()
	w.start("gateway-mode=shared")
	w.script("ip route replace default via 198.18.0.9 dev breth0")
	w.claims(fmt.Sprintf(same, 9))
	w.script("ip address del fd00:198:18::b/64 dev breth0")
	w.claims(`"ip-addresses":["198.18.0.11/24","2001:db8::99/64"]`)
}

// A NIC of the gateway's own has its addresses in the kernel before the first pass, and in Open vSwitch's database later.
func TestSpareAddressStays(t *testing.T) {
	w := newNode(t, "n51", "10.128.2.0/23", "fd01:0:0:2::/64")
	options := []string{"gateway-mode=spare", "gateway-interface=eth1", "gateway-nexthop=198.19.0.1,fe80::1"}
	w.script("ip -6 address flush dev eth1 scope global; ip address add fd00:198:19::5/64 dev eth1 nodad && ip address add 2001:db8::99/64 dev eth1 nodad")
	w.start(options...)
	w.complete()
	w.claims(`,"fd00:198:19::5/64"]`)
	w.stop()
	w.annotate(map[string]string{names.GatewayAnnotation: ""})
	w.start(options...)
	w.complete()
	w.claims(`,"fd00:198:19::5/64"]`)
}

// A NIC changes between a gateway of its own and one shared with the host, and the host gets back what it had. Options that cannot
// work leave the former gateway.
func TestOtherModeWithOneNIC(t *testing.T) {
	w := newNode(t, "n54", "10.128.2.0/23", "fd01:0:0:2::/64")
	before := w.settled()
	addresses, via := w.Second()
	nic, hops := "gateway-interface=eth1", fmt.Sprintf("gateway-nexthop=%v,%v", via[0], via[1])
	const spare = `"interface-id":"eth1_n54"`
	for _, mode := range []string{"spare", "shared", "spare"} {
		w.stop()
		w.start("gateway-mode="+mode, nic, hops)
		w.complete()
		w.claims(`"mode":"` + mode + `"`)
		w.claims(fmt.Sprintf(`"ip-addresses":["%v","%v"]`, addresses[0], addresses[1]))
		w.until("check", func() error { return w.check("gateway-mode="+mode, nic, hops) })
	}
	w.script("! ovs-vsctl br-exists breth1")
	for options, line := range map[string]string{
		"gateway-mode=shared gateway-interface=eth1": "no default route leads through eth1, the interface of the gateway",
		"gateway-mode=spare gateway-interface=eth0":  "eth0 carries the host's default route and tunnels (ovn-encap-ip 198.18.0.11) and the connection to OVN's databases, and would lose all its addresses: " + instead,
	} {
		w.stop()
		w.start(strings.Fields(options)...)
		w.says(line)
		w.claims(spare)
		w.script("ovs-vsctl get Interface eth1 external_ids:iface-id | grep eth1_n54")
	}
	w.stop()
	w.clean("gateway-mode=spare")
	w.becomes("a clean-up", before)
}

// The only NIC of a host stays shared if a gateway of its own is to have it.
func TestTheOnlyNICStaysShared(t *testing.T) {
	w := newShared(t, "n55")
	before := w.settled()
	w.stop()
	w.start("gateway-mode=spare", "gateway-interface=eth0")
	w.says("eth0 carries the host's default route and tunnels (ovn-encap-ip 198.18.0.11) and the connection to OVN's databases, and would lose all its addresses: " + instead)
	w.becomes("the refusal", before)
}

// While the shared NIC has lost its addresses, as between two DHCP leases, a default route of another NIC is no reason to move
// that one, and the claim stays. An operator can have it moved.
func TestASecondDefaultRouteMovesNothing(t *testing.T) {
	w := newShared(t, "n14")
	w.script(`set -e
		ip link set eth1 up
		ip address add 192.0.2.5/24 dev eth1; ip route add default via 192.0.2.1 dev eth1 metric 200
		ip address flush dev breth0`)
	w.says("bridge breth0 of the gateway has no address")
	w.claims(`"next-hops":["198.18.0.1","fd00:198:18::1"]`)
	has(t, w.script("ip address show dev eth1; ovs-vsctl br-exists breth1 || echo no breth1"), "192.0.2.5/24", "no breth1")
	w.script(`set -e
		ip address add 198.18.0.14/24 dev breth0; ip address add fd00:198:18::b/64 dev breth0 nodad
		ip route replace default via 198.18.0.1 dev breth0; ip -6 route replace default via fd00:198:18::1 dev breth0`)
	w.claims(`"ip-addresses":["198.18.0.14/24"`)
	w.stop()
	w.start("gateway-mode=shared", "gateway-interface=eth1", "gateway-nexthop=192.0.2.1")
	w.says("moved eth1 to bridge breth1")
	w.claims(`"next-hops":["192.0.2.1"]`)
}

// Without the option, a host opens no NodePort.
func TestNodePortsAreClosedByDefault(t *testing.T) {
	w := newShared(t, "n6")
	port := int32(30000 + rand.IntN(2000))
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "n6", Namespace: "default"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ExternalIPs: []string{"203.0.113.7"}, Ports: []corev1.ServicePort{{Port: 80, NodePort: port}}},
	}
	if _, err := w.kube.Client().CoreV1().Services("default").Create(w.ctx, s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.kube.Client().CoreV1().Services("default").Delete(context.Background(), "n6", metav1.DeleteOptions{})
	})
	rules, flows := "{ "+host.RulesScript+"; }", "ovs-ofctl dump-flows breth0"
	number := fmt.Sprint(port)
	w.stop()
	w.start("gateway-mode=shared", "nodeport=true")
	w.await(rules + " | grep " + number)
	w.await(flows + " | grep " + number)
	w.await(flows + " | grep 203.0.113.7")
	w.claims(`"node-port-enable":"true"`)
	w.stop()
	w.start("gateway-mode=shared")
	w.await("! { " + rules + "; " + flows + "; } | grep -e " + number + " -e 203.0.113.7")
	w.claims(`"node-port-enable":"false"`)
}

// AC-50: a clean-up leaves br-int with the ports of pods and their flows, and an operator's bridge and keys.
func TestCheck50_PodsStay(t *testing.T) {
	w := newShared(t, "n10")
	w.script(`set -e
		ovs-vsctl add-port br-int pod1 -- set Interface pod1 type=internal external_ids:sandbox=c1 external_ids:iface-id=default_pod1 external_ids:ip_address=10.128.2.7
		ovs-ofctl add-flow br-int table=9,priority=1,actions=drop
		ovs-vsctl --no-wait add-br br-ex -- add-port br-ex eth1 -- set Open_vSwitch . external_ids:ovn-bridge-mappings=physnet:br-ex external_ids:mine=1`)
	w.stop()
	has(t, w.clean("gateway-mode=shared"), "delete management port k8s-n10", "move the addresses and routes of bridge breth0 back to its NIC")
	has(t, w.script("ovs-vsctl port-to-br pod1; ovs-vsctl port-to-br eth1; ovs-ofctl dump-flows br-int; ovs-vsctl get Open_vSwitch . external_ids"),
		"br-int\nbr-ex", "table=9", `ovn-bridge-mappings="physnet:br-ex"`, `mine="1"`)
	has(t, w.clean("gateway-mode=shared"), "nothing of it is on this host")
}

// Two hosts with one name do not replace each other's claim for ever: the first one says so.
func TestTwoHostsWithOneName(t *testing.T) {
	w := newShared(t, "n7")
	w.annotate(map[string]string{names.ChassisAnnotation: "other"})
	w.says("the host with system-id other claims to be Node n7, too")
	w.event("TwoHosts", "system-id other")
	if got := w.node().Annotations[names.ChassisAnnotation]; got != "other" {
		t.Errorf("the annotation is %s", got)
	}
	w.stop()
	w.start("gateway-mode=shared")
	w.says("set annotation k8s.ovn.org/node-chassis-id=n7")
}

// A new host does nothing while another one is its Node, or another Node has its system-id.
func TestANewHostWithUsedNames(t *testing.T) {
	w := newNode(t, "n11", "10.128.2.0/23")
	const apart = "! ovs-vsctl get Open_vSwitch . external_ids | grep ovn-remote= && ! ip link show dev k8s-n11"
	address := func(ip string) {
		t.Helper()
		n := w.node()
		n.Status.Addresses[0].Address = ip
		if _, err := w.kube.Client().CoreV1().Nodes().UpdateStatus(w.ctx, n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	address("198.18.0.77")
	w.annotate(map[string]string{names.ChassisAnnotation: "other"})
	w.start()
	w.says("waiting: Node n11 is the host with system-id other and address 198.18.0.77, and this host with system-id n11 has another address")
	w.event("TwoHosts", "system-id other")
	w.script(apart)

	twin := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "twin", Annotations: map[string]string{names.ChassisAnnotation: "n11"}}}
	if _, err := w.kube.Client().CoreV1().Nodes().Create(w.ctx, twin, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	remove := func() error {
		return w.kube.Client().CoreV1().Nodes().Delete(context.Background(), "twin", metav1.DeleteOptions{})
	}
	t.Cleanup(func() { _ = remove() })
	address(w.IPv4().String())
	w.says("waiting: Node twin has system-id n11 already, and this host is Node n11")
	w.event("SameSystemID", "Node twin")
	w.script(apart)
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	w.complete() // the other host's claim is replaced: this one has the Node's address
	w.claims(`{"default":{"mode":""}}`)
}

// A host that has been the Node works without an API server, also if all keys of ovn-controller are an operator's. A Node that
// claims its system-id does not stop it.
func TestAKnownHost(t *testing.T) {
	w := newNode(t, "n12", "10.128.2.0/23")
	w.script(`ovs-vsctl set Open_vSwitch . external_ids:hostname=n12 external_ids:ovn-encap-type=geneve external_ids:ovn-encap-ip=198.18.0.11 \
		external_ids:ovn-remote='"tcp:198.18.0.99:6642"' external_ids:ovn-nb='"tcp:198.18.0.99:6641"' \
		external_ids:ovn-remote-probe-interval=100000 external_ids:ovn-openflow-probe-interval=180 \
		external_ids:ovn-k8s-cni-conf-path=/etc/cni/net.d`)
	w.start()
	w.complete()
	w.stop()
	w.script("! ovs-vsctl get Open_vSwitch . external_ids | grep former-ids && ip address flush dev k8s-n12 scope global")
	w.cut()
	w.start()
	const there = "ip address show dev k8s-n12 | grep -q 10.128.2.2/23"
	w.await(there)
	w.stop()
	w.connectAPI()

	twin := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "twin12", Annotations: map[string]string{names.ChassisAnnotation: "n12"}}}
	if _, err := w.kube.Client().CoreV1().Nodes().Create(w.ctx, twin, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.kube.Client().CoreV1().Nodes().Delete(context.Background(), twin.Name, metav1.DeleteOptions{})
	})
	w.annotate(map[string]string{names.ChassisAnnotation: ""})
	w.script("ip address flush dev k8s-n12 scope global")
	w.start()
	w.await(there)
	w.says("set annotation k8s.ovn.org/node-chassis-id=n12")
}

// Open vSwitch drops what fits into a bridge and not into its NIC: the NIC's MTU counts.
func TestMTUOfASharedNIC(t *testing.T) {
	w := newShared(t, "n16")
	w.script("ip link set eth0 mtu 1450")
	const what = "packets have 1458 bytes, but eth0 of bridge breth0 with ovn-encap-ip 198.18.0.11 takes 1450"
	w.says(what)
	w.event("MTUTooLarge", what)
}
