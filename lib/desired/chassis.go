package desired

import (
	"slices"
	"strings"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/nb"
)

// chassisPrefix starts the units of hosts.
const chassisPrefix = "chassis/"

// chassisUnit is the unit of the variables of a host. id is its system-id.
func chassisUnit(id string) nb.Unit { return nb.Unit(chassisPrefix + id) }

// chassisOf is the inverse of chassisUnit. It reports false for units of other kinds.
func chassisOf(u nb.Unit) (string, bool) { return strings.CutPrefix(string(u), chassisPrefix) }

// chassisRows returns the variables of a host.
func (x *Services) chassisRows(id string) ([]nb.Row, error) {
	c, ok := x.facts.Now().Chassis[id]
	if !ok {
		return nil, nil
	}
	variables := map[string]string{}
	for f, addrs := range x.facts.Now().NodePortAddresses(c) {
		for i, a := range addrs {
			variables[loadbalancer.AddressVariable(f, i)] = a.String()
		}
		for i := len(addrs); i < x.around.Addresses[f]; i++ {
			variables[loadbalancer.AddressVariable(f, i)] = loadbalancer.NoAddress(f).String()
		}
	}
	for k := range x.onNode[c.Node] {
		for _, v := range x.local(k, c.Node).variables {
			variables[v.name] = v.value
		}
	}
	if len(variables) == 0 {
		return nil, nil
	}
	return []nb.Row{loadbalancer.VariablesRow(id, variables)}, nil
}

func (x *Services) allChassisUnits() []nb.Unit {
	return feature.UnitsOf(x.facts.Now().Chassis, chassisUnit)
}

// changedChassis returns the units of chassis added, removed, or with other addresses.
func (x *Services) changedChassis(c facts.Change) (touched []nb.Unit) {
	touched = x.chassisUnits(c.Moved...)
	if !c.Topology {
		return touched
	}
	for id := range merged(c.Was.Chassis, c.Now.Chassis) {
		o, n := c.Was.Chassis[id], c.Now.Chassis[id]
		if o.Node != n.Node || !slices.Equal(c.Was.GatewayAddresses(o), c.Now.GatewayAddresses(n)) {
			touched = append(touched, chassisUnit(id))
		}
	}
	return touched
}

// chassisUnits returns the units of the known chassis of some nodes.
func (x *Services) chassisUnits(nodes ...string) []nb.Unit {
	var units []nb.Unit
	for _, node := range nodes {
		for _, id := range x.facts.Now().ChassisOf[node] {
			units = append(units, chassisUnit(id))
		}
	}
	return units
}
