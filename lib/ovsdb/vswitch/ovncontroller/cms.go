package ovncontroller

import (
	"context"
	"fmt"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// CMSOptions is a key of external_ids: a comma-separated list. ovn-controller copies it to its row in Chassis of the Southbound database:
// see ovn-controller(8).
const CMSOptions = "ovn-cms-options"

// SetCMSOption sets NAME:VALUE in ovn-cms-options of this host, or removes it if value is empty. Other options
// stay. value must have no comma. It reports whether the value changed.
func (s Settings) SetCMSOption(ctx context.Context, name, value string) (bool, error) {
	return s.EditCMSOption(ctx, name, func(string) string { return value })
}

// CMSOption returns the value of an option in the followed copy of ovn-cms-options, "" without one.
func (s Settings) CMSOption(name string) string {
	return optionIn(s.DB.ExternalIDs()[CMSOptions], name)
}

// EditCMSOption is SetCMSOption with a value computed by edit from the value before, "" without one. edit may be
// called several times.
func (s Settings) EditCMSOption(ctx context.Context, name string, edit func(before string) string) (bool, error) {
	cfg, err := s.DB.Converge(ctx, func(c client.Client) (pl confdb.Plan, err error) {
		err = EditOption(ctx, c, &pl, name, edit)
		return pl, err
	})
	if err != nil {
		return false, fmt.Errorf("setting external_ids:%s of Open_vSwitch: %w", CMSOptions, err)
	}
	return cfg > 0, nil
}

// EditOption plans the change of EditCMSOption.
func EditOption(ctx context.Context, c client.Client, pl *confdb.Plan, name string, edit func(before string) string) error {
	root, err := confdb.Root(ctx, c)
	if err != nil {
		return err
	}
	was, there := root.ExternalIDs[CMSOptions]
	now := withOption(was, name, edit(optionIn(was, name)))
	if now == was {
		return nil
	}
	change := func(mutator libovsdb.Mutator, text string) libovsdb.Mutation {
		return *libovsdb.NewMutation("external_ids", mutator, libovsdb.OvsMap{GoMap: map[any]any{CMSOptions: text}})
	}
	var mutations []libovsdb.Mutation
	if there { // the exact value: if it has changed, the insertion below has no effect, and the next call repairs it
		mutations = append(mutations, change(libovsdb.MutateOperationDelete, was))
	}
	if now != "" {
		mutations = append(mutations, change(libovsdb.MutateOperationInsert, now))
	}
	pl.Say("set Open_vSwitch external_ids:%s=%q (was %q)", CMSOptions, now, was)
	pl.Ops = append(pl.Ops, libovsdb.Operation{
		Op: libovsdb.OperationMutate, Table: vswitchdb.OpenvSwitchTable, Mutations: mutations,
		Where: []libovsdb.Condition{libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, libovsdb.UUID{GoUUID: root.UUID})},
	})
	return nil
}

// optionIn returns the value of an option in a list, or "".
func optionIn(list, name string) string {
	for word := range strings.SplitSeq(list, ",") {
		if key, value, _ := strings.Cut(word, ":"); strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// withOption returns a list of options with value for name. Without a change it returns the same list.
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
