package node

import (
	"fmt"
	"strings"
	"testing"

	"ovn-k8s/test/host"
)

// A host without the kernel's datapath is named in one line, before anything is changed, and again if br-int's datapath
// changes later. The host goes on by itself when it has a datapath.
func TestDatapathChanges(t *testing.T) {
	host.OnUserspace(t)
	lacks := "|WARN|trying again: " + host.Refusal()
	w := newNode(t, "n13", "10.128.2.0/23")
	w.script("ovs-vsctl remove Open_vSwitch . external_ids ovn-bridge-datapath-type")
	// the host's packet size does not depend on the datapath
	const state = `ovs-vsctl get Open_vSwitch . external_ids | sed 's/ovn-cms-options="[^"]*", //'; ovs-vsctl list-br`
	ids := w.script(state)
	w.start()
	w.says(lacks)
	if now := w.script(state); now != ids {
		t.Errorf("before %s, after %s", ids, now)
	}
	w.script("ovs-vsctl set Open_vSwitch . external_ids:ovn-bridge-datapath-type=netdev")
	w.complete()
	const there = "ip address show dev k8s-n13 | grep -q 10.128.2.2/23"
	// ovn-controller gives br-int the datapath of the setting.
	w.script("ovs-vsctl --no-wait set Open_vSwitch . external_ids:ovn-bridge-datapath-type=system -- set Bridge br-int datapath_type=system")
	w.await("! " + there)
	w.until("log", func() error {
		if n := strings.Count(w.role.Output(), lacks); n != 2 {
			return fmt.Errorf("%d lines with %q", n, lacks)
		}
		return nil
	})
	w.script("ovs-vsctl --no-wait set Open_vSwitch . external_ids:ovn-bridge-datapath-type=netdev -- set Bridge br-int datapath_type=netdev")
	w.await(there)
	if n := strings.Count(w.role.Output(), lacks); n != 2 {
		t.Errorf("%d lines with %q", n, lacks)
	}
	t.Log(w.role.Output())
}
