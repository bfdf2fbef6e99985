package nbsync

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/model"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// A table lists our columns and keys of a Northbound table.
type table struct {
	model model.Model
	// columns are compared and written whole.
	columns []string
	// keys are our keys of map columns, as prefixes of their names in addition to ourKeys; all other keys belong to
	// others.
	keys map[string][]string
	// once are prefixes of keys of external_ids written with a new row only, see nb.Row.OnlyNew: Handler does not
	// report their changes.
	once []string
	// refs are the set columns with references to rows of the tables here: filled by nb.Row.In of those rows, or by
	// nb.Row.Has of the row itself (has).
	refs, has []string
	// weak are weak references: columns of refs that do not keep rows alive, with the table referred to. A row may
	// be in any number of them, also in those of unowned rows.
	weak map[string]string
	// leaf tables have no references from other rows of ours. Their rows come in thousands.
	leaf bool
	// independent: rows of units with this table, and no others but ACLs, isolate no pod. They may change in a transaction of
	// their own.
	independent bool
	// permanent tables have rows with UUIDs that follow from their IDs: see permanentUUID.
	permanent bool
	// root tables keep unreferenced rows (isRoot in the schema).
	root bool
	// nameless tables have rows identified by their content within their parent row: see nameOf.
	nameless bool
	// drain is a map column. Our keys in it are removed in an earlier transaction than the row: see ErrDraining.
	drain string
	// reportAdded has Handler report added rows.
	reportAdded bool
	// kind is the name of a row of this table in messages.
	kind string
	// adoptable reports whether an unowned row may be adopted for the wanted model: see nb.Row.Adopt.
	adoptable func(have, want model.Model) bool
	// maps are the columns of keys, sorted.
	maps []string
}

// ourKeys is the prefix of our keys in external_ids of every table.
const ourKeys = "ovn-k8s-"

// owned lists our tables. No other table is read or written: columns of northd, and columns and keys of the
// operator, stay as they are.
func owned() map[string]*table {
	tables := map[string]*table{
		nbdb.LogicalRouterTable: {
			model: &nbdb.LogicalRouter{}, root: true, permanent: true, kind: "logical router",
			columns: []string{"name"},
			keys: map[string][]string{
				"external_ids": {names.ClusterRouterTag, names.PhysicalIP, names.FirstGateway},
				"options":      {"chassis", "lb_force_snat_ip", "always_learn_from_arp_request", "mac_binding_age_threshold"},
			},
			once:      []string{names.NodePrefix, names.ChassisPrefix, names.GatewayPrefix, names.SubnetLengths},
			refs:      []string{"ports", "nat", "static_routes", "policies", "load_balancer", "load_balancer_group"},
			has:       []string{"load_balancer_group"},
			adoptable: routerFits,
		},
		nbdb.NATTable: {
			model: &nbdb.NAT{}, kind: "NAT", nameless: true,
			columns:   []string{"type", "logical_ip", "external_ip", "external_port_range"},
			keys:      map[string][]string{"external_ids": nil},
			adoptable: sameName,
		},
		nbdb.LogicalRouterStaticRouteTable: {
			model: &nbdb.LogicalRouterStaticRoute{}, kind: "static route", nameless: true, reportAdded: true,
			columns:   []string{"ip_prefix", "nexthop", "policy", "output_port", "route_table"},
			keys:      map[string][]string{"external_ids": nil},
			adoptable: routeFits,
		},
		nbdb.LogicalRouterPolicyTable: {
			model: &nbdb.LogicalRouterPolicy{}, kind: "router policy", nameless: true, reportAdded: true,
			columns:   []string{"priority", "match", "action", "nexthops"},
			keys:      map[string][]string{"external_ids": nil},
			adoptable: sameName,
		},
		nbdb.LogicalRouterPortTable: {
			model: &nbdb.LogicalRouterPort{}, kind: "logical router port",
			columns: []string{"name", "mac", "networks"},
			keys: map[string][]string{
				"external_ids": {names.ConnectToJoin, names.GatewayPhysicalIP},
				"options":      {"gateway_mtu"},
			},
			adoptable: sameName,
		},
		nbdb.LogicalSwitchTable: {
			model: &nbdb.LogicalSwitch{}, root: true, permanent: true, kind: "logical switch",
			columns:   []string{"name"},
			keys:      map[string][]string{"external_ids": {names.GatewayIP}, "other_config": {"subnet"}},
			refs:      []string{"ports", "load_balancer", "load_balancer_group", "acls"},
			has:       []string{"load_balancer_group"},
			adoptable: switchFits,
		},
		nbdb.LogicalSwitchPortTable: {
			model: &nbdb.LogicalSwitchPort{}, kind: "logical port", leaf: true,
			columns: []string{"name", "type", "addresses", "port_security", "parent_name", "tag_request"},
			keys: map[string][]string{
				"external_ids": {names.Namespace, names.Pod},
				"options":      {"router-port", "requested-chassis", names.IfaceIDVer},
			},
			adoptable: sameName,
		},
		nbdb.PortGroupTable: {
			model: &nbdb.PortGroup{}, root: true, kind: "port group",
			columns:   []string{"name"},
			keys:      map[string][]string{"external_ids": nil},
			refs:      []string{"ports", "acls"},
			weak:      map[string]string{"ports": nbdb.LogicalSwitchPortTable},
			adoptable: sameName,
		},
		nbdb.ACLTable: {
			model: &nbdb.ACL{}, kind: "ACL", nameless: true,
			columns:   []string{"name", "priority", "direction", "match", "action", "log", "severity", "meter"},
			keys:      map[string][]string{"options": {names.AfterLB}},
			adoptable: sameName,
		},
		nbdb.AddressSetTable: {
			model: &nbdb.AddressSet{}, root: true, kind: "address set",
			columns:   []string{"name", "addresses"},
			keys:      map[string][]string{"external_ids": nil},
			adoptable: sameName,
		},
		nbdb.MeterTable: {
			model: &nbdb.Meter{}, root: true, kind: "meter",
			columns:   []string{"name", "unit", "fair"},
			refs:      []string{"bands"},
			has:       []string{"bands"},
			adoptable: sameName,
		},
		nbdb.MeterBandTable: {
			model: &nbdb.MeterBand{}, kind: "meter band", nameless: true,
			columns:   []string{"action", "rate"},
			adoptable: sameName,
		},
		nbdb.LoadBalancerGroupTable: {
			model: &nbdb.LoadBalancerGroup{}, root: true, kind: "load balancer group",
			columns:   []string{"name"},
			refs:      []string{"load_balancer"},
			adoptable: sameName,
		},
		nbdb.LoadBalancerTable: {
			model: &nbdb.LoadBalancer{}, root: true, kind: "load balancer", leaf: true, independent: true,
			columns: []string{"name", "protocol", "selection_fields"},
			keys: map[string][]string{
				"options": {"reject", "affinity_timeout", "ct_flush", "skip_snat", "template", "address-family", "neighbor_responder"},
				"vips":    {""}, // all of them
			},
			adoptable: sameName,
		},
		nbdb.ChassisTemplateVarTable: {
			model: &nbdb.ChassisTemplateVar{}, root: true, permanent: true, kind: "Chassis_Template_Var", independent: true,
			columns: []string{"chassis"}, drain: "variables",
			keys:      map[string][]string{"variables": {names.VariablePrefix}},
			adoptable: sameName,
		},
	}
	for _, t := range tables {
		t.maps = slices.Sorted(maps.Keys(t.keys))
	}
	return tables
}

// Columns lists, by table, the columns a client must follow for Sync. Other columns change much more often, such as
// up of Logical_Switch_Port.
func Columns() map[string][]string {
	columns := map[string][]string{}
	for name, t := range owned() {
		all := slices.Concat(t.columns, t.refs, t.maps)
		if slices.ContainsFunc(nb.Columns(t.model), func(c nb.Column) bool { return c.Name == "external_ids" }) {
			all = append(all, "external_ids")
		}
		slices.Sort(all)
		columns[name] = slices.Compact(all)
	}
	return columns
}

func sameName(have, want model.Model) bool { return nameOf(have) == nameOf(want) }

// switchFits accepts the join switch, and a node's or gateway's switch of the Python era, but no switch of another
// owner with the same name.
func switchFits(have, want model.Model) bool {
	h := have.(*nbdb.LogicalSwitch)
	return sameName(have, want) &&
		(h.Name == names.JoinSwitch || h.ExternalIDs[names.GatewayIP] != "" || strings.HasPrefix(h.Name, names.ExternalSwitch("")))
}

// routerFits accepts, for a gateway's router, a gateway of the same name, and for the cluster router the existing
// one, with any name.
func routerFits(have, want model.Model) bool {
	h, w := have.(*nbdb.LogicalRouter), want.(*nbdb.LogicalRouter)
	if w.Options["chassis"] != "" {
		return h.Name == w.Name && h.Options["chassis"] != ""
	}
	return h.ExternalIDs[names.ClusterRouterTag] == "yes" || h.Name == names.ClusterRouter
}

// routeFits accepts a route with the same next hop, and a route out of a gateway with any next hop.
func routeFits(have, want model.Model) bool {
	h, w := have.(*nbdb.LogicalRouterStaticRoute), want.(*nbdb.LogicalRouterStaticRoute)
	return h.Nexthop == w.Nexthop || h.OutputPort != nil && w.OutputPort != nil && *h.OutputPort == *w.OutputPort
}

// nameOf is a row's name. For a row of a table without names it is the content unique in one router. Several routes
// may have the same name and different next hops: see routeFits.
func nameOf(m model.Model) string {
	switch m := m.(type) {
	case *nbdb.NAT:
		return m.Type + " of " + m.LogicalIP
	case *nbdb.ChassisTemplateVar:
		return m.Chassis
	case *nbdb.LogicalRouterStaticRoute:
		if m.Policy != nil && *m.Policy == nbdb.LogicalRouterStaticRoutePolicySrcIP {
			return "from " + m.IPPrefix
		}
		return m.RouteTable + "to " + m.IPPrefix
	case *nbdb.ACL:
		return fmt.Sprintf("%s %d: %s", m.Direction, m.Priority, m.Match)
	case *nbdb.MeterBand:
		return fmt.Sprintf("%s at %d", m.Action, m.Rate)
	case *nbdb.LogicalRouterPolicy:
		return fmt.Sprintf("%d: %s", m.Priority, m.Match)
	}
	return m.(interface{ GetName() string }).GetName()
}

// clusterUnit owns the rows of tables without external_ids. In OVN 23.03 this is Load_Balancer_Group: a row with
// our prefix in its name is ours.
const clusterUnit nb.Unit = "cluster"

// ownerOf returns the unit and the ID of a row. The unit is empty for an unowned row. A pod's port of the Python
// era, without an owner, belongs to the pod.
func ownerOf(m model.Model) (nb.Unit, string) {
	row, ok := m.(interface{ GetExternalIDs() map[string]string })
	if !ok {
		if name := nameOf(m); strings.HasPrefix(name, ourKeys) {
			return clusterUnit, name
		}
		return "", ""
	}
	ids := row.GetExternalIDs()
	if port, ok := m.(*nbdb.LogicalSwitchPort); ok && ids[names.Owner] == "" && ids[names.Pod] == "true" {
		if name, ok := strings.CutPrefix(port.Name, ids[names.Namespace]+"_"); ok {
			return nb.Unit("pod/" + ids[names.Namespace] + "/" + name), port.Name
		}
	}
	return nb.Unit(ids[names.Owner]), ids[names.ID]
}

// ours reports whether a key of a map column is ours.
func ours(key string, prefixes []string) bool {
	if strings.HasPrefix(key, ourKeys) {
		return true
	}
	for _, p := range prefixes {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}

// refs returns the UUIDs in a set column. m may be nil.
func refs(m model.Model, column string) []string {
	if m == nil {
		return nil
	}
	uuids, _ := columnOf(m, column).Interface().([]string)
	return uuids
}

// columnOf returns the field of a model for a column.
func columnOf(m model.Model, column string) reflect.Value {
	v := reflect.ValueOf(m).Elem()
	i, ok := fields(v.Type())[column]
	if !ok {
		panic("nbsync: " + v.Type().Name() + " has no column " + column)
	}
	return v.Field(i)
}

// fieldsOf caches the results of fields, by type.
var fieldsOf sync.Map

// fields returns the index of the field of each column in a model's type.
func fields(t reflect.Type) map[string]int {
	if known, ok := fieldsOf.Load(t); ok {
		return known.(map[string]int)
	}
	index := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		index[t.Field(i).Tag.Get("ovsdb")] = i
	}
	fieldsOf.Store(t, index)
	return index
}
