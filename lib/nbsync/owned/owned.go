// Package owned lists the columns and keys of the Northbound database that nbsync writes, and compares rows by them.
package owned

import (
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// A Table lists our columns and keys of a Northbound table.
type Table struct {
	Model model.Model
	// Columns are compared and written whole.
	Columns []string
	// Keys are our keys of map columns, as prefixes of their names in addition to ourKeys; all other keys belong to
	// others.
	Keys map[string][]string
	// Once are prefixes of keys of external_ids written with a new row only, see nb.Row.OnlyNew: Handler does not
	// report their changes.
	Once []string
	// Refs are the set columns with references to rows of the tables here: filled by nb.Row.In of those rows, or by
	// nb.Row.Has of the row itself (Has).
	Refs, Has []string
	// HasOf is the table of the rows in Has.
	HasOf string
	// Weak are weak references: columns of Refs that do not keep rows alive, with the table referred to. A row may
	// be in any number of them, also in those of unowned rows.
	Weak map[string]string
	// Shared are columns of Refs with rows that may stay without this reference, with the table referred to.
	Shared map[string]string
	// Leaf tables have no references from other rows of ours. Their rows come in thousands.
	Leaf bool
	// Independent: rows of units with this table, and no others but ACLs, isolate no pod. They may change in a
	// transaction of their own.
	Independent bool
	// Permanent tables have rows with UUIDs that follow from their IDs.
	Permanent bool
	// Root tables keep unreferenced rows (isRoot in the schema).
	Root bool
	// Nameless tables have rows identified by their content within their parent row: see NameOf.
	Nameless bool
	// Drain is a map column. Our keys in it are removed in an earlier transaction than the row: see nbsync.ErrDraining.
	Drain string
	// ReportAdded has Handler report added rows.
	ReportAdded bool
	// Kind is the name of a row of this table in messages.
	Kind string
	// Adoptable reports whether an unowned row may be adopted for the wanted model: see nb.Row.Adopt.
	Adoptable func(have, want model.Model) bool
	// Maps are the columns of Keys, sorted.
	Maps []string
}

// ourKeys is the prefix of our keys in external_ids of every table.
const ourKeys = "ovn-k8s-"

// Tables lists our tables. No other table is read or written: columns of northd, and columns and keys of the
// operator, stay as they are.
func Tables() map[string]*Table {
	tables := map[string]*Table{
		nbdb.LogicalRouterTable: {
			Model: &nbdb.LogicalRouter{}, Root: true, Permanent: true, Kind: "logical router",
			Columns: []string{"name"},
			Keys: map[string][]string{
				"external_ids": {names.ClusterRouterTag, names.PhysicalIP, names.FirstGateway},
				"options":      {"chassis", "lb_force_snat_ip", "always_learn_from_arp_request", "mac_binding_age_threshold"},
			},
			Once:      []string{names.NodePrefix, names.ChassisPrefix, names.GatewayPrefix, names.SubnetLengths, names.NumberedBy},
			Refs:      []string{"ports", "nat", "static_routes", "policies", "load_balancer", "load_balancer_group"},
			Shared:    map[string]string{"load_balancer": nbdb.LoadBalancerTable},
			Has:       []string{"load_balancer_group"},
			HasOf:     nbdb.LoadBalancerGroupTable,
			Adoptable: routerFits,
		},
		nbdb.NATTable: {
			Model: &nbdb.NAT{}, Kind: "NAT", Nameless: true,
			Columns:   []string{"type", "logical_ip", "external_ip", "external_port_range"},
			Keys:      map[string][]string{"external_ids": nil},
			Adoptable: sameName,
		},
		nbdb.LogicalRouterStaticRouteTable: {
			Model: &nbdb.LogicalRouterStaticRoute{}, Kind: "static route", Nameless: true, ReportAdded: true,
			Columns:   []string{"ip_prefix", "nexthop", "policy", "output_port", "route_table"},
			Keys:      map[string][]string{"external_ids": nil},
			Adoptable: routeFits,
		},
		nbdb.LogicalRouterPolicyTable: {
			Model: &nbdb.LogicalRouterPolicy{}, Kind: "router policy", Nameless: true, ReportAdded: true,
			Columns:   []string{"priority", "match", "action", "nexthops"},
			Keys:      map[string][]string{"external_ids": nil},
			Adoptable: sameName,
		},
		nbdb.LogicalRouterPortTable: {
			Model: &nbdb.LogicalRouterPort{}, Kind: "logical router port",
			Columns: []string{"name", "mac", "networks"},
			Keys: map[string][]string{
				"external_ids": {names.ConnectToJoin, names.GatewayPhysicalIP},
				"options":      {"gateway_mtu"},
			},
			Adoptable: sameName,
		},
		nbdb.LogicalSwitchTable: {
			Model: &nbdb.LogicalSwitch{}, Root: true, Permanent: true, Kind: "logical switch",
			Columns:   []string{"name"},
			Keys:      map[string][]string{"external_ids": {names.GatewayIP}, "other_config": {"subnet"}},
			Refs:      []string{"ports", "load_balancer", "load_balancer_group", "acls"},
			Shared:    map[string]string{"load_balancer": nbdb.LoadBalancerTable, "acls": nbdb.ACLTable},
			Has:       []string{"load_balancer_group"},
			HasOf:     nbdb.LoadBalancerGroupTable,
			Adoptable: switchFits,
		},
		nbdb.LogicalSwitchPortTable: {
			Model: &nbdb.LogicalSwitchPort{}, Kind: "logical port", Leaf: true,
			Columns: []string{"name", "type", "addresses", "port_security", "parent_name", "tag_request"},
			Keys: map[string][]string{
				"external_ids": {names.Namespace, names.Pod},
				"options":      {"router-port", "requested-chassis", names.IfaceIDVer},
			},
			Adoptable: sameName,
		},
		nbdb.PortGroupTable: {
			Model: &nbdb.PortGroup{}, Root: true, Kind: "port group",
			Columns:   []string{"name"},
			Keys:      map[string][]string{"external_ids": nil},
			Refs:      []string{"ports", "acls"},
			Weak:      map[string]string{"ports": nbdb.LogicalSwitchPortTable},
			Adoptable: sameName,
		},
		nbdb.ACLTable: {
			Model: &nbdb.ACL{}, Kind: "ACL", Nameless: true,
			Columns:   []string{"name", "priority", "direction", "match", "action", "log", "severity", "meter"},
			Keys:      map[string][]string{"options": {names.AfterLB}},
			Adoptable: sameName,
		},
		nbdb.AddressSetTable: {
			Model: &nbdb.AddressSet{}, Root: true, Kind: "address set",
			Columns:   []string{"name", "addresses"},
			Keys:      map[string][]string{"external_ids": nil},
			Adoptable: sameName,
		},
		nbdb.MeterTable: {
			Model: &nbdb.Meter{}, Root: true, Kind: "meter",
			Columns:   []string{"name", "unit", "fair"},
			Refs:      []string{"bands"},
			Has:       []string{"bands"},
			HasOf:     nbdb.MeterBandTable,
			Adoptable: sameName,
		},
		nbdb.MeterBandTable: {
			Model: &nbdb.MeterBand{}, Kind: "meter band", Nameless: true,
			Columns:   []string{"action", "rate"},
			Adoptable: sameName,
		},
		nbdb.LoadBalancerGroupTable: {
			Model: &nbdb.LoadBalancerGroup{}, Root: true, Kind: "load balancer group",
			Columns:   []string{"name"},
			Refs:      []string{"load_balancer"},
			Shared:    map[string]string{"load_balancer": nbdb.LoadBalancerTable},
			Adoptable: sameName,
		},
		nbdb.LoadBalancerTable: {
			Model: &nbdb.LoadBalancer{}, Root: true, Kind: "load balancer", Leaf: true, Independent: true,
			Columns: []string{"name", "protocol", "selection_fields"},
			Keys: map[string][]string{
				"options": {"reject", "affinity_timeout", "ct_flush", "skip_snat", "template", "address-family", "neighbor_responder"},
				"vips":    {""}, // all of them
			},
			Adoptable: sameName,
		},
		nbdb.ChassisTemplateVarTable: {
			Model: &nbdb.ChassisTemplateVar{}, Root: true, Permanent: true, Kind: "Chassis_Template_Var", Independent: true,
			Columns: []string{"chassis"}, Drain: "variables",
			Keys:      map[string][]string{"variables": {names.VariablePrefix}},
			Adoptable: sameName,
		},
	}
	for _, t := range tables {
		t.Maps = slices.Sorted(maps.Keys(t.Keys))
	}
	return tables
}

// Columns lists, by table, the columns a client must follow for Sync. Other columns change much more often, such as
// up of Logical_Switch_Port.
func Columns() map[string][]string {
	columns := map[string][]string{}
	for name, t := range Tables() {
		all := slices.Concat(t.Columns, t.Refs, t.Maps)
		if slices.ContainsFunc(nb.Columns(t.Model), func(c nb.Column) bool { return c.Name == "external_ids" }) {
			all = append(all, "external_ids")
		}
		slices.Sort(all)
		columns[name] = slices.Compact(all)
	}
	return columns
}

func sameName(have, want model.Model) bool { return NameOf(have) == NameOf(want) }

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
