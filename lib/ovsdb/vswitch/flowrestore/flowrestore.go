// Package flowrestore has a starting ovs-vswitchd keep the flows in the kernel until it has its OpenFlow flows:
// other_config:flow-restore-wait in the local database, see ovs-vswitchd.conf.db(5).
package flowrestore

import (
	"context"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/client"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

const (
	// wait is a key of other_config. ovs-vswitchd reads it from its start until it is not "true": while it is, it
	// neither deletes flows of the kernel nor takes packets without one.
	wait = "flow-restore-wait"
	on   = "true"
	// mark is a key of external_ids. With it, wait is ours: ovs-ctl and newer ovn-controllers set wait, too.
	mark = names.HeldFlows
	// managed is a key of external_ids with which newer ovn-controllers set and remove wait themselves.
	managed = "ovn-managed-flow-restore-wait"
)

// Hold has the next start of ovs-vswitchd keep the kernel's flows until Release. It does nothing if another program
// manages that, or if a bridge has the userspace datapath: this one keeps no flows, and would only forward nothing.
// It reports whether it changed the database.
func Hold(ctx context.Context, db *confdb.DB) (bool, error) {
	return change(ctx, db, func(root *vswitchdb.OpenvSwitch, bridges []*vswitchdb.Bridge) []libovsdb.Mutation {
		if root.OtherConfig[wait] != "" || root.ExternalIDs[managed] == on || !kernelOnly(bridges) {
			return nil
		}
		return []libovsdb.Mutation{
			*libovsdb.NewMutation("external_ids", libovsdb.MutateOperationInsert, pair(mark)),
			*libovsdb.NewMutation("other_config", libovsdb.MutateOperationInsert, pair(wait)),
		}
	})
}

// Release ends Hold. It leaves the setting of another program alone, and reports whether it changed the database.
func Release(ctx context.Context, db *confdb.DB) (bool, error) {
	return change(ctx, db, func(root *vswitchdb.OpenvSwitch, _ []*vswitchdb.Bridge) []libovsdb.Mutation {
		if root.ExternalIDs[mark] == "" {
			return nil
		}
		all := []libovsdb.Mutation{*libovsdb.NewMutation("external_ids", libovsdb.MutateOperationDelete, libovsdb.OvsSet{GoSet: []any{mark}})}
		if root.OtherConfig[wait] == on { // unless another program has removed it
			all = append(all, *libovsdb.NewMutation("other_config", libovsdb.MutateOperationDelete, pair(wait)))
		}
		return all
	})
}

// kernelOnly reports whether all bridges have the kernel's datapath.
func kernelOnly(bridges []*vswitchdb.Bridge) bool {
	for _, b := range bridges {
		if b.DatapathType == names.UserspaceDatapath {
			return false
		}
	}
	return len(bridges) > 0
}

// pair is a key with the value on.
func pair(key string) libovsdb.OvsMap { return libovsdb.OvsMap{GoMap: map[any]any{key: on}} }

// change mutates the row of the table Open_vSwitch.
func change(ctx context.Context, db *confdb.DB, plan func(*vswitchdb.OpenvSwitch, []*vswitchdb.Bridge) []libovsdb.Mutation) (bool, error) {
	n := 0
	_, err := db.Converge(ctx, func(c client.Client) (pl confdb.Plan, err error) {
		root, err := confdb.Root(ctx, c)
		if err != nil {
			return pl, err
		}
		var bridges []*vswitchdb.Bridge
		if err := confdb.List(ctx, c, &bridges); err != nil {
			return pl, err
		}
		all := plan(root, bridges)
		if n = len(all); n == 0 {
			return pl, nil
		}
		pl.Ops = []libovsdb.Operation{{
			Op: libovsdb.OperationMutate, Table: vswitchdb.OpenvSwitchTable, Mutations: all,
			Where: []libovsdb.Condition{libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, libovsdb.UUID{GoUUID: root.UUID})},
		}}
		return pl, nil
	})
	if err != nil {
		return false, fmt.Errorf("setting other_config:%s of Open_vSwitch: %w", wait, err)
	}
	return n > 0, nil
}
