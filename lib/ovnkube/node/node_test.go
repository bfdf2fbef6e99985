package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/cni/protocol"
	"ovn-k8s/lib/names"
)

// A mode of gateways with the options for it, and what the host then has.
type mode struct {
	name    string
	options []string
	subnets []string
	claims  []string // parts of the annotation
	script  string   // succeeds on a complete host
}

func modesToTest() []mode {
	both := []string{"10.128.2.0/23", "fd01:0:0:2::/64"}
	return []mode{
		{"local", []string{"gateway-mode=local", "nodeport=true"}, both,
			[]string{`"mode":"local"`, `"interface-id":"br-local_local"`, `"node-port-enable":"true"`},
			`ip address show dev br-nexthop | grep -q "inet " && ip route show table all | grep -q "dev br-nexthop"`},
		{"shared", []string{"init-gateways=true", "gateway-vlanid=100"}, both,
			[]string{`"mode":"shared"`, `"interface-id":"breth0_shared"`, `"ip-addresses":["198.18.0.11/24","fd00:198:18::b/64"]`, `"next-hops":["198.18.0.1","fd00:198:18::1"]`, `"node-port-enable":"false"`, `"vlan-id":"100"`, `"egress-subnets":["10.128.2.0/23","fd01:0:0:2::/64"]`},
			`ip address show dev breth0 | grep -q "198.18.0.11/24" && ip route | grep -q "default via 198.18.0.1 dev breth0" && test -z "$(ip -4 address show dev eth0)" && test "$(ovs-vsctl port-to-br eth0)" = breth0`},
		{"spare", []string{"gateway-mode=spare", "gateway-interface=eth1", "gateway-nexthop=198.19.0.1"}, both[:1],
			[]string{`"mode":"spare"`, `"interface-id":"eth1_spare"`, `"next-hop":"198.19.0.1"`, `"egress-subnets":["10.128.2.0/23"]`},
			`test "$(ovs-vsctl port-to-br eth1)" = br-int && test "$(ovs-vsctl get Interface eth1 external_ids:iface-id)" = eth1_spare && test -z "$(ip address show dev eth1 | grep inet)"`},
		{"none", nil, both[1:], []string{`"mode":""`}, `true`},
	}
}

// AC-32: a node that starts before everything that it needs completes without a restart. AC-34, AC-37, AC-47, AC-49: the host has
// its management port and the gateway of its mode. AC-38: a restart changes nothing. AC-50: a clean-up gives the host back. AC-59:
// the CNI configuration comes last, when the CNI server is ready.
func TestCheck32_34_37_38_47_49_50_Modes(t *testing.T) {
	for _, m := range modesToTest() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, m.name)
			w.start(m.options...)
			w.says("is ovsdb-server running?")
			w.stop()
			if err := w.StartSwitch(w.ctx); err != nil {
				t.Fatal(err)
			}
			before := w.state()
			w.start(m.options...)
			w.says("waiting: there is no Node " + m.name)
			w.addNode()
			w.says("has no annotation k8s.ovn.org/node-subnets")
			w.script("touch /etc/server-not-ready")
			w.stop()
			w.start(m.options...)
			w.says("has no annotation k8s.ovn.org/node-subnets")
			w.assign(m.subnets...)
			w.says("waiting: the CNI server is not ready")
			w.script("! test -e /etc/cni/net.d/10-ovn-kubernetes.conflist; rm /etc/server-not-ready")
			w.complete()
			w.checkNode(m)

			complete := w.settled()
			version, number := w.node().ResourceVersion, w.script("ovs-vsctl get Open_vSwitch . next_cfg")
			w.stop()
			w.becomes("a stop", complete)
			w.start(m.options...)
			w.says("host is complete")
			w.becomes("a restart", complete)
			if got := w.script("ovs-vsctl get Open_vSwitch . next_cfg"); got != number {
				t.Errorf("a restart wrote %s transactions to the local database, before %s: %s", got, number, w.role.Output())
			}
			if got := w.node().ResourceVersion; got != version {
				t.Errorf("a restart changed the Node: version %s, before %s", got, version)
			}
			w.stop()
			w.clean(m.options...)
			w.becomes("a clean-up", before)
			w.claims(`{"default":{"mode":""}}`)
			has(t, w.clean(m.options...), "nothing of it is on this host")
			w.script("ovs-vsctl br-exists br-int")
		})
	}
}

// The status of a host names the refusal of its token: of a new host, and of one that has been the Node and is complete. It goes
// on with another token.
func TestRefusedToken(t *testing.T) {
	w := newNode(t, "n31", "10.128.2.0/23")
	use := func(token string) { w.script("printf '[kubernetes]\\ntoken=" + token + "\\n' >/etc/ovnkube.conf") }
	for _, known := range []string{"false", "true"} {
		w.await(known + " || ! ip link show k8s-n31")
		use("expired")
		w.start("k8s-token=", "config-file=/etc/ovnkube.conf")
		w.says("waiting: the API server refuses this host's token or rights: failed to list *v1.Node: Unauthorized; renew the token or the kubeconfig, or grant the rights")
		use(w.kube.Token)
		w.complete()
		w.stop()
	}
}

// settled returns the state once it does not change any more.
func (w *world) settled() string {
	w.t.Helper()
	last, same := "", 0
	w.until("the state settles", func() error {
		now := w.state() + w.script("ovs-vsctl get Open_vSwitch . next_cfg")
		if same++; now != last {
			last, same = now, 0
		}
		if same < 10 {
			return errors.New("it changes")
		}
		return nil
	})
	return w.state()
}

// checkNode checks a complete host.
func (w *world) checkNode(m mode) {
	t := w.t
	t.Helper()
	w.script(m.script)
	ids := w.script("ovs-vsctl get Open_vSwitch . external_ids")
	has(t, ids, `ovn-remote="tcp:198.18.0.99:6642"`, `ovn-nb="tcp:198.18.0.99:6641"`, `ovn-encap-ip="198.18.0.11"`, "ovn-encap-type=geneve", "hostname="+m.name,
		`ovn-remote-probe-interval="100000"`, `ovn-openflow-probe-interval="180"`)
	port := "k8s-" + m.name
	has(t, w.script("ovs-vsctl get Interface "+port+" external_ids:iface-id mtu_request"), port, "1400")
	addresses, routes := w.script("ip address show dev "+port), w.script("ip route; ip -6 route")
	for _, s := range m.subnets {
		if strings.HasPrefix(s, "10.") {
			has(t, addresses, "10.128.2.2/23")
			has(t, routes, "10.128.0.0/14 via 10.128.2.1 dev "+port, "172.30.0.0/16 via 10.128.2.1 dev "+port)
			continue
		}
		has(t, addresses, "fd01:0:0:2::2/64")
		has(t, routes, "fd01::/48 via fd01:0:0:2::1 dev "+port, "fd02::/112 via fd01:0:0:2::1 dev "+port)
	}
	a := w.node().Annotations
	if a[names.ChassisAnnotation] != m.name {
		t.Errorf("chassis %q", a[names.ChassisAnnotation])
	}
	has(t, a[names.GatewayAnnotation], m.claims...)
	has(t, w.script("cat /etc/cni/net.d/10-ovn-kubernetes.conflist; ls -l /opt/cni/bin"), `"name": "ovn-kubernetes"`, `"disableCheck": true`, `"type": "ovn-k8s-cni-overlay"`, "ovn-k8s-cni-overlay")
}

// AC-33: the interface of a node with a long name in capitals has 11 letters of it, in lower case, and its logical port has all.
// An Event tells the name of the Node.
func TestCheck33_Capitals(t *testing.T) {
	w := newNode(t, "Rack7-Node-WITH-A-Capital-Name", "10.128.2.0/23")
	w.start()
	w.complete()
	has(t, w.script("ip address show dev k8s-rack7-node-; ovs-vsctl get Interface k8s-rack7-node- external_ids:iface-id"), "10.128.2.2/23", "k8s-rack7-node-with-a-capital-name")
	w.event("OtherCapitals", "this host was told --init-node=Rack7-Node-WITH-A-Capital-Name, and names of Nodes have no capitals; give --init-node=rack7-node-with-a-capital-name")
}

// A running node would make everything again, also one whose CNI server is down.
func TestCleanRefusesWhileTheNodeRuns(t *testing.T) {
	w := newWorld(t, "n9")
	if err := w.StartSwitch(w.ctx); err != nil {
		t.Fatal(err)
	}
	before := w.state()
	refuses := func(what, want string) {
		t.Helper()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.Run(w.ctx, self, w.args("clean")...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", what, err)
		}
		if after := w.state(); after != before {
			t.Errorf("%s: the host changed (-before +after):\n%s", what, cmp.Diff(before, after))
		}
	}
	release, err := Hold(w.Path("/var/run/openvswitch"))
	if err != nil {
		t.Fatal(err)
	}
	refuses("a process", "this host has an ovnkube with --init-node: stop it first: /var/run/openvswitch/ovnkube-host.pid: already running as pid ")
	release()
	if err := os.MkdirAll(w.Path(filepath.Dir(protocol.Socket)), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", w.Path(protocol.Socket))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	refuses("a socket", "stop it first")
}

// Only a process that runs is one to stop: other errors of the file have a text of their own.
func TestHoldNamesAProcessOnlyIfOneRuns(t *testing.T) {
	_, err := Hold(filepath.Join(t.TempDir(), "missing"))
	if err == nil || strings.Contains(err.Error(), "stop it first") {
		t.Errorf("got %v", err)
	}
}

// What another program takes away is back soon.
func TestRepairs(t *testing.T) {
	w := newNode(t, "n1", "10.128.2.0/23", "fd01:0:0:2::/64")
	w.start("gateway-mode=local", "nodeport=true")
	w.complete()
	before := sorted(w.settled())
	for _, damage := range []string{
		"ip address flush dev k8s-n1 scope global",
		"ip route del 10.128.0.0/14", "ip -6 route del fd01::/48", "ip route del 172.30.0.0/16",
		"ip link set k8s-n1 down",
		"ip rule del pref $(ip rule | grep -v 'lookup [lmd]' | head -1 | cut -d: -f1)",
		"ip address flush dev br-nexthop scope global",
		"ovs-vsctl del-port k8s-patch-br-int-br-local", "ovs-vsctl del-port k8s-patch-br-local-br-int",
		"ovs-vsctl del-port k8s-n1", "ovs-vsctl del-br br-local",
		"ovs-vsctl remove Open_vSwitch . external_ids ovn-remote",
		"rm /etc/cni/net.d/10-ovn-kubernetes.conflist",
	} {
		w.script(damage)
		w.same(damage, before)
	}
	w.script("ovs-vsctl set Open_vSwitch . external_ids:hostname=x") // as ovs-ctl does; it is the former value from now on
	w.await("ovs-vsctl get Open_vSwitch . external_ids:hostname | grep n1")
}

// sorted returns the lines of a text in alphabetical order: chains that are made again come last.
func sorted(text string) []string { return slices.Sorted(strings.SplitSeq(text, "\n")) }

// A node follows its annotation, but running pods keep what they have.
func TestOtherSubnets(t *testing.T) {
	w := newNode(t, "n2", "10.128.2.0/23")
	w.start()
	w.complete()
	address := func(want string) {
		t.Helper()
		w.await("ip address show dev k8s-n2 | grep -q 'inet6* " + want + " '")
	}
	address("10.128.2.2/23")
	w.assign("10.128.4.0/23")
	address("10.128.4.2/23")
	w.script(`! ip address show dev k8s-n2 | grep 10.128.2`)

	w.script(`ovs-vsctl add-port br-int pod1 -- set Interface pod1 type=internal external_ids:sandbox=c1 external_ids:iface-id=default_pod1 external_ids:ip_address=10.128.4.7`)
	before := w.settled()
	w.assign("10.128.6.0/23", "fd01:0:0:2::/64")
	w.says("1 running pods have addresses of 10.128.4.0/23, such as default_pod1: drain the node")
	w.event("SubnetInUse", "default_pod1")
	if after := w.settled(); after != before {
		t.Errorf("the host changed under a running pod (-before +after):\n%s", cmp.Diff(before, after))
	}
	w.stop()
	w.start()
	w.says("1 running pods have addresses")
	if after := w.settled(); after != before {
		t.Errorf("a restart changed the host under a running pod (-before +after):\n%s", cmp.Diff(before, after))
	}
	w.script("ovs-vsctl del-port pod1")
	address("10.128.6.2/23")
	address("fd01:0:0:2::2/64")

	for annotation, want := range map[string]string{
		"foo":                          "is not JSON",
		strings.Repeat("x", 2000):      "has 2000 bytes",
		`{"default":"192.168.0.0/24"}`: "give this host the same --cluster-subnets as the master",
	} {
		w.annotate(map[string]string{names.SubnetsAnnotation: annotation, names.HostSubnetAnnotation: ""})
		w.says(want)
		address("10.128.6.2/23")
	}
	w.assign("10.128.8.0/23")
	address("10.128.8.2/23")
}

// event waits for an Event on the Node.
func (w *world) event(reason, text string) {
	w.t.Helper()
	w.until("event", func() error {
		all, err := w.kube.Client().CoreV1().Events("default").List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + strings.ToLower(w.Name)})
		if err != nil {
			return err
		}
		for _, e := range all.Items {
			if e.Reason == reason && strings.Contains(e.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("no Event %s", reason)
	})
}
