package main

import (
	"strings"
	"testing"

	"ovn-k8s/test/host"
)

// down is the value of the option by which this host declares gateways down; "" without it.
func (w *world) down() string {
	w.Helper()
	for word := range strings.SplitSeq(strings.Trim(w.script("ovs-vsctl --if-exists get Open_vSwitch . external_ids:ovn-cms-options"), `"`), ",") {
		if modes, ok := strings.CutPrefix(word, "ovn-k8s-gateway-down:"); ok {
			return modes
		}
	}
	return ""
}

// awaitDown waits until the host declares these modes down.
func (w *world) awaitDown(what, modes string) {
	w.Helper()
	w.eventually(what, func() bool { return w.down() == modes })
}

// H8: a local gateway with a failing setup is declared down until it works. Other options stay.
func TestALocalGatewayIsDeclaredDown(t *testing.T) {
	w := newWorld(t)
	w.script(`ovs-vsctl set Open_vSwitch . external_ids:ovn-cms-options=enable-chassis-as-gw,availability-zones=a
		for tool in iptables-restore nft; do
			printf '#!/bin/sh\n[ ! -e /run/broken ] || { echo broken >&2; exit 4; }\nexec /usr/sbin/%s "$@"\n' $tool >/usr/local/bin/$tool
			chmod +x /usr/local/bin/$tool
		done`)
	w.script(localGateway)
	p := w.start("-vconsole:info")
	rules := func() bool {
		return strings.Contains(w.script(host.RulesScript), host.PerFirewall("-A FORWARD -j OVN-K8S-GATEWAY-FORWARD", "chain gw-postrouting"))
	}
	w.eventually("rules", rules)
	flush := host.PerFirewall("for i in filter mangle nat; do iptables -t $i -F; done", "/usr/sbin/nft flush ruleset")
	w.script(flush)
	w.eventually("rules after a flush", rules)
	if w.down() != "" || strings.Contains(p.Output(), "other gateways get the packets of pods") {
		t.Errorf("a reload of the firewall: %q\n%s", w.down(), p.Output())
	}
	w.script("touch /run/broken; " + flush)
	w.awaitDown("rules that cannot be written", "local")
	p.Stop()
	w.launch()
	w.eventually("a part fails", func() bool { return strings.Contains(w.appctl("reconcile/show"), "local gateway fails") })
	if w.down() != "local" {
		t.Error("a restart forgets that the gateway is down")
	}
	w.script("rm /run/broken; ovs-appctl -t ovn-k8s-gateway-helper reconcile/resync")
	w.awaitDown("rules that can be written", "")
	w.script(`mkdir -p /run/sys && mount --bind /proc/sys/net /run/sys && mount --bind /proc/sys/net /proc/sys/net && mount -o remount,bind,ro /proc/sys/net
		echo 0 >/run/sys/ipv4/ip_forward`)
	w.awaitDown("forwarding that cannot be set", "local")
	w.script("umount /proc/sys/net /run/sys; ovs-appctl -t ovn-k8s-gateway-helper reconcile/resync")
	w.awaitDown("forwarding that can be set", "")
	if got := w.script("ovs-vsctl get Open_vSwitch . external_ids:ovn-cms-options"); !strings.HasPrefix(got, `"enable-chassis-as-gw,availability-zones=a`) {
		t.Errorf("ovn-cms-options: %s", got)
	}
}

// H11: a shared bridge is declared down until a helper serves it.
func TestASharedBridgeIsDeclaredDown(t *testing.T) {
	w := newWorld(t)
	w.web()
	w.script(`ip link add spare type veth peer name eraps; ovs-vsctl --timeout=60 add-port breth0 spare -- set Open_vSwitch . external_ids:ovn-cms-options=ovn-k8s-gateway-down:bridge
		ovs-vsctl --timeout=60 add-port breth0 k8s-patch-breth0-br-int -- set Interface k8s-patch-breth0-br-int type=patch options:peer=k8s-patch-br-int-breth0 external_ids:ovn-k8s-gateway=node1 \
		-- add-port br-int k8s-patch-br-int-breth0 -- set Interface k8s-patch-br-int-breth0 type=patch options:peer=k8s-patch-breth0-br-int external_ids:ovn-k8s-gateway=node1`)
	p := w.start("-vconsole:info") // two NICs: the helper cannot choose one
	if w.down() != "bridge" {
		t.Errorf("a helper that does not serve the bridge: %q", w.down())
	}
	w.script("ovs-vsctl remove Open_vSwitch . external_ids ovn-cms-options")
	w.awaitDown("an option that was removed by hand", "bridge")
	w.script("ovs-vsctl set Open_vSwitch . external_ids:ovn-cms-options=ovn-k8s-gateway-down:local")
	w.awaitDown("another mode set by hand", "bridge")
	w.eventually("a line for each mode that changed", func() bool {
		return strings.Contains(p.Output(), "gateway of this host (bridge): down") && strings.Contains(p.Output(), "gateway of this host (local): forwards packets again")
	})
	p.Stop()
	p = w.launch(append(shared, "-vconsole:info")...)
	w.eventually("flows", w.right)
	w.awaitDown("a helper that serves the bridge", "")
	w.script("ovs-vsctl --timeout=60 del-port breth0 eth0")
	w.awaitDown("the NIC is gone", "bridge")
	w.script("ovs-vsctl --timeout=60 add-port breth0 eth0")
	w.awaitDown("the NIC is back", "")
	if n := strings.Count(p.Output(), "gateway of this host (bridge): down, other gateways get the packets of pods: interface eth0 is not in bridge breth0"); n != 1 {
		t.Errorf("%d lines say so:\n%s", n, p.Output())
	}
	// The flows of an ended helper still serve.
	p.Stop()
	if w.down() != "" {
		t.Errorf("without a helper: %q", w.down())
	}
}

// A shared bridge is declared down, too, if the helper cannot start: its NIC is missing after a boot, or its configuration is
// wrong. While flows of a helper before serve the bridge, it is not.
func TestABridgeWithoutAHelperIsDeclaredDown(t *testing.T) {
	w := newWorld(t)
	w.web()
	w.script(`ovs-vsctl --timeout=60 add-port breth0 k8s-patch-breth0-br-int -- set Interface k8s-patch-breth0-br-int type=patch options:peer=k8s-patch-br-int-breth0 external_ids:ovn-k8s-gateway=node1 \
		-- add-port br-int k8s-patch-br-int-breth0 -- set Interface k8s-patch-br-int-breth0 type=patch options:peer=k8s-patch-breth0-br-int external_ids:ovn-k8s-gateway=node1
		ovs-vsctl --timeout=60 del-port breth0 eth0`)
	p := w.launch(shared...)
	w.awaitDown("a NIC that is missing", "bridge")
	w.script("ovs-vsctl --timeout=60 add-port breth0 eth0")
	w.awaitDown("the NIC is there", "")
	w.eventually("flows", w.right)
	p.Stop()
	w.script("ip link add tap type veth peer name pat; ovs-vsctl --timeout=60 del-port breth0 eth0 -- add-port breth0 tap")
	p = w.launch(shared...)
	w.awaitDown("a NIC that is missing, and a port of a VM", "bridge")
	w.script("ovs-vsctl --timeout=60 del-port breth0 tap -- add-port breth0 eth0")
	w.awaitDown("the NIC is there again", "")
	w.eventually("flows again", w.right)
	p.Stop()
	w.write("/etc/damaged.crt", "")
	w.script("ovs-vsctl set Open_vSwitch . external_ids:k8s-ca-certificate=/etc/damaged.crt")
	if status, stderr := w.once(w.args(shared...)...); status == 0 || w.down() != "" {
		t.Errorf("flows of a helper before: status %d, %q, down %q", status, stderr, w.down())
	}
	w.script("ovs-ofctl del-flows breth0")
	if status, stderr := w.once(w.args(shared...)...); status == 0 || w.down() != "bridge" {
		t.Errorf("a wrong configuration: status %d, %q, down %q", status, stderr, w.down())
	}
	w.script("ovs-vsctl remove Open_vSwitch . external_ids k8s-ca-certificate")
	w.launch(shared...)
	w.awaitDown("a helper that starts", "")
}

// --remove leaves a shared bridge without flows: its gateway is declared down until it is disconnected.
func TestARemovedHelperDeclaresItsBridgeDown(t *testing.T) {
	w := newWorld(t)
	w.web()
	w.script(localGateway)
	w.script(`ovs-vsctl --timeout=60 add-port breth0 k8s-patch-breth0-br-int -- set Interface k8s-patch-breth0-br-int type=patch options:peer=k8s-patch-br-int-breth0 external_ids:ovn-k8s-gateway=node1 \
		-- add-port br-int k8s-patch-br-int-breth0 -- set Interface k8s-patch-br-int-breth0 type=patch options:peer=k8s-patch-breth0-br-int external_ids:ovn-k8s-gateway=node1`)
	p := w.start(shared...)
	w.eventually("flows", w.right)
	p.Stop()
	if status, stderr := w.once(append(shared, "--remove")...); status != 0 || w.down() != "bridge" {
		t.Errorf("with a gateway: status %d, %q, down %q", status, stderr, w.down())
	}
	w.script("ovs-vsctl --timeout=60 del-port breth0 k8s-patch-breth0-br-int -- del-port br-int k8s-patch-br-int-breth0")
	if status, stderr := w.once(append(shared, "--remove")...); status != 0 || w.down() != "" {
		t.Errorf("without a gateway: status %d, %q, down %q", status, stderr, w.down())
	}
}

// A local gateway is declared down, too, if the helper cannot start after a boot. While the addresses and rules of a helper
// before are there, it is not.
func TestALocalGatewayWithoutAHelperIsDeclaredDown(t *testing.T) {
	w := newWorld(t)
	w.script(localGateway)
	p := w.start()
	w.eventually("the host's end", func() bool {
		return strings.Contains(w.script("ip -br address show br-nexthop; ip -6 route show table 1646"), "169.254.33.1/24") &&
			strings.Contains(w.script("ip -6 rule"), "1646")
	})
	p.Stop()
	w.write("/etc/damaged.crt", "")
	w.script("ovs-vsctl set Open_vSwitch . external_ids:k8s-ca-certificate=/etc/damaged.crt")
	if status, stderr := w.once(w.args()...); status == 0 || w.down() != "" {
		t.Errorf("after a helper before: status %d, %q, down %q", status, stderr, w.down())
	}
	w.script("ip address flush dev br-nexthop scope global; ip rule del pref 1647; ip -6 rule del pref 1647")
	if status, stderr := w.once(w.args()...); status == 0 || w.down() != "local" {
		t.Errorf("after a boot: status %d, %q, down %q", status, stderr, w.down())
	}
	w.script("ovs-vsctl remove Open_vSwitch . external_ids k8s-ca-certificate")
	w.launchBare(w.args("--pidfile")...)
	w.awaitDown("a helper that starts", "")
}

// P1: ovn-controller starts after the helper is ready. A bridge that takes no flows delays that no longer than until the
// gateway is declared down.
func TestABridgeWithoutFlowsDelaysNothing(t *testing.T) {
	w := newWorld(t)
	w.script(`ovs-vsctl --timeout=60 set Bridge breth0 protocols=OpenFlow10 \
		-- add-port breth0 k8s-patch-breth0-br-int -- set Interface k8s-patch-breth0-br-int type=patch options:peer=k8s-patch-br-int-breth0 external_ids:ovn-k8s-gateway=node1 \
		-- add-port br-int k8s-patch-br-int-breth0 -- set Interface k8s-patch-br-int-breth0 type=patch options:peer=k8s-patch-breth0-br-int external_ids:ovn-k8s-gateway=node1`)
	if status, stderr := w.once(w.args(append(shared, "--pidfile", "--log-file", "-vconsole:emer", "--detach")...)...); status != 0 || stderr != "" {
		t.Errorf("status %d, %q", status, stderr)
	}
	w.awaitDown("a bridge that takes no flows", "bridge")
	w.script("ovs-vsctl --timeout=60 set Bridge breth0 protocols=[]")
	w.awaitDown("a bridge that takes flows", "")
	w.appctl("exit")
	w.eventually("the pidfile is gone", func() bool { return w.pidfile("ovn-k8s-gateway-helper.pid") == "" })
}
