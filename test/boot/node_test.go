package boot_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"ovn-k8s/docs"
	"ovn-k8s/test/boot"
	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// A nodeWorld is a host with OVN's databases and a machine as node.
type nodeWorld struct {
	*testing.T
	ctx     context.Context
	master  *host.Host
	central *ovntest.Central
	node    *boot.Machine
}

// newWorld sets a machine up as in install.md: packages, settings, minion-init, and
// our units. The API server cannot be reached.
func newWorld(t *testing.T) *nodeWorld {
	t.Helper()
	require.Nothing(t, require.Central, ovntest.Missing())
	require.Nothing(t, require.Node, boot.Missing())
	bin := t.TempDir()
	for _, p := range []string{"ovn-k8s-overlay", "ovn-k8s-cni-overlay", "ovn-k8s-watcher", "ovn-k8s-gateway-helper", "ovn-k8s-util"} {
		if out, err := exec.Command("go", "build", "-o", bin+"/", "ovn-k8s/"+p).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit.Of(2*time.Minute))
	t.Cleanup(cancel)
	fabric, err := host.NewFabric()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fabric.Close)
	w := &nodeWorld{T: t, ctx: ctx}
	if w.master, err = host.New(host.Options{Name: "master", Fabric: fabric}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.master.Close)
	if w.central, err = ovntest.Start(ovntest.Options{Listen: "::", NBPort: 6641, SBPort: 6642, Command: w.master.Command}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.central.Close)
	w.must(w.master.StartOVS(ctx))
	_, err = w.master.Script(ctx, fmt.Sprintf("ovs-vsctl set Open_vSwitch . external_ids:ovn-nb=tcp:%v:6641; %s/ovn-k8s-overlay master-init "+
		"--cluster-ip-subnet=10.128.0.0/14 --master-switch-subnet=10.128.0.0/24 --node-name=master", w.master.IPv4(), bin))
	w.must(err)
	w.startNode(fabric, bin)
	return w
}

func (w *nodeWorld) startNode(fabric *host.Fabric, bin string) {
	w.Helper()
	programs, err := filepath.Glob(bin + "/*")
	w.must(err)
	w.node, err = boot.New(boot.Options{Name: "node1", Fabric: fabric, Packages: []string{"ifupdown"}, Programs: programs})
	w.must(err)
	w.Cleanup(w.node.Close)
	w.must(w.node.Write("/etc/network/interfaces", fmt.Sprintf("auto eth0\niface eth0 inet static\n    address %v\n    gateway %v\n",
		w.node.Port.Addresses[0], w.node.Port.Gateways[0])))
	w.must(writeUnits(w.node))
	w.must(w.node.Write("/etc/openvswitch/ovn-k8s-gateway-helper.token", "token\n"))
	w.must(w.node.Write("/etc/default/ovn-k8s-node", "CLUSTER_IP_SUBNET=10.128.0.0/14\nMINION_SWITCH_SUBNET=10.128.1.0/24\nNODE_NAME=node1\n"))
	w.must(w.node.Enable("networking", "openvswitch-switch", "ovn-host"))
	w.must(w.node.Boot(w.ctx))
	w.must(w.node.Settle(w.ctx))
	w.script(fmt.Sprintf(`set -e; ovs-vsctl set Open_vSwitch . external_ids:ovn-remote=tcp:%[1]v:6642 external_ids:ovn-nb=tcp:%[1]v:6641 \
		external_ids:ovn-encap-ip=%[2]v external_ids:ovn-encap-type=geneve external_ids:ovn-bridge-datapath-type=%[3]s \
		external_ids:k8s-api-server=http://127.0.0.1:1
		ovn-k8s-overlay minion-init --cluster-ip-subnet=10.128.0.0/14 --minion-switch-subnet=10.128.1.0/24 --node-name=node1
		systemctl daemon-reload
		systemctl enable ovn-k8s-node ovn-k8s-watcher ovn-k8s-gateway-helper`, w.master.IPv4(), w.node.Port.Addresses[0].Addr(), host.Datapath()))
}

// writeUnits writes our units and the documented drop-in file of ovs-vswitchd.
func writeUnits(m *boot.Machine) error {
	paths := map[string]string{"systemd/ovs-vswitchd.conf": "ovs-vswitchd.service.d/ovn-k8s.conf"}
	units, err := fs.Glob(docs.Files, "systemd/*.service")
	for _, u := range units {
		paths[u] = filepath.Base(u)
	}
	for file, path := range paths {
		text, readErr := fs.ReadFile(docs.Files, file)
		err = errors.Join(err, readErr, m.Write("/etc/systemd/system/"+path, string(text)))
	}
	return err
}

func (w *nodeWorld) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *nodeWorld) script(text string) string {
	w.Helper()
	out, err := w.node.Script(w.ctx, text)
	w.must(err)
	return strings.TrimSpace(out)
}

// moment returns a time of a unit, in microseconds since the boot of the machine's host.
func (w *nodeWorld) moment(property string) int {
	w.Helper()
	text := w.script("systemctl show --value -p " + property)
	at, err := strconv.Atoi(text)
	w.must(err)
	return at
}

// eventually waits until a shell script on the node succeeds.
func (w *nodeWorld) eventually(script string) {
	w.Helper()
	for {
		r, err := w.node.Try(script)
		w.must(err)
		switch {
		case r.Status == 0:
			return
		case w.ctx.Err() != nil:
			journal, _ := w.node.Try("systemctl --no-pager status 'ovn-k8s-*' ovnkube; ip addr; ip route; journalctl --no-pager -b -u 'ovn-k8s-*' -u ovnkube -n 60; tail -n 40 /var/log/openvswitch/ovnkube.log")
			w.Fatalf("never true: %s\n%s%s\n%s", script, r.Out, r.Err, journal.Out)
		case true:
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// active is a script that succeeds if all units are active: "systemctl is-active" does so if one is.
func active(units string) string {
	return `[ "$(systemctl is-active ` + units + ` | uniq)" = active ]`
}

// has is a script that succeeds if the management port is as after minion-init.
const has = `ip -4 addr show k8s-node1 | grep -q ' 10.128.1.2/24 ' && ip route | grep -q '^10.128.0.0/14 via 10.128.1.1 dev k8s-node1 proto 46' &&
	ip route | grep -q '^100.64.0.0/16 via 10.128.1.1' && [ "$(cat /proc/sys/net/ipv4/conf/k8s-node1/arp_announce)" = 2 ]`

// H1, H4, H10, H14, H15: without the Northbound database, a node has its management port
// again after a power cut, and the daemons wait. When the database is there, all of them
// continue.
func TestANodeBootsBeforeTheDatabase(t *testing.T) {
	w := newWorld(t)
	w.eventually(has)
	// With nothing late, the unit starts as well.
	w.script("systemctl start ovn-k8s-node && systemctl show -p StatusText ovn-k8s-node | grep -q complete")
	// H14: systemd accepts our units without warnings.
	if out := w.script("systemd-analyze verify --man=no /etc/systemd/system/ovn-k8s-*.service 2>&1 || :"); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	// H4: systemd does not kill programs that start slowly, on a busy host.
	if out := w.script("systemctl show -p TimeoutStartUSec --value ovn-k8s-node ovn-k8s-watcher ovn-k8s-gateway-helper | sort -u | tr -d '\\n'"); out != "infinity" {
		t.Errorf("units may start for %s", out)
	}
	w.must(w.master.Cut())
	w.must(w.node.PowerCycle(w.ctx))
	w.eventually(has)
	w.eventually(active("ovn-k8s-node ovn-k8s-gateway-helper ovn-k8s-watcher"))
	for _, unit := range []string{"ovn-k8s-node", "ovn-k8s-watcher"} {
		w.eventually("systemctl show -p StatusText " + unit + " | grep -q 'waiting.*6641'")
	}
	if got := w.script("systemctl --failed --no-legend; systemctl show -p NRestarts --value ovn-k8s-node ovn-k8s-watcher ovn-k8s-gateway-helper"); strings.Trim(got, "0\n") != "" {
		t.Errorf("failed or restarted: %s", got)
	}
	// P1: a shared bridge has its flows before OVN forwards packets.
	helper, controller := w.moment("ActiveEnterTimestampMonotonic ovn-k8s-gateway-helper"), w.moment("InactiveExitTimestampMonotonic ovn-controller")
	if helper == 0 || controller < helper {
		t.Errorf("ovn-controller started at %d us, the helper was active at %d us", controller, helper)
	}
	w.must(w.master.Mend())
	w.eventually("journalctl -b -u ovn-k8s-node | grep -q 'Initialization complete.'")
	const withoutAPI = "systemctl show -p StatusText ovn-k8s-watcher | grep -q 'waiting: the API server is not available'" // nothing else is awaited
	w.eventually(withoutAPI)
	w.script(has)
	if got := w.script("journalctl -b -u ovn-k8s-node | grep -c 'waiting, connecting to the Northbound'"); got != "1" {
		t.Errorf("what is waited for is told %s times", got)
	}

	// H15: a daemon told to exit stays away; one that dies is started again.
	w.script("kill -9 $(cat /run/openvswitch/ovn-k8s-watcher.pid)")
	w.eventually("systemctl is-active ovn-k8s-watcher && ovs-appctl -t ovn-k8s-watcher version")
	w.script("ovs-appctl -t ovn-k8s-watcher exit")
	w.eventually("systemctl show -p ActiveState,SubState,Result --value ovn-k8s-watcher | tr '\\n' ' ' | grep -qE '(success inactive dead|inactive dead success)'")

	// An orderly reboot, with Open vSwitch's database last.
	w.script("mkdir -p /etc/systemd/system/ovsdb-server.service.d; printf '[Service]\\nExecStartPre=/bin/sleep 3\\n' >/etc/systemd/system/ovsdb-server.service.d/late.conf")
	w.must(w.node.Reboot(w.ctx))
	w.eventually(has)
	w.eventually(active("ovn-k8s-node ovn-k8s-gateway-helper ovn-k8s-watcher") + " && " + withoutAPI)
	w.script("systemctl show -p ExecStartPre ovs-vswitchd | grep 'nproc.*status=0'") // ovs-vswitchd waits, on a small host

	// H13: a file not read by ifupdown is left alone.
	w.script(`set -e; systemctl disable -q networking; echo 'auto lo' >/etc/network/interfaces
		ovn-k8s-overlay minion-init --cluster-ip-subnet=10.128.0.0/14 --minion-switch-subnet=10.128.1.0/24 --node-name=node1
		! grep ovn-k8s /etc/network/interfaces`)
	if os.Getenv("OVNK8S_SECURITY") != "" {
		t.Log(w.script("systemd-analyze security --no-pager ovn-k8s-watcher ovn-k8s-gateway-helper ovn-k8s-node ovn-k8s-gateway | grep -i overall; systemd-analyze security --no-pager | grep ovn-k8s"))
	}
}

// Bad input: a node is renamed. Its host's name means nothing to it. With another NODE_NAME nothing is changed, and one
// line says the next step; running pods keep their network until then.
func TestANodeIsRenamed(t *testing.T) {
	w := newWorld(t)
	w.script("systemctl start ovn-k8s-node")
	nb := func(args ...string) string {
		out, err := w.central.NBCtl(args...)
		w.must(err)
		return out
	}
	nb("lsp-add", "node1", "default_a", "--", "set", "Logical_Switch_Port", "default_a", "external_ids:pod=true", "external_ids:namespace=default")
	w.script("ovs-vsctl add-port br-int veth0 -- set Interface veth0 type=internal external_ids:sandbox=c1 external_ids:iface-id=default_a")
	state := func() string {
		return nb("ls-list") + nb("lsp-list", "node1") + nb("get", "Logical_Router", "ovn_cluster_router", "external_ids") +
			w.script("ip -4 -br address show dev k8s-node1; ip route show dev k8s-node1; ovs-vsctl list-ports br-int; { "+host.RulesScript+"; } | grep -o -i claimed; cat /etc/cni/net.d/*")
	}
	w.eventually(has)
	before := state()

	// Without a helper, the guards of pods are the boot unit's.
	w.script("echo renamed >/etc/hostname; systemctl disable -q ovn-k8s-gateway-helper")
	w.must(w.node.Reboot(w.ctx))
	w.eventually(has + " && systemctl show -p StatusText ovn-k8s-node | grep -q complete && [ $(hostname) = renamed ]")
	if now := state(); now != before {
		t.Errorf("the host's name changes what the node is:\n%s\nbefore:\n%s", now, before)
	}

	w.script("sed -i s/NODE_NAME=node1/NODE_NAME=renamed/ /etc/default/ovn-k8s-node; systemctl restart --no-block ovn-k8s-node")
	const line = "subnet 10.128.1.0/24 is that of node node1, which is this host: if the node is called renamed now, delete its pods and run node-remove --node-name=node1 first"
	w.eventually("journalctl -b -u ovn-k8s-node | grep -q '" + line + "'")
	if now := state(); now != before {
		t.Errorf("half renamed:\n%s\nbefore:\n%s", now, before)
	}
	if r, err := w.node.Try("ovn-k8s-overlay node-remove --node-name=node1"); err != nil || r.Status == 0 || !strings.Contains(r.Err, "node node1 has pods: default/a") {
		t.Errorf("a node with pods is removed: %v, %+v", err, r)
	}

	nb("lsp-del", "default_a")
	w.script("ovs-vsctl del-port veth0; ovn-k8s-overlay node-remove --node-name=node1")
	w.eventually(strings.ReplaceAll(has, "k8s-node1", "k8s-renamed") + " && systemctl is-active ovn-k8s-node")
	if now := nb("ls-list"); strings.Contains(now, "node1") || !strings.Contains(now, "renamed") {
		t.Errorf("switches: %s", now)
	}
}
