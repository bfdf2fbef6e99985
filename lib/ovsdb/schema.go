package ovsdb

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/nb/nbdb"
)

// A Table is a table to follow.
type Table struct {
	Name string
	// Columns are the columns to follow; none means all of the model. Further columns of a newer server are never
	// requested.
	Columns []string
	// Where limits the table to rows with any of the conditions (ovsdb-server(7), monitor_cond); none means all
	// rows.
	Where []ovsdb.Condition
}

// NBTables lists the tables of the Northbound database read and written by the suite. NB_Global is not among them:
// only the leader's token in its row is ours.
func NBTables() []string {
	models := nbModels()
	delete(models, nbdb.NBGlobalTable)
	return slices.Sorted(maps.Keys(models))
}

func nbModels() map[string]model.Model {
	return map[string]model.Model{
		nbdb.ChassisTemplateVarTable:       &nbdb.ChassisTemplateVar{},
		nbdb.ACLTable:                      &nbdb.ACL{},
		nbdb.AddressSetTable:               &nbdb.AddressSet{},
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

// NBModel returns the model of NBTables. It has no client indexes: libovsdb treats a row without the key of an
// index like a row with an empty value, so a search by one of two keys would also find all rows without the other.
func NBModel() (model.ClientDBModel, error) {
	m, err := model.NewClientDBModel("OVN_Northbound", nbModels())
	if err != nil {
		return model.ClientDBModel{}, fmt.Errorf("making the Northbound model: %w", err)
	}
	return m, nil
}

// columns lists the columns of a model with their types, given the type of a pointer to it, without _uuid.
func columns(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.Elem().NumField() {
		if c := t.Elem().Field(i).Tag.Get("ovsdb"); c != "" && c != "_uuid" {
			out[c] = t.Elem().Field(i).Type
		}
	}
	return out
}

// A difference is what a server's schema has in another way than a model: parts as "table T" or "column T.C".
type difference struct{ missing, types []string }

// compare finds the difference between a model and a server's schema.
func compare(m model.ClientDBModel, schema ovsdb.DatabaseSchema) (d difference) {
	for _, name := range slices.Sorted(maps.Keys(m.Types())) {
		table := schema.Table(name)
		if table == nil {
			d.missing = append(d.missing, "table "+name)
			continue
		}
		want := columns(m.Types()[name])
		for _, c := range slices.Sorted(maps.Keys(want)) {
			switch is := table.Column(c); {
			case is == nil:
				d.missing = append(d.missing, "column "+name+"."+c)
			case ovsdb.NativeType(is) != want[c]:
				d.types = append(d.types, "column "+name+"."+c)
			}
		}
	}
	return d
}

// schemaError lists, in one line, the tables and columns missing in a server's schema, or else those of another type.
func schemaError(o Options, schema ovsdb.DatabaseSchema) error {
	d, server := compare(o.Model, schema), "the server's schema "+schema.Name+" "+schema.Version
	switch {
	case len(d.missing) > 0:
		return fmt.Errorf("%s lacks %s: %s or newer is needed", server, strings.Join(d.missing, ", "), cmp.Or(o.Needs, "a newer release"))
	case len(d.types) > 0:
		return fmt.Errorf("%s has another type of %s than this program knows: install a release of this program for that schema", server, strings.Join(d.types, ", "))
	}
	return nil
}

// Allows reports whether the database's schema allows a value for a column, an enumeration. It is false without a
// connection.
func (db *DB) Allows(table, column, value string) bool {
	c := db.Client()
	if c == nil {
		return false
	}
	col := c.Schema().Tables[table].Columns[column]
	return col != nil && col.TypeObj != nil && col.TypeObj.Key != nil && slices.Contains(col.TypeObj.Key.Enum, any(value))
}
