package vswitch

import (
	"context"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/client"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// How long a restarted ovn-controller keeps the flows of before, to compute new ones: see ovn-controller(8).
const (
	waitBeforeClear   = "ovn-ofctrl-wait-before-clear"
	waitBeforeClearMS = "8000"
)

// KeepFlows has ovn-controller keep the host's flows while it restarts. A value that the operator has set stays.
// It reports whether there was none.
func (s *Switch) KeepFlows(ctx context.Context) (bool, error) {
	pl, _, err := s.converge(ctx, func(c client.Client) (plan, error) {
		root, err := root(ctx, c)
		if err != nil || root.ExternalIDs[waitBeforeClear] != "" {
			return plan{}, err
		}
		// The mutator "insert" leaves keys alone that are there (RFC 7047, section 5.1).
		return plan{ops: []libovsdb.Operation{{
			Op: libovsdb.OperationMutate, Table: vswitchdb.OpenvSwitchTable,
			Where: []libovsdb.Condition{libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, libovsdb.UUID{GoUUID: root.UUID})},
			Mutations: []libovsdb.Mutation{*libovsdb.NewMutation("external_ids", libovsdb.MutateOperationInsert,
				libovsdb.OvsMap{GoMap: map[any]any{waitBeforeClear: waitBeforeClearMS}})},
		}}}, nil
	})
	if err != nil {
		return false, fmt.Errorf("setting external_ids:%s of Open_vSwitch: %w", waitBeforeClear, err)
	}
	return len(pl.ops) > 0, nil
}
