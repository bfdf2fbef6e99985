package vswitch_test

import "testing"

// P10: ovn-controller does not wait without flows to keep, and waits for the operator's time afterwards.
func TestWaitUnlessEmpty(t *testing.T) {
	n := newNode(t)
	s := n.connect()
	const wait, suspended = "ovn-ofctrl-wait-before-clear", "ovn-k8s-wait-before-clear"
	for _, step := range []struct {
		name, wait, suspended string
		empty                 bool
		want                  string
		changes               bool
	}{
		{"no flows", "8000", "", true, `{ovn-k8s-wait-before-clear="8000", ovn-ofctrl-wait-before-clear="0"}`, true},
		{"still none", "0", "8000", true, `{ovn-k8s-wait-before-clear="8000", ovn-ofctrl-wait-before-clear="0"}`, false},
		{"flows again", "0", "8000", false, `{ovn-ofctrl-wait-before-clear="8000"}`, true},
		{"flows", "8000", "", false, `{ovn-ofctrl-wait-before-clear="8000"}`, false},
		{"never wait", "0", "", true, `{ovn-ofctrl-wait-before-clear="0"}`, false},
		{"never wait, flows", "0", "", false, `{ovn-ofctrl-wait-before-clear="0"}`, false},
		{"set by somebody meanwhile", "3000", "8000", false, `{ovn-ofctrl-wait-before-clear="3000"}`, true},
		{"not set", "", "", true, `{}`, false},
	} {
		n.vsctl("clear", "Open_vSwitch", ".", "external_ids")
		for k, v := range map[string]string{wait: step.wait, suspended: step.suspended} {
			if v != "" {
				n.vsctl("set", "Open_vSwitch", ".", "external_ids:"+k+"="+v)
			}
		}
		changed, err := s.Controller().WaitUnlessEmpty(t.Context(), step.empty)
		if err != nil || changed != step.changes {
			t.Errorf("%s: changed %v, %v", step.name, changed, err)
		}
		if got := n.vsctl("get", "Open_vSwitch", ".", "external_ids"); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
}

// P8, S5: settings to keep connections during a restart of ovn-controller or a busy server are set unless the operator
// has set them.
func TestKeepFlows(t *testing.T) {
	n := newNode(t)
	s := n.connect()
	n.vsctl("clear", "Open_vSwitch", ".", "external_ids")
	n.vsctl("set", "Open_vSwitch", ".", "external_ids:ovn-remote-probe-interval=100000")
	for _, changes := range []bool{true, false} {
		if changed, err := s.Controller().KeepFlows(t.Context()); err != nil || changed != changes {
			t.Errorf("changed %v, %v", changed, err)
		}
	}
	want := `{ovn-ofctrl-wait-before-clear="8000", ovn-openflow-probe-interval="30", ovn-remote-probe-interval="100000"}`
	if got := n.vsctl("get", "Open_vSwitch", ".", "external_ids"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
