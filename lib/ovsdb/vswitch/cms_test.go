package vswitch_test

import "testing"

// TestSetCMSOption changes one of several options.
func TestSetCMSOption(t *testing.T) {
	n := newNode(t)
	s := n.connect()
	for _, step := range []struct {
		before, value, want string
		changes             bool
	}{
		{"", "1", `"a:1"`, true},
		{"a:1", "1", `"a:1"`, false},
		{"enable-chassis-as-gw,a:1,ab:3", "2", `"enable-chassis-as-gw,ab:3,a:2"`, true},
		{"enable-chassis-as-gw", "2", `"enable-chassis-as-gw,a:2"`, true},
		{"enable-chassis-as-gw,a:1,ab:3", "", `"enable-chassis-as-gw,ab:3"`, true},
		{"b:3, c", "", `"b:3, c"`, false},
		{"a:1", "", "", true},
		{"", "", "", false},
	} {
		n.vsctl("remove", "Open_vSwitch", ".", "external_ids", "ovn-cms-options")
		if step.before != "" {
			n.vsctl("set", "Open_vSwitch", ".", `external_ids:ovn-cms-options="`+step.before+`"`)
		}
		changed, err := s.Controller().SetCMSOption(t.Context(), "a", step.value)
		if err != nil || changed != step.changes {
			t.Errorf("%q: changed %v, %v", step.before, changed, err)
		}
		if got := n.vsctl("--if-exists", "get", "Open_vSwitch", ".", "external_ids:ovn-cms-options"); got != step.want {
			t.Errorf("%q: got %s, want %s", step.before, got, step.want)
		}
	}
}
