package owned

import (
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// NameOf is a row's name. For a row of a table without names it is the content unique in one router. Several routes
// may have the same name and different next hops: see routeFits.
func NameOf(m model.Model) string {
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

// OwnerOf returns the unit and the ID of a row. The unit is empty for an unowned row. A pod's port of the Python
// era, without an owner, belongs to the pod.
func OwnerOf(m model.Model) (nb.Unit, string) {
	row, ok := m.(interface{ GetExternalIDs() map[string]string })
	if !ok {
		if name := NameOf(m); strings.HasPrefix(name, ourKeys) {
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

// Model returns a copy of r's model with its owner and ID. Maps and slices are shared with r.
func Model(r nb.Row, u nb.Unit) model.Model {
	v := reflect.ValueOf(r.Model).Elem()
	m := reflect.New(v.Type())
	m.Elem().Set(v)
	if field := m.Elem().FieldByName("ExternalIDs"); field.IsValid() {
		field.Set(reflect.ValueOf(WithOwner(field.Interface().(map[string]string), u, r.ID)))
	}
	return m.Interface()
}

// WithKept returns r with the values that the existing row have keeps: see nb.Row.Keeps.
func WithKept(r nb.Row, have model.Model) nb.Row {
	if len(r.Keeps) == 0 {
		return r
	}
	owner, _ := OwnerOf(have)
	ids := have.(interface{ GetExternalIDs() map[string]string }).GetExternalIDs()
	copied := false
	for _, column := range r.Keeps {
		value, recorded := ids[names.Kept+column]
		if !recorded && owner == "" {
			value = only(ColumnOf(have, column))
		}
		if value == "" || value == only(ColumnOf(r.Model, column)) {
			continue
		}
		if !copied {
			r.Model, copied = Model(r, owner), true // with external_ids of its own
		}
		ColumnOf(r.Model, "external_ids").SetMapIndex(reflect.ValueOf(names.Kept+column), reflect.ValueOf(value))
		setOnly(ColumnOf(r.Model, column), value)
	}
	return r
}

// only is the string in a column that has a single one, else "".
func only(column reflect.Value) string {
	if column.Kind() == reflect.String {
		return column.String()
	}
	if column.Len() != 1 {
		return ""
	}
	return column.Index(0).String()
}

func setOnly(column reflect.Value, value string) {
	if column.Kind() == reflect.String {
		column.SetString(value)
		return
	}
	column.Set(reflect.ValueOf([]string{value}))
}

// WithOwner returns a copy of a row's external_ids with its owner and ID.
func WithOwner(ids map[string]string, u nb.Unit, id string) map[string]string {
	out := make(map[string]string, len(ids)+2)
	maps.Copy(out, ids)
	out[names.Owner], out[names.ID] = string(u), id
	return out
}

// Carries reports whether a row's external_ids equal the result of WithOwner, as for almost every row.
func Carries(have, ids map[string]string, u nb.Unit, id string) bool {
	if len(have) != len(ids)+2 || have[names.Owner] != string(u) || have[names.ID] != id {
		return false
	}
	for k, v := range ids {
		if h, ok := have[k]; !ok || h != v {
			return false
		}
	}
	return true
}
