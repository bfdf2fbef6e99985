// Package flowsync replaces the flows of a switch by the wanted ones, with the fewest changes and in one transaction.
package flowsync

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ovn-k8s/lib/flow"
)

// A Switch is a table of flows.
type Switch interface {
	// Dump lists all flows.
	Dump(context.Context) ([]flow.Flow, error)
	// Apply makes all changes or none.
	Apply(context.Context, []flow.Mod) error
}

// Sync makes the flows of sw equal to want and returns the changes, nil if there were none. Flows not matched by ours
// are kept.
func Sync(ctx context.Context, sw Switch, want []flow.Flow, ours func(flow.Flow) bool) ([]flow.Mod, error) {
	have, err := sw.Dump(ctx)
	if err != nil {
		return nil, err
	}
	mods := Diff(have, want, ours)
	if len(mods) == 0 {
		return nil, nil
	}
	return mods, sw.Apply(ctx, mods)
}

// Diff returns the changes from have to want. Flows not matched by ours are kept. Additions come first: no
// packet misses both flows even if the changes are not atomic.
func Diff(have, want []flow.Flow, ours func(flow.Flow) bool) []flow.Mod {
	current := map[flow.Key]flow.Flow{}
	for _, f := range have {
		current[f.Key()] = f
	}
	var mods []flow.Mod
	wanted := map[flow.Key]bool{}
	for _, f := range slices.SortedFunc(slices.Values(want), flow.Compare) {
		k := f.Key()
		old, there := current[k]
		if !wanted[k] && !(there && old.Cookie == f.Cookie && old.Actions == f.Actions) {
			mods = append(mods, flow.Mod{Flow: f})
		}
		wanted[k] = true
	}
	for _, f := range slices.SortedFunc(slices.Values(have), flow.Compare) {
		if ours(f) && !wanted[f.Key()] {
			mods = append(mods, flow.Mod{Delete: true, Flow: f})
		}
	}
	return mods
}

// Show lists our flows for people, a line for each: "+" marks missing, "~" different and "-" superfluous ones. The last line
// is the number of other flows.
func Show(have, want []flow.Flow, ours func(flow.Flow) bool) string {
	type line struct {
		mark string
		flow.Flow
	}
	var lines []line
	others := 0
	for _, f := range have {
		if ours(f) {
			lines = append(lines, line{" ", f})
		} else {
			others++
		}
	}
	for _, m := range Diff(have, want, ours) {
		i := slices.IndexFunc(lines, func(l line) bool { return l.Key() == m.Flow.Key() })
		switch {
		case m.Delete:
			lines[i].mark = "-"
		case i >= 0:
			lines[i].mark = "~"
		default:
			lines = append(lines, line{"+", m.Flow})
		}
	}
	slices.SortFunc(lines, func(a, b line) int { return flow.Compare(a.Flow, b.Flow) })
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s %v\n", l.mark, l.Flow)
	}
	fmt.Fprintf(&b, "%d flows of others\n", others)
	return b.String()
}
