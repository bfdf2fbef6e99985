package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"ovn-k8s/test/host"
	"ovn-k8s/test/probe"
)

func TestCheck64_AddressesAndRoutesMove(t *testing.T) {
	n := newNode(t)
	n.script(`set -e
		ip address add 10.0.0.5/24 dev eth0
		ip address add 10.0.1.5/24 dev eth0
		ip address add fd00::5/64 dev eth0 nodad
		ip route add 172.16.0.0/12 via 10.0.0.1`)
	mac := n.script("cat /sys/class/net/eth0/address")
	r := n.does("nics-to-bridge eth0")
	if r.Out != "breth0 has what eth0 had\n" {
		t.Errorf("output: %+v", r)
	}
	has(t, n.script("ip -br address show dev breth0"), "10.0.0.5/24", "10.0.1.5/24", "fd00::5/64", n.IPv4().String(), n.IPv6().String())
	if out := n.script("ip -br address show dev eth0"); strings.Contains(out, "/") {
		t.Errorf("eth0 has addresses: %s", out)
	}
	routes := n.script("ip route; ip -6 route")
	has(t, routes, "default via 198.18.0.1 dev breth0", "172.16.0.0/12 via 10.0.0.1 dev breth0", "default via fd00:198:18::1 dev breth0")
	if strings.Contains(routes, "dev eth0") {
		t.Errorf("routes of eth0: %s", routes)
	}
	got := n.script(`ovs-vsctl get Bridge breth0 fail_mode other_config:hwaddr external_ids:bridge-id datapath_type; ovs-vsctl list-ports breth0; cat /sys/class/net/breth0/address`)
	datapath := host.Datapath()
	if datapath == host.Kernel { // Open vSwitch's default
		datapath = `""`
	}
	if want := "standalone\n\"" + mac + "\"\nbreth0\n" + datapath + "\neth0\n" + mac; got != want {
		t.Errorf("bridge:\n%s\nwant:\n%s", got, want)
	}
}

// AC-105 of ovnkube: a NIC that does not exist is an error, and the others are moved.
func TestCheck65_OthersAreMovedWithoutTheMissingOne(t *testing.T) {
	n := newNode(t)
	r := n.run("nics-to-bridge eth7 eth0 eth8")
	want := "ovn-k8s-util: interface eth7 does not exist, skipping.\novn-k8s-util: interface eth8 does not exist, skipping.\n"
	if r.Status != 1 || r.Err != want || r.Out != "breth0 has what eth0 had\n" {
		t.Errorf("%+v", r)
	}
	has(t, n.script("ip route"), "default via 198.18.0.1 dev breth0")
	if r := n.run("bridges-to-nic breth0 breth7"); r.Status != 1 || !strings.Contains(r.Err, "bridge breth7 does not exist, skipping.") {
		t.Errorf("%+v", r)
	}
	has(t, n.script("ip route"), "default via 198.18.0.1 dev eth0")
}

func TestCheck66_ASessionSurvivesFiftyMoves(t *testing.T) {
	n := newNode(t)
	server, err := probe.Serve(n.Netns(), "node", 22)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var sessions []*probe.Session
	for _, a := range n.Addresses {
		s, err := probe.OpenSession(n.ctx, n.FabricNetns(), probe.Address(a.Addr(), 22))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		sessions = append(sessions, s)
	}
	before := n.state()
	for range 25 {
		n.does("nics-to-bridge eth0")
		n.does("bridges-to-nic breth0")
	}
	n.unchanged("50 moves", before)
	for i, s := range sessions {
		was := s.Typed().Lines
		deadline := time.Now().Add(time.Minute)
		for s.Typed().Lines == was && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
		got := s.Close()
		t.Logf("to %v: %+v", n.Addresses[i], got)
		if got.Resets != 0 || got.Lines <= was {
			t.Errorf("the session to %v: %+v", n.Addresses[i], got)
		}
	}
}

func TestCheck67_ASecondRunChangesNothing(t *testing.T) {
	n := newNode(t)
	n.does("nics-to-bridge eth0")
	before := n.state()
	r := n.does("nics-to-bridge eth0")
	if r.Out != "nothing to do: eth0 is a port of breth0 already, and has no address to move\n" || r.Err != "" {
		t.Errorf("%+v", r)
	}
	n.unchanged("a second run", before)
	n.does("bridges-to-nic breth0")
	before = n.state()
	if r := n.does("bridges-to-nic breth0"); !strings.HasPrefix(r.Out, "nothing to do: ") {
		t.Errorf("%+v", r)
	}
	n.unchanged("a second run back", before)
}

// AC-108 of ovnkube: a command without a NIC is an error, and so are others.
func TestBadInputChangesNothing(t *testing.T) {
	n := newNode(t)
	n.script(`set -e
		for n in 1 2 3 4 5 6; do ip link add eth$n type veth peer name far$n; ip link set eth$n up; ip link set far$n up; done
		ip link add name interface01234 type veth peer name far9
		ip address add 10.7.0.1/24 dev interface01234
		ip link add bridge0 type bridge
		ip link set eth1 master bridge0
		ovs-vsctl add-br br-ex -- set Bridge br-ex datapath_type=$OVNK8S_TEST_DATAPATH -- add-port br-ex eth2
		ovs-vsctl add-br breth3 -- set Bridge breth3 datapath_type=$OVNK8S_TEST_DATAPATH
		ip address add 10.3.0.1/24 dev eth3
		ip -6 address flush dev eth4
		ip link add breth5 type veth peer name far10
		ip address add 10.5.0.1/24 dev eth5
		ip tuntap add tun0 mode tun
		ip address add 10.6.0.1/24 dev eth6
		ip nexthop add id 9 dev eth6
		ip route add 10.66.0.0/16 nhid 9
		ovs-vsctl add-port breth3 far3
		ovs-vsctl add-br breth7 -- set Bridge breth7 datapath_type=$OVNK8S_TEST_DATAPATH -- add-port breth7 port7 -- set Interface port7 type=internal`)
	n.script("ovs-vsctl add-br br-int -- set Bridge br-int datapath_type=$OVNK8S_TEST_DATAPATH -- add-port br-int port0 -- set Interface port0 type=internal external_ids:iface-id=k8s-node")
	other := map[string]string{host.Userspace: host.Kernel, host.Kernel: host.Userspace}[host.Datapath()]
	n.script("ovs-vsctl --no-wait add-br breth6 -- set Bridge breth6 datapath_type=" + other)
	before := n.state()
	for args, want := range map[string]string{
		"nics-to-bridge lo":             "interface lo is the loopback",
		"nics-to-bridge eth1":           "interface eth1 is a part of bridge0: move bridge0 instead",
		"nics-to-bridge eth2":           "interface eth2 is a port of bridge br-ex already",
		"nics-to-bridge br-ex":          "interface br-ex is a bridge of Open vSwitch itself",
		"nics-to-bridge eth4":           "interface eth4 has no address to move",
		"nics-to-bridge eth5":           "interface breth5 exists and is not an Open vSwitch bridge: rename or delete it",
		"nics-to-bridge eth6":           "route 10.66.0.0/16 uses a nexthop object, which cannot be moved: delete the route first",
		"nics-to-bridge tun0":           "interface tun0 has no Ethernet address",
		"nics-to-bridge interface01234": "bridge brinterface01234 would have a name of 16 characters",
		"nics-to-bridge ''":             "interface  does not exist, skipping.",
		"bridges-to-nic br-int":         "bridge br-int is the integration bridge of OVN: it has no NIC",
		"bridges-to-nic breth7":         "port port7 of bridge breth7 has type internal: it is no NIC of the host",
		"bridges-to-nic bridge0":        "bridge bridge0 does not exist, skipping.",
		"nics-to-bridge eth0 --probe=x": `--probe "x" is neither an IP address nor HOST:PORT`,
	} {
		r := n.run(args)
		if r.Status != 1 || r.Out != "" || strings.Count(r.Err, "\n") != 1 || !strings.Contains(r.Err, want) {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
	n.unchanged("bad input", before)
	for args, want := range map[string]string{
		"nics-to-bridge": "nothing to move",
		"nics-to-bridge eth0 --confirm-within=1ms":  "--confirm-within 1ms is too short: a second is the least",
		"nics-to-bridge eth0 --confirm-within=soon": "confirm-within",
		"nics-to-bridge --recover eth0":             "leave out eth0",
		"":                                          "command",
		"nic-to-bridge eth0":                        "nic-to-bridge",
	} {
		if r := n.run(args); r.Status != 2 || !strings.Contains(r.Err, want) {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
	if r := n.run("confirm"); r.Status != 1 || !strings.Contains(r.Err, "nothing waits for confirm") {
		t.Errorf("confirm: %+v", r)
	}
	// errors depending on the state of other devices
	n.script("ip nexthop del id 9; ip address add 10.6.0.2/24 dev eth6")
	if r := n.run("nics-to-bridge eth6"); r.Status != 1 || !strings.Contains(r.Err, "bridge breth6 has datapath_type "+other+", but br-int has "+host.Datapath()) {
		t.Errorf("wrong datapath type: %+v", r)
	}
	n.does("nics-to-bridge eth0")
	n.script("ovs-vsctl add-port breth0 patch0 -- set Interface patch0 type=patch options:peer=patch1")
	before = n.state()
	if r := n.run("bridges-to-nic breth0"); r.Status != 1 || !strings.Contains(r.Err, "bridge breth0 has other ports: patch0: remove them first; those of a gateway go with ovn-k8s-overlay gateway-remove") {
		t.Errorf("other ports: %+v", r)
	}
	n.unchanged("a bridge with other ports", before)
}

// Routes that the kernel accepted once and would not accept again, neither on the bridge nor back on the NIC.
func TestRoutesThatCouldNotComeBackStay(t *testing.T) {
	for name, c := range map[string]struct{ setup, want string }{
		"the gateway is an address of the host by now": {
			"ip route add 10.9.0.0/16 via 198.18.0.9 dev eth0 onlink; ip address add 198.18.0.9/32 dev lo",
			"route 10.9.0.0/16 via 198.18.0.9 could not be added again (invalid argument): delete it first, or what it collides with",
		},
		"a next hop is dead": {
			`ip link add eth1 type veth peer name far1; ip link set eth1 up; ip link set far1 up
			ip route add 10.9.0.0/16 nexthop via 198.18.0.1 dev eth0 nexthop via 198.18.0.7 dev eth1 onlink
			ip link set eth1 down`,
			"route 10.9.0.0/16 nexthop via 198.18.0.1 nexthop via 198.18.0.7 has a dead nexthop, with which the kernel would not take it again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.script("set -e\n" + c.setup)
			before := n.state()
			r := n.run("nics-to-bridge eth0")
			if r.Status != 1 || strings.Count(r.Err, "\n") != 1 || !strings.Contains(r.Err, c.want) {
				t.Errorf("%+v, want %q", r, c.want)
			}
			n.unchanged("a refused route", before)
		})
	}
}

// Without the connected subnet, the kernel accepts the route via the gateway only next to a temporary route to it.
func TestRoutesWithoutAWayToTheirGatewayMove(t *testing.T) {
	n := newNode(t)
	n.script("ip route del 198.18.0.0/24 dev eth0")
	before := n.state()
	n.does("nics-to-bridge eth0")
	has(t, n.script("ip route"), "default via 198.18.0.1 dev breth0")
	n.does("bridges-to-nic breth0")
	n.unchanged("a round trip", before)
}

func TestWhatAnsweredMustAnswerAgain(t *testing.T) {
	n := newNode(t)
	// frames sent by the bridge are lost, frames sent by the NIC are not
	n.script(`ovs-vsctl add-br breth0 -- set Bridge breth0 datapath_type=$OVNK8S_TEST_DATAPATH
		ovs-ofctl del-flows breth0`)
	r := n.run("nics-to-bridge eth0")
	if r.Status != 1 || !strings.Contains(r.Err, "answered before, but does not answer now") || !strings.Contains(r.Err, "eth0 is as it was before") {
		t.Errorf("%+v", r)
	}
	has(t, n.script("ip route"), "default via 198.18.0.1 dev eth0")
	p := probe.Probe{Netns: n.Netns(), Network: "icmp", Address: probe.Address(host.FabricIPv4(), 0)}
	if _, err := p.Until(n.ctx); err != nil {
		t.Error(err)
	}
}

func TestUnconfirmedMovesAreUndone(t *testing.T) {
	n := newNode(t)
	before := n.state()
	r := n.does("nics-to-bridge eth0 --confirm-within=10s") // a busy machine runs the next command within that
	has(t, r.Out, "breth0 has what eth0 had", "run 'ovn-k8s-util confirm' before ")
	if r := n.run("bridges-to-nic breth0"); r.Status != 1 || !strings.Contains(r.Err, "nics-to-bridge of eth0 waits until") {
		t.Errorf("a move while another waits: %+v", r)
	}
	has(t, n.does("nics-to-bridge --recover").Out, "nics-to-bridge of eth0 waits until")
	n.awaitState(before)

	n.does("nics-to-bridge eth0 --confirm-within=2s")
	if r := n.does("confirm"); r.Out != "nics-to-bridge of eth0 is confirmed\n" {
		t.Errorf("%+v", r)
	}
	moved := n.state()
	n.does("bridges-to-nic breth0 --confirm-within=2s") // the first watchdog wakes up in between
	n.awaitState(moved)
	n.does("bridges-to-nic breth0")
	n.unchanged("moves there and back", before)
}

// The moves of one command are undone together, with the routes of both NICs.
func TestUnconfirmedMovesOfTwoNICsAreUndone(t *testing.T) {
	n := newNode(t)
	n.script(`ip link add eth1 type veth peer name far1 && ip link set far1 up && ip link set eth1 up && ip address add 10.7.0.1/24 dev eth1
		until ip -6 route show table local dev eth1 | grep -q 'local fe80'; do sleep 0.1; done`)
	before := n.state()
	r := n.does("nics-to-bridge eth0 eth1 --confirm-within=4s")
	has(t, r.Out, "breth0 has what eth0 had", "breth1 has what eth1 had")
	n.awaitState(before)
	log := n.script("cat /etc/openvswitch/ovn-k8s-util/watchdog.log")
	if last, first := strings.Index(log, "of eth1 of an earlier run is undone"), strings.Index(log, "of eth0 of an earlier run is undone"); last < 0 || first < last {
		t.Errorf("the log of the watchdogs: %s", log)
	}
}

// A command killed between two steps leaves a host without addresses: the watchdog undoes the move at once, not at the deadline.
func TestTheWatchdogUndoesTheMoveOfAKilledProcess(t *testing.T) {
	n := newNode(t)
	n.script("for i in $(seq 2000); do echo route add 172.16.$((i / 250)).$((i % 250))/32 via 198.18.0.1 dev eth0; done | ip -batch -") // they take time
	before := n.state()
	n.script(`nohup ` + bin + `/ovn-k8s-util nics-to-bridge eth0 --confirm-within=1h >/run/move.log 2>&1 &
		while ip -4 address show dev eth0 | grep -q inet; do :; done
		kill -9 $!`)
	n.awaitState(before)
	has(t, n.script("cat /run/move.log /etc/openvswitch/ovn-k8s-util/watchdog.log"), "ovn-k8s-util: nics-to-bridge of eth0 of an earlier run is undone")
}

// The watchdog finds Open vSwitch's database down, and retries until the move is undone.
func TestTheWatchdogTriesUntilItHasUndoneTheMove(t *testing.T) {
	n := newNode(t)
	before := n.state()
	n.does("nics-to-bridge eth0 --confirm-within=1h")
	if err := n.Kill(n.ctx, "/var/run/openvswitch/ovsdb-server.pid"); err != nil {
		t.Fatal(err)
	}
	n.script(`set -e
		sed -i 's/"deadline": "[^"]*"/"deadline": "2020-01-01T00:00:00Z"/' /etc/openvswitch/ovn-k8s-util/breth0.json
		nohup ` + bin + `/ovn-k8s-util watchdog breth0 >/run/watchdog.log 2>&1 &
		until grep -q 'trying again until it is undone' /run/watchdog.log; do sleep 0.05; done`)
	n.script("ovsdb-server /etc/openvswitch/conf.db --remote=punix:/var/run/openvswitch/db.sock --detach --no-chdir --pidfile --log-file -vconsole:off")
	n.awaitState(before)
}

// awaitState waits until the host is in the former state, without a journal.
func (n *node) awaitState(want string) {
	n.t.Helper()
	for deadline := time.Now().Add(time.Minute); n.state() != want || n.script("ls /etc/openvswitch/ovn-k8s-util/*.json 2>/dev/null || true") != ""; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(n.Path("/etc/openvswitch/ovn-k8s-util/watchdog.log"))
			n.unchanged("a move that is to be undone", want)
			n.t.Fatalf("it is not undone: %s", log)
		}
	}
}

func TestAMoveWithoutIPv6(t *testing.T) {
	n := newNode(t)
	n.script(`for d in eth0 lo; do ip -6 address flush dev $d; sysctl -qw net.ipv6.conf.$d.disable_ipv6=1; done; sysctl -qw net.ipv6.conf.default.disable_ipv6=1
		mount -t tmpfs tmpfs /proc/sys/net/ipv6`)
	before := n.state()
	n.does("nics-to-bridge eth0")
	has(t, n.script("ip route"), "default via 198.18.0.1 dev breth0")
	n.does("bridges-to-nic breth0")
	n.unchanged("a round trip", before)
}

func TestDryRunChangesNothing(t *testing.T) {
	n := newNode(t)
	before := n.state()
	r := n.does("nics-to-bridge eth0 --dry-run")
	has(t, r.Out, "# eth0\nmake bridge breth0", "make eth0 a port of breth0", "remove address "+n.Addresses[0].String()+" from eth0",
		"add address "+n.Addresses[0].String()+" to breth0", "add route default via 198.18.0.1 to breth0")
	n.unchanged("a dry run", before)
	n.does("nics-to-bridge eth0")
	has(t, n.does("bridges-to-nic breth0 --dry-run").Out, "delete bridge breth0")
}

// A process killed at any time leaves the old state or the new one, once the next has run. lib/nicbridge tests a kill
// at each single step.
func TestKilledAtAnyTime(t *testing.T) {
	n := newNode(t)
	old := n.state()
	n.does("nics-to-bridge eth0")
	moved := n.state()
	undone := 0
	for i := range 30 {
		n.does("bridges-to-nic --recover")
		if n.script("ovs-vsctl list-br") != "" {
			n.does("bridges-to-nic breth0")
		}
		// the command takes some 100 ms, half of them before the first change
		n.script(fmt.Sprintf("timeout --foreground -s KILL 0.%03d %s/ovn-k8s-util nics-to-bridge eth0 >/dev/null 2>&1 || true", 20+6*i, bin))
		n.does("nics-to-bridge --recover")
		want := old
		if n.script("ovs-vsctl list-br") != "" {
			want = moved
		} else {
			undone++
		}
		n.unchanged("a killed command", want)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of 30 were undone", undone)
}

// AC-107 of ovnkube: the defaults of Open vSwitch's service stay as they are, here without a final newline. They need no option, because
// no port is transient: see TestPrintedConfigurationsBoot. The command runs by the name of former releases.
func TestCheck107_DefaultsOfOpenVSwitchStay(t *testing.T) {
	const defaults = "for f in /etc/default/openvswitch-switch /etc/default/openvswitch /etc/sysconfig/openvswitch; do"
	n := newNode(t)
	n.script("mkdir -p /etc/sysconfig; " + defaults + ` printf 'OPTIONS="--log"' >$f; done; ln -s ` + bin + "/ovn-k8s-util /usr/local/bin/ovn-kube-util")
	before := n.state()
	n.script("ovn-kube-util nics-to-bridge eth0; ovn-kube-util bridges-to-nic breth0")
	n.unchanged("a round trip", before)
	if got := n.script(defaults + " cat $f; echo; done"); got != strings.TrimSpace(strings.Repeat("OPTIONS=\"--log\"\n", 3)) {
		t.Errorf("the defaults are\n%s", got)
	}
}

// AC-106 of ovnkube, H16: after bridges-to-nic the host is as it was at the start, without the bridge. Patch ports of a gateway helper
// that ran before gateway-init go with it, also those on br-int.
func TestPatchPortsOfAHelperGoWithTheBridge(t *testing.T) {
	n := newNode(t)
	before := n.state()
	n.does("nics-to-bridge eth0")
	n.script(`ovs-vsctl add-br br-int -- set Bridge br-int datapath_type=$OVNK8S_TEST_DATAPATH -- \
		add-port breth0 k8s-patch-breth0-br-int -- set Interface k8s-patch-breth0-br-int type=patch options:peer=k8s-patch-br-int-breth0 external_ids:ovn-k8s-helper-patch=true -- \
		add-port br-int k8s-patch-br-int-breth0 -- set Interface k8s-patch-br-int-breth0 type=patch options:peer=k8s-patch-breth0-br-int external_ids:ovn-k8s-helper-patch=true`)
	n.does("bridges-to-nic breth0")
	if out := n.script("ovs-vsctl list-ports br-int; ovs-vsctl del-br br-int"); out != "" {
		t.Errorf("left in br-int: %s", out)
	}
	n.unchanged("a round trip with a helper", before)
}
