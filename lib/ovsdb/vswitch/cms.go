package vswitch

import (
	"context"
	"fmt"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// cmsOptions is a list with commas that ovn-controller copies to its row in Chassis of the Southbound database: see
// ovn-controller(8).
const cmsOptions = "ovn-cms-options"

// SetCMSOption tells others of this host by ovn-cms-options: NAME:VALUE, or nothing if value is empty. Options of others
// stay. value must have no comma. It reports whether there was another value.
func (s *Switch) SetCMSOption(ctx context.Context, name, value string) (bool, error) {
	return s.EditCMSOption(ctx, name, func(string) string { return value })
}

// EditCMSOption is SetCMSOption with a value that depends on the one before, which is empty if there is none. edit may be
// called several times.
func (s *Switch) EditCMSOption(ctx context.Context, name string, edit func(before string) string) (bool, error) {
	pl, _, err := s.converge(ctx, func(c client.Client) (pl plan, err error) {
		return pl, pl.editOption(ctx, c, name, edit)
	})
	if err != nil {
		return false, fmt.Errorf("setting external_ids:%s of Open_vSwitch: %w", cmsOptions, err)
	}
	return len(pl.ops) > 0, nil
}

// editOption plans what EditCMSOption does.
func (p *plan) editOption(ctx context.Context, c client.Client, name string, edit func(before string) string) error {
	root, err := root(ctx, c)
	if err != nil {
		return err
	}
	was, there := root.ExternalIDs[cmsOptions]
	now := withOption(was, name, edit(optionIn(was, name)))
	if now == was {
		return nil
	}
	change := func(mutator libovsdb.Mutator, text string) libovsdb.Mutation {
		return *libovsdb.NewMutation("external_ids", mutator, libovsdb.OvsMap{GoMap: map[any]any{cmsOptions: text}})
	}
	var mutations []libovsdb.Mutation
	if there { // this very value: with another one, the insertion that follows does nothing, and the next call mends it
		mutations = append(mutations, change(libovsdb.MutateOperationDelete, was))
	}
	if now != "" {
		mutations = append(mutations, change(libovsdb.MutateOperationInsert, now))
	}
	p.say("set Open_vSwitch external_ids:%s=%q (was %q)", cmsOptions, now, was)
	p.ops = append(p.ops, libovsdb.Operation{
		Op: libovsdb.OperationMutate, Table: vswitchdb.OpenvSwitchTable, Mutations: mutations,
		Where: []libovsdb.Condition{libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, libovsdb.UUID{GoUUID: root.UUID})},
	})
	return nil
}

// optionIn returns the value of an option in a list, "" if it is not there.
func optionIn(list, name string) string {
	for word := range strings.SplitSeq(list, ",") {
		if key, value, _ := strings.Cut(word, ":"); strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// withOption returns a list of options in which name has value. Without a change the list is returned as it is.
func withOption(list, name, value string) string {
	if optionIn(list, name) == value {
		return list
	}
	var all []string
	for word := range strings.SplitSeq(list, ",") {
		if key, _, _ := strings.Cut(word, ":"); word != "" && strings.TrimSpace(key) != name {
			all = append(all, word)
		}
	}
	if value != "" {
		all = append(all, name+":"+value)
	}
	return strings.Join(all, ",")
}
