package ovncontroller

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// zeroSNAT is a capability of a datapath: with it, ovn-controller commits connections with an all-zero SNAT.
const zeroSNAT = "ct_zero_snat"

// release33 is the first release without a second entry of userspace conntrack for the replies of a connection with NAT.
// It is also the first to ignore timeouts until they change, see changePolicies.
func release33() []int { return []int{3, 3} }

// AvoidZeroSNAT keeps ovn-controller from using a capability at which ovs-vswitchd aborts, and reports whether it
// changed something. With the userspace datapath of Open vSwitch before 3.3, a connection committed with an
// all-zero SNAT has two entries with the same addresses and ports. After the first has expired, a packet finds the
// second, and ovs-vswitchd ends with "assertion conn->conn_type == CT_CONN_TYPE_DEFAULT failed". So AvoidZeroSNAT
// removes the capability from the database. ovs-vswitchd writes it at its start. An unknown release counts as old.
func (s Settings) AvoidZeroSNAT(ctx context.Context) (bool, error) {
	cfg, err := s.DB.Converge(ctx, func(c client.Client) (pl confdb.Plan, err error) {
		err = avoidZeroSNAT(ctx, c, &pl)
		return pl, err
	})
	if err != nil {
		return false, fmt.Errorf("setting capabilities:%s of Datapath: %w", zeroSNAT, err)
	}
	return cfg > 0, nil
}

// avoidZeroSNAT plans AvoidZeroSNAT.
func avoidZeroSNAT(ctx context.Context, c client.Client, pl *confdb.Plan) error {
	root, err := confdb.Root(ctx, c)
	if err != nil {
		return err
	}
	var all []*vswitchdb.Datapath
	if err := confdb.List(ctx, c, &all); err != nil {
		return err
	}
	for _, d := range all {
		if d.UUID != root.Datapaths[names.UserspaceDatapath] || d.Capabilities[zeroSNAT] != "true" || slices.Compare(release(root), release33()) >= 0 {
			continue
		}
		setCapability(pl, d, zeroSNAT, "false")
	}
	return nil
}

// setCapability sets a capability of a datapath.
func setCapability(pl *confdb.Plan, d *vswitchdb.Datapath, name, value string) {
	mutateRow(pl, vswitchdb.DatapathTable, d.UUID,
		libovsdb.NewMutation("capabilities", libovsdb.MutateOperationDelete, libovsdb.OvsSet{GoSet: []any{name}}),
		libovsdb.NewMutation("capabilities", libovsdb.MutateOperationInsert, libovsdb.OvsMap{GoMap: map[any]any{name: value}}))
}

// mutateRow mutates a row.
func mutateRow(pl *confdb.Plan, table, uuid string, mutations ...*libovsdb.Mutation) {
	op := libovsdb.Operation{
		Op: libovsdb.OperationMutate, Table: table,
		Where: []libovsdb.Condition{libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, libovsdb.UUID{GoUUID: uuid})},
	}
	for _, m := range mutations {
		op.Mutations = append(op.Mutations, *m)
	}
	pl.Ops = append(pl.Ops, op)
}

// release returns the major and minor number of Open vSwitch, as 3 and 3 for "3.3.1", or nil if its format is unknown.
func release(root *vswitchdb.OpenvSwitch) []int {
	if root.OVSVersion == nil {
		return nil
	}
	parts := strings.Split(*root.OVSVersion, ".")
	if len(parts) < 2 {
		return nil
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return nil
	}
	return []int{major, minor}
}
