package master

import (
	"fmt"
	"slices"
	"testing"

	"ovn-k8s/lib/nb"
)

// Whatever nodes have refused rows, all others are written, with few transactions, and an error of another kind changes nothing.
func TestApart(t *testing.T) {
	var all []nb.Unit
	for i := range 1000 {
		all = append(all, nb.Unit(fmt.Sprint("node/", i)))
	}
	for _, bad := range [][]nb.Unit{{}, {all[0]}, {all[999]}, {all[3], all[500], all[501]}} {
		var a apart
		refused, written, transactions := map[nb.Unit]bool{}, map[nb.Unit]bool{}, 0
		for units := all; units != nil; units = a.again() {
			if transactions++; transactions > 100 {
				t.Fatalf("%v: %d groups are left", bad, len(a.groups))
			}
			if later := a.later(); len(units)+len(later)+len(refused)+len(written) != len(all) {
				t.Fatalf("%v: %d units, %d later, %d refused, %d written", bad, len(units), len(later), len(refused), len(written))
			}
			if !slices.ContainsFunc(units, func(u nb.Unit) bool { return slices.Contains(bad, u) }) {
				for _, u := range units {
					written[u] = true
				}
				a.written()
				continue
			}
			if len(units) == 1 {
				refused[units[0]] = true
			}
			a.refused(units)
		}
		if len(refused) != len(bad) || len(written) != len(all)-len(bad) || a.next() != nil {
			t.Errorf("%v: %d refused, %d written", bad, len(refused), len(written))
		}
	}
	var a apart
	if a.refused(all[:2]); a.again() == nil || a.again() != nil || len(a.next()) != 1 {
		t.Error("a group that was not tried comes without a pause")
	}
	if a.add(all[:2]) || !a.add(all[1:3]) || a.add(all[2:3]) || !slices.Equal(a.later(), all[1:3]) {
		t.Errorf("with a node that comes meanwhile: %v", a.groups)
	}
}
