package vswitch_test

import (
	"context"
	"testing"
)

// P10: ovn-controller does not wait without flows to keep. It has the operator's time back as soon as there are flows, and the
// copy of it is removed later.
func TestSuspendedWait(t *testing.T) {
	n := newNode(t)
	c := n.connect().Controller()
	const wait, suspended = "ovn-ofctrl-wait-before-clear", "ovn-k8s-wait-before-clear"
	const suspend, resume, end, forget = "suspend", "resume", "end", "forget"
	do := map[string]func(context.Context) error{
		suspend: func(ctx context.Context) error { _, err := c.SuspendWait(ctx); return err }, resume: c.ResumeWait, end: c.EndWait,
		forget: func(ctx context.Context) error { _, err := c.ForgetWait(ctx); return err },
	}
	for _, step := range []struct{ name, wait, suspended, do, want string }{
		{"no flows", "8000", "", suspend, `{ovn-k8s-wait-before-clear="8000", ovn-ofctrl-wait-before-clear="0"}`},
		{"still none", "0", "8000", suspend, `{ovn-k8s-wait-before-clear="8000", ovn-ofctrl-wait-before-clear="0"}`},
		{"flows again", "0", "8000", resume, `{ovn-k8s-wait-before-clear="8000", ovn-ofctrl-wait-before-clear="8000"}`},
		{"none again, at once", "8000", "8000", suspend, `{ovn-k8s-wait-before-clear="8000", ovn-ofctrl-wait-before-clear="0"}`},
		{"flows for some time", "8000", "8000", end, `{ovn-ofctrl-wait-before-clear="8000"}`},
		{"flows, first seen late", "0", "8000", end, `{ovn-ofctrl-wait-before-clear="8000"}`},
		{"flows", "8000", "", resume, `{ovn-ofctrl-wait-before-clear="8000"}`},
		{"flows, nothing to end", "8000", "", end, `{ovn-ofctrl-wait-before-clear="8000"}`},
		{"never wait", "0", "", suspend, `{ovn-ofctrl-wait-before-clear="0"}`},
		{"never wait, flows", "0", "", resume, `{ovn-ofctrl-wait-before-clear="0"}`},
		{"set by somebody meanwhile", "3000", "8000", resume, `{ovn-k8s-wait-before-clear="8000", ovn-ofctrl-wait-before-clear="3000"}`},
		{"and no flows again", "3000", "8000", suspend, `{ovn-k8s-wait-before-clear="3000", ovn-ofctrl-wait-before-clear="0"}`},
		{"and flows for some time", "3000", "8000", end, `{ovn-ofctrl-wait-before-clear="3000"}`},
		{"not set", "", "", suspend, `{}`},
		{"ours is forgotten", "8000", "", forget, `{}`},
		{"ours is forgotten with flows again", "8000", "8000", forget, `{}`},
		{"ours is forgotten without flows", "0", "8000", forget, `{}`},
		{"the operator's stays", "3000", "", forget, `{ovn-ofctrl-wait-before-clear="3000"}`},
		{"the operator's comes back", "0", "3000", forget, `{ovn-ofctrl-wait-before-clear="3000"}`},
		{"the operator never waits", "0", "", forget, `{ovn-ofctrl-wait-before-clear="0"}`},
		{"not set, forgotten", "", "", forget, `{}`},
	} {
		n.vsctl("clear", "Open_vSwitch", ".", "external_ids")
		for k, v := range map[string]string{wait: step.wait, suspended: step.suspended} {
			if v != "" {
				n.vsctl("set", "Open_vSwitch", ".", "external_ids:"+k+"="+v)
			}
		}
		if err := do[step.do](t.Context()); err != nil {
			t.Errorf("%s: %v", step.name, err)
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
