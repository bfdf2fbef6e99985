package vswitch_test

import "testing"

// TestAvoidZeroSNAT has a real ovs-vswitchd write the capabilities of its datapath.
func TestAvoidZeroSNAT(t *testing.T) {
	n := newNode(t)
	s := n.connect()
	n.vsctl("--", "--id=@d", "create", "Datapath", "external_ids:test=yes", "--", "set", "Open_vSwitch", ".", "datapaths:netdev=@d",
		"--", "add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type=netdev")
	const capability = "capabilities:ct_zero_snat"
	has := func() string { return n.vsctl("--bare", "--columns=capabilities", "list", "Datapath") }
	id := n.vsctl("--bare", "--columns=_uuid", "list", "Datapath")
	n.vsctl("set", "Datapath", id, capability+"=true") // as this release has it, or will
	for _, step := range []struct {
		version string
		avoids  bool
	}{{"", true}, {"", false}, {"3.3.0", false}, {"4.0.1", false}, {"3.1.0", true}, {"a fork", true}} {
		if step.version != "" {
			n.vsctl("set", "Open_vSwitch", ".", "ovs_version="+"\""+step.version+"\"", "--", "set", "Datapath", id, capability+"=true")
		}
		before := has()
		avoided, err := s.Controller().AvoidZeroSNAT(t.Context())
		if err != nil || avoided != step.avoids {
			t.Errorf("release %q: %v, %v, want %v", step.version, avoided, err, step.avoids)
		}
		if after := has(); (after != before) != step.avoids {
			t.Errorf("release %q: before %s, after %s", step.version, before, after)
		}
	}
}
