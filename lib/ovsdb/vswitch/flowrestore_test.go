package vswitch_test

import (
	"testing"

	"ovn-k8s/lib/ovsdb/vswitch/flowrestore"
)

// The setting is ours only where no other program has it, only with the kernel's datapath, and is gone afterwards.
func TestFlowRestore(t *testing.T) {
	n := newNode(t)
	s := n.connect()
	const both, managed, free = `{ovn-k8s-flow-restore-wait="true"} {flow-restore-wait="true"}`, `{ovn-managed-flow-restore-wait="true"} {}`, `{} {}`
	const ovsCtl = `{} {flow-restore-wait="true"}`
	state := func() string {
		return n.vsctl("--no-wait", "get", "Open_vSwitch", ".", "external_ids") + " " + n.vsctl("--no-wait", "get", "Open_vSwitch", ".", "other_config")
	}
	n.vsctl("--no-wait", "clear", "Open_vSwitch", ".", "external_ids", "--", "add-br", "br-int", "--", "add-br", "breth0")
	for _, step := range []struct {
		name, ids, config, datapath string
		held, released              string
	}{
		{"the kernel's datapath", "", "", "system", both, free},
		{"the default datapath", "", "", "", both, free},
		{"one bridge in user space", "", "", "netdev", free, free},
		{"set by ovs-ctl", "", "flow-restore-wait=true", "system", ovsCtl, ovsCtl},
		{"managed by ovn-controller", "ovn-managed-flow-restore-wait=true", "", "system", managed, managed},
		{"removed by ovs-ctl", "ovn-k8s-flow-restore-wait=true", "", "netdev", `{ovn-k8s-flow-restore-wait="true"} {}`, free},
		{"left by an earlier process", "ovn-k8s-flow-restore-wait=true", "flow-restore-wait=true", "system", both, free},
	} {
		n.vsctl("--no-wait", "clear", "Open_vSwitch", ".", "external_ids", "--", "clear", "Open_vSwitch", ".", "other_config",
			"--", "set", "Bridge", "breth0", `datapath_type="`+step.datapath+`"`)
		for column, pair := range map[string]string{"external_ids": step.ids, "other_config": step.config} {
			if pair != "" {
				n.vsctl("--no-wait", "set", "Open_vSwitch", ".", column+":"+pair)
			}
		}
		before := state()
		held, err := flowrestore.Hold(t.Context(), s.DB)
		if got := state(); err != nil || got != step.held || held != (got != before) {
			t.Errorf("%s: Hold: %v, %v, %s, want %s", step.name, held, err, got, step.held)
		}
		released, err := flowrestore.Release(t.Context(), s.DB)
		if got := state(); err != nil || got != step.released || released != (step.held != step.released) {
			t.Errorf("%s: Release: %v, %v, %s, want %s", step.name, released, err, got, step.released)
		}
	}
	n.vsctl("--no-wait", "del-br", "br-int", "--", "del-br", "breth0")
	if held, err := flowrestore.Hold(t.Context(), s.DB); held || err != nil {
		t.Errorf("without a bridge: %v, %v", held, err)
	}
}
