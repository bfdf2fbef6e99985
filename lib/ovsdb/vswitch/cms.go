package vswitch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// cmsOptions is a list with commas that ovn-controller copies to its row in Chassis of the Southbound database: see
// ovn-controller(8).
const cmsOptions = "ovn-cms-options"

// SetCMSOption tells others of this host by ovn-cms-options: NAME:VALUE. Options of others stay. value must have no
// comma. It reports whether there was another value.
func (s *Switch) SetCMSOption(ctx context.Context, name, value string) (bool, error) {
	pl, _, err := s.converge(ctx, func(c client.Client) (plan, error) {
		root, err := root(ctx, c)
		if err != nil {
			return plan{}, err
		}
		was, there := root.ExternalIDs[cmsOptions]
		now := withOption(was, name, value)
		if now == was {
			return plan{}, nil
		}
		change := func(mutator libovsdb.Mutator, text string) libovsdb.Mutation {
			return *libovsdb.NewMutation("external_ids", mutator, libovsdb.OvsMap{GoMap: map[any]any{cmsOptions: text}})
		}
		mutations := []libovsdb.Mutation{change(libovsdb.MutateOperationInsert, now)}
		if there { // this very value: with another one, the insertion that follows does nothing, and the next call mends it
			mutations = slices.Insert(mutations, 0, change(libovsdb.MutateOperationDelete, was))
		}
		return plan{ops: []libovsdb.Operation{{
			Op: libovsdb.OperationMutate, Table: vswitchdb.OpenvSwitchTable, Mutations: mutations,
			Where: []libovsdb.Condition{libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, libovsdb.UUID{GoUUID: root.UUID})},
		}}}, nil
	})
	if err != nil {
		return false, fmt.Errorf("setting external_ids:%s of Open_vSwitch: %w", cmsOptions, err)
	}
	return len(pl.ops) > 0, nil
}

// withOption returns a list of options in which name has value.
func withOption(list, name, value string) string {
	var all []string
	for word := range strings.SplitSeq(list, ",") {
		if key, _, _ := strings.Cut(word, ":"); word != "" && strings.TrimSpace(key) != name {
			all = append(all, word)
		}
	}
	return strings.Join(append(all, name+":"+value), ",")
}
