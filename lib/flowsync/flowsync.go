// Package flowsync makes the flows of a switch what they should be, with as few
// changes as that takes and all of them at once. It does not know what they are
// for.
package flowsync

import (
	"context"
	"slices"

	"ovn-k8s/lib/flow"
)

// A Switch has flows.
type Switch interface {
	// Dump lists all flows, whoever made them.
	Dump(context.Context) ([]flow.Flow, error)
	// Apply makes all changes or none.
	Apply(context.Context, []flow.Mod) error
}

// Sync makes the flows of sw the wanted ones, and returns what it changed: nil
// if they were right. Of the flows there are, only ours are taken away.
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

// Diff returns what makes the flows of a switch the wanted ones. Of those that
// it has, only ours are deleted. Nothing is said about flows that are right.
// Additions come first, so that nothing falls between two flows even where the
// changes are not made at once.
func Diff(have, want []flow.Flow, ours func(flow.Flow) bool) []flow.Mod {
	is := map[flow.Key]flow.Flow{}
	for _, f := range have {
		is[f.Key()] = f
	}
	var mods []flow.Mod
	wanted := map[flow.Key]bool{}
	for _, f := range slices.SortedFunc(slices.Values(want), flow.Compare) {
		k := f.Key()
		old, there := is[k]
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
