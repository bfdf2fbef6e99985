package ovncontroller

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// zeroSNAT is a capability of a datapath: with it, ovn-controller commits connections with an all-zero SNAT.
const zeroSNAT = "ct_zero_snat"

// safeMajor and safeMinor are the first release without a second entry of userspace conntrack for the replies of a connection with NAT.
const safeMajor, safeMinor = 3, 3

// AvoidZeroSNAT keeps ovn-controller from using a capability at which ovs-vswitchd aborts, and reports whether it
// changed something. With the userspace datapath of Open vSwitch before 3.3, a connection committed with an
// all-zero SNAT has two entries with the same addresses and ports. After the first has expired, a packet finds the
// second, and ovs-vswitchd ends with "assertion conn->conn_type == CT_CONN_TYPE_DEFAULT failed". So AvoidZeroSNAT
// removes the capability from the database. ovs-vswitchd writes it at its start.
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
		if d.UUID != root.Datapaths[confdb.Userspace] || d.Capabilities[zeroSNAT] != "true" || root.OVSVersion != nil && safe(*root.OVSVersion) {
			continue
		}
		set := func(mutator libovsdb.Mutator, value any) libovsdb.Mutation {
			return *libovsdb.NewMutation("capabilities", mutator, value)
		}
		pl.Ops = append(pl.Ops, libovsdb.Operation{
			Op: libovsdb.OperationMutate, Table: vswitchdb.DatapathTable,
			Where: []libovsdb.Condition{libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, libovsdb.UUID{GoUUID: d.UUID})},
			Mutations: []libovsdb.Mutation{
				set(libovsdb.MutateOperationDelete, libovsdb.OvsSet{GoSet: []any{zeroSNAT}}),
				set(libovsdb.MutateOperationInsert, libovsdb.OvsMap{GoMap: map[any]any{zeroSNAT: "false"}}),
			},
		})
	}
	return nil
}

// safe reports whether a release of Open vSwitch, such as "3.3.1", does not abort. An unknown format counts as old.
func safe(version string) bool {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (major > safeMajor || major == safeMajor && minor >= safeMinor)
}
