package nicbridge

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/names"
	"ovn-k8s/test/host"
	"ovn-k8s/test/require"
)

// S11: the kernel's datapath disables LRO permanently, so moving back enables it. GRO stays on there.
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
	if all := joining(names.UserspaceDatapath, []string{"rx-gro", ifstate.LRO}); len(all) != 2 {
		t.Errorf("in user space: %v", all)
	}
}

// H19: the interface was looked up again for each of thousands of routes of a move.
func TestAnInterfaceOfManyRoutesIsLookedUpOnce(t *testing.T) {
	require.Nothing(t, require.Node, host.Missing())
	w := newWorld(t)
	w.reset()
	lines := []string{"address add 10.0.0.1/24 dev eth0"}
	for i := range 300 {
		lines = append(lines, fmt.Sprintf("route add 10.1.%d.%d/32 via 10.0.0.2", i/100, i%100))
	}
	if err := w.batch(lines); err != nil {
		t.Fatal(err)
	}
	eth0, err := ifstate.Find("eth0")
	if err != nil {
		t.Fatal(err)
	}
	records, err := ifstate.Of(eth0)
	if err != nil {
		t.Fatal(err)
	}
	var steps []Step
	for _, r := range records {
		if strings.Contains(r.Text, "via 10.0.0.2") {
			steps = append(steps, Step{Do: add, On: "eth0", Records: []ifstate.Record{r}})
		}
	}
	if len(steps) != 300 {
		t.Fatalf("%d routes", len(steps))
	}
	allocations := func(f func()) float64 { return testing.AllocsPerRun(1, f) }
	lookup := allocations(func() { _, _ = ifstate.Find("eth0") })
	each := allocations(func() {
		for _, st := range steps {
			_ = ifstate.Add(st.Records[0], eth0, 0)
		}
	})
	got := allocations(func() {
		if err := (mover{}).do(t.Context(), Snapshot{}, ToBridge, steps); err != nil {
			t.Error(err)
		}
	})
	if looked := (got - each) / lookup; looked > 10 {
		t.Errorf("%.0f routes took as many allocations as %.0f lookups", float64(len(steps)), looked)
	}
}
