package nicbridge

import (
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/link/ifstate"
)

// LRO (findings, section 7): the kernel's datapath disables it permanently, so moving back enables it. GRO stays on
// there.
func TestLROComesBackFromTheKernelsDatapath(t *testing.T) {
	s := Snapshot{NIC: "eth0", Bridge: "breth0", From: "eth0", Joining: joining("", []string{"rx-gro", ifstate.LRO, "rx-gro-hw"})}
	if !slices.Equal(s.Joining, []string{ifstate.LRO}) {
		t.Errorf("kept: %v", s.Joining)
	}
	var back []string
	for _, st := range s.Plan(ToNIC) {
		back = append(back, st.Text)
	}
	off, on := slices.Index(back, "take eth0 out of breth0"), slices.Index(back, "switch on [rx-lro] of eth0")
	if off < 0 || on < off {
		t.Errorf("the way back: %s", strings.Join(back, "\n"))
	}
	if all := joining(userspace, []string{"rx-gro", ifstate.LRO}); len(all) != 2 {
		t.Errorf("in user space: %v", all)
	}
}
