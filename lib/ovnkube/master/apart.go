package master

import (
	"slices"

	"ovn-k8s/lib/nb"
)

// An apart has nodes whose rows the database refused together: it does not say whose. They are tried in ever smaller groups, so
// that in the end only those fail whose own rows are refused. Nodes that come meanwhile wait for a group of their own.
type apart struct {
	groups [][]nb.Unit
	others bool // than at the last call of again
}

// next is the group to try with the next transaction, nil if there is none.
func (a *apart) next() []nb.Unit {
	if len(a.groups) == 0 {
		return nil
	}
	return a.groups[0]
}

// later are the nodes to leave as they are meanwhile.
func (a *apart) later() []nb.Unit {
	if len(a.groups) == 0 {
		return nil
	}
	return slices.Concat(a.groups[1:]...)
}

// again is next if it is another group than at the last call, else nil: it is tried without the pause after a failure.
func (a *apart) again() []nb.Unit {
	if !a.others {
		return nil
	}
	a.others = false
	return a.next()
}

// written records the success of the rows of next.
func (a *apart) written() {
	if len(a.groups) > 0 {
		a.groups, a.others = a.groups[1:], true
	}
}

// refused records the refusal of the rows of units, those of next among them.
func (a *apart) refused(units []nb.Unit) {
	a.written()
	if half := len(units) / 2; half > 0 {
		a.groups, a.others = slices.Insert(a.groups, 0, units[:half], units[half:]), true
	}
}

// add makes a last group of those of units that are in none. It reports whether there are any.
func (a *apart) add(units []nb.Unit) bool {
	known := map[nb.Unit]bool{}
	for _, group := range a.groups {
		for _, u := range group {
			known[u] = true
		}
	}
	units = slices.DeleteFunc(slices.Clone(units), func(u nb.Unit) bool { return known[u] })
	if len(units) == 0 {
		return false
	}
	a.others = a.others || len(a.groups) == 0
	a.groups = append(a.groups, units)
	return true
}
