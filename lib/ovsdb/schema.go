package ovsdb

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/nb/nbdb"
)

// A Table is a table to be followed.
type Table struct {
	Name string
	// Columns to be followed; none means all that the model has. Columns that
	// the server has beyond the model, being newer, are never asked for.
	Columns []string
	// Where limits what is followed to the rows that fulfil any of the conditions
	// (ovsdb-server(7), monitor_cond); none means all rows.
	Where []ovsdb.Condition
}

// NBTables lists the tables of the Northbound database whose rows the suite reads
// and writes. NB_Global is none of them: of its row only the leader's token is ours.
func NBTables() []string {
	models := nbModels()
	delete(models, nbdb.NBGlobalTable)
	return slices.Sorted(maps.Keys(models))
}

func nbModels() map[string]model.Model {
	return map[string]model.Model{
		nbdb.ChassisTemplateVarTable:       &nbdb.ChassisTemplateVar{},
		nbdb.ACLTable:                      &nbdb.ACL{},
		nbdb.LoadBalancerTable:             &nbdb.LoadBalancer{},
		nbdb.LoadBalancerGroupTable:        &nbdb.LoadBalancerGroup{},
		nbdb.LogicalRouterTable:            &nbdb.LogicalRouter{},
		nbdb.LogicalRouterPolicyTable:      &nbdb.LogicalRouterPolicy{},
		nbdb.LogicalRouterPortTable:        &nbdb.LogicalRouterPort{},
		nbdb.LogicalRouterStaticRouteTable: &nbdb.LogicalRouterStaticRoute{},
		nbdb.LogicalSwitchTable:            &nbdb.LogicalSwitch{},
		nbdb.LogicalSwitchPortTable:        &nbdb.LogicalSwitchPort{},
		nbdb.MeterTable:                    &nbdb.Meter{},
		nbdb.MeterBandTable:                &nbdb.MeterBand{},
		nbdb.NBGlobalTable:                 &nbdb.NBGlobal{},
		nbdb.NATTable:                      &nbdb.NAT{},
		nbdb.PortGroupTable:                &nbdb.PortGroup{},
	}
}

// NBModel returns the model of NBTables. It has no client indexes: libovsdb
// takes a row without the key of an index for one whose value is empty, so
// that a search by one of two keys also finds everything without the other.
func NBModel() (model.ClientDBModel, error) {
	m, err := model.NewClientDBModel("OVN_Northbound", nbModels())
	if err != nil {
		return model.ClientDBModel{}, fmt.Errorf("making the Northbound model: %w", err)
	}
	return m, nil
}

// columns lists the columns of a model, given the type of a pointer to it,
// without _uuid.
func columns(t reflect.Type) []string {
	var out []string
	for i := range t.Elem().NumField() {
		if c := t.Elem().Field(i).Tag.Get("ovsdb"); c != "" && c != "_uuid" {
			out = append(out, c)
		}
	}
	return out
}

// missing lists what a model has and a server's schema lacks, as "table T" or
// "column T.C".
func missing(m model.ClientDBModel, schema ovsdb.DatabaseSchema) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(m.Types())) {
		table := schema.Table(name)
		if table == nil {
			out = append(out, "table "+name)
			continue
		}
		t := m.Types()[name]
		for _, c := range columns(t) {
			if table.Column(c) == nil {
				out = append(out, "column "+name+"."+c)
			}
		}
	}
	return out
}

// schemaError says in one line what a server's schema lacks.
func schemaError(o Options, schema ovsdb.DatabaseSchema) error {
	lacks := missing(o.Model, schema)
	if len(lacks) == 0 {
		return nil
	}
	needs := o.Needs
	if needs == "" {
		needs = "a newer release"
	}
	return fmt.Errorf("the server's schema %s %s lacks %s: %s or newer is needed", schema.Name, schema.Version, strings.Join(lacks, ", "), needs)
}
