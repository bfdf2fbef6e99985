package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/cache"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/nbsync/owned"
	"ovn-k8s/lib/ovsdb"
)

// errReadAll: the rows of one node are not enough.
var errReadAll = errors.New("all rows are needed")

// maxConflicts is how often a node's change is repeated before all rows are read.
const maxConflicts = 5

// readNode reads the record of the topology and the rows of the node s.only. For a cluster of the Python era it
// returns errReadAll: its nodes are not in the record.
func (s *Store) readNode(ctx context.Context) (state, error) {
	rows, err := s.db.Select(ctx, nodeQueries(s.only)...)
	if err != nil {
		return state{}, err
	}
	w, err := newState(rows.Cache())
	if err != nil || !w.Recorded() || w.Router.Name != names.ClusterRouter {
		return state{}, errors.Join(err, errReadAll)
	}
	if err := rows.Add(ctx, recordQueries(w)...); err != nil {
		return state{}, err
	}
	if err := rows.Add(ctx, memberQueries(rows.Cache(), w.Router.UUID, s.only)...); err != nil {
		return state{}, err
	}
	w, err = newState(rows.Cache())
	w.few = rows
	return w, err
}

// nodeQueries read the rows compared by NodeRows and their references, except for the switch's ports: for each name
// the server would scan the ports of all pods. Of the router they read the UUID only: the record is large, and
// recordQueries read it once.
func nodeQueries(node string) []ovsdb.Query {
	router := func(where []libovsdb.Condition, known libovsdb.Row) ovsdb.Query {
		return ovsdb.Query{Table: nbdb.LogicalRouterTable, Columns: []string{"name"}, Where: where, Known: known}
	}
	tagged := func(key, value string) ovsdb.Query {
		tag := libovsdb.OvsMap{GoMap: map[any]any{key: value}}
		return router(where("external_ids", libovsdb.ConditionIncludes, tag), libovsdb.Row{"external_ids": tag})
	}
	queries := []ovsdb.Query{
		router(where("name", libovsdb.ConditionEqual, names.ClusterRouter), nil),
		tagged(names.ClusterRouterTag, "yes"),
		tagged(names.ID, names.ClusterRouter),
	}
	named := func(table, name string, columns ...string) {
		queries = append(queries, ovsdb.Query{Table: table, Columns: append(columns, "name"), Where: where("name", libovsdb.ConditionEqual, name)})
	}
	named(nbdb.LogicalSwitchTable, node, "external_ids", "other_config", "ports", "load_balancer_group")
	named(nbdb.LogicalRouterPortTable, names.RouterToSwitch(node), "external_ids", "options", "mac", "networks")
	named(nbdb.LoadBalancerGroupTable, names.LoadBalancerGroup)
	named(nbdb.LoadBalancerGroupTable, names.SwitchLoadBalancerGroup)
	named(nbdb.PortGroupTable, names.EntryPortGroup, "external_ids")
	return queries
}

// recordQueries read the record, and the ports of the node's switch.
func recordQueries(w state) []ovsdb.Query {
	queries := []ovsdb.Query{{Table: nbdb.LogicalRouterTable, Columns: []string{"external_ids"}, Where: whereUUID(w.Router.UUID)}}
	for _, sw := range w.Switches {
		for _, uuid := range sw.Ports {
			queries = append(queries, ovsdb.Query{
				Table: nbdb.LogicalSwitchPortTable, Columns: owned.Columns()[nbdb.LogicalSwitchPortTable], Where: whereUUID(uuid),
			})
		}
	}
	return queries
}

// memberQueries ask whether the router and the port group contain the node's ports, instead of reading all their
// ports.
func memberQueries(c *cache.TableCache, router, node string) (queries []ovsdb.Query) {
	ask := func(table, uuid, port string) {
		member := libovsdb.OvsSet{GoSet: []any{libovsdb.UUID{GoUUID: port}}}
		queries = append(queries, ovsdb.Query{
			Table: table, Known: libovsdb.Row{"ports": member},
			Where: append(whereUUID(uuid), libovsdb.NewCondition("ports", libovsdb.ConditionIncludes, member)),
		})
	}
	for _, p := range list[nbdb.LogicalRouterPort](c, nbdb.LogicalRouterPortTable) {
		ask(nbdb.LogicalRouterTable, router, p.UUID)
	}
	for _, p := range list[nbdb.LogicalSwitchPort](c, nbdb.LogicalSwitchPortTable) {
		for _, g := range list[nbdb.PortGroup](c, nbdb.PortGroupTable) {
			if p.Name == names.SwitchToRouter(node) {
				ask(nbdb.PortGroupTable, g.UUID, p.UUID)
			}
		}
	}
	return queries
}

func whereUUID(uuid string) []libovsdb.Condition {
	return where("_uuid", libovsdb.ConditionEqual, libovsdb.UUID{GoUUID: uuid})
}

func where(column string, f libovsdb.ConditionFunction, value any) []libovsdb.Condition {
	return []libovsdb.Condition{libovsdb.NewCondition(column, f, value)}
}

// changeNode gives the node s.only its rows and its keys of the record. Nodes can do this at the same time. It
// returns errReadAll if more has to change, or if the change keeps failing.
func (s *Store) changeNode(ctx context.Context, w state, after topology.Cluster) ([]nbsync.Change, error) {
	before := w.Topology()
	if !before.EqualBut(s.only, after) {
		return nil, errReadAll
	}
	unit := topology.NodeUnit(s.only)
	want := map[nb.Unit][]nb.Row{unit: after.NodeRows(s.only)}
	changes, err := (&nbsync.Sync{DB: w.few}).ApplyWith(ctx, want, w.nodeKeys(s.only, after), w.nodeGuards(s.only, after)...)
	if errors.Is(err, nbsync.ErrConflict) {
		s.conflicts++
		if s.conflicts < maxConflicts || !after.OneLength() {
			return nil, err
		}
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, ovsdb.ErrNotConnected) {
		return changes, err
	}
	return nil, fmt.Errorf("%w: %w", errReadAll, err)
}

// nodeKeys are the keys of the record changed with a node: its own, and the lengths of all subnets.
func (w state) nodeKeys(node string, after topology.Cluster) nbsync.Keys {
	k := nbsync.Keys{
		Table: nbdb.LogicalRouterTable, UUID: w.Router.UUID, Column: "external_ids", Old: map[string]string{}, New: map[string]string{},
	}
	replace := func(key, want string) {
		if have := w.Router.ExternalIDs[key]; have != want {
			if want != "" {
				k.New[key] = want
			}
			if have != "" {
				k.Old[key] = have
			}
		}
	}
	replace(names.NodePrefix+node, ipnet.Join(after.Nodes[node]))
	replace(names.ChassisPrefix+node, after.Chassis[node])
	if len(k.New) > 0 {
		replace(names.SubnetLengths, after.Lengths())
	}
	return k
}

// nodeGuards are the preconditions of a node's change, in addition to its own keys. As long as all subnets of a
// family have one length, a subnet is free if no other router port has its first address: each recorded node has
// such a port. Otherwise the whole record must be unchanged. A former release removes SubnetLengths with each
// change, so this key is compared as well.
func (w state) nodeGuards(node string, after topology.Cluster) []nbsync.Guard {
	before, record := w.Topology(), w.Router.ExternalIDs
	subnets := map[string]string{names.ClusterSubnets: record[names.ClusterSubnets], names.JoinSubnets: record[names.JoinSubnets]}
	if slices.Equal(before.Nodes[node], after.Nodes[node]) {
		subnets[names.NodePrefix+node] = record[names.NodePrefix+node]
		return []nbsync.Guard{nbsync.Includes(nbdb.LogicalRouterTable, w.Router.UUID, "external_ids", subnets)}
	}
	subnets[names.SubnetLengths] = record[names.SubnetLengths]
	if before.Lengths() != record[names.SubnetLengths] || after.Lengths() != before.Lengths() || !after.OneLength() {
		return []nbsync.Guard{nbsync.Unchanged(nbdb.LogicalRouterTable, w.Router, "external_ids")}
	}
	guards := []nbsync.Guard{
		nbsync.Includes(nbdb.LogicalRouterTable, w.Router.UUID, "external_ids", subnets),
		nbsync.Excludes(nbdb.LogicalRouterTable, w.Router.UUID, "external_ids", names.NumberedBy, names.Ovnkube),
	}
	for _, s := range after.Nodes[node] {
		first := ipnet.Join(topology.RouterAddresses(s))
		guards = append(guards, nbsync.Alone(nbdb.LogicalRouterPortTable, names.RouterToSwitch(node), "networks", first))
	}
	return guards
}
