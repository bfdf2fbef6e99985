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

// hosts has the template variables of hosts: their addresses, and the variables of Services with endpoints there.
type hosts struct {
	facts *facts.Index
	local *localIndex
	// addresses is the largest number of IPv4 and of IPv6 addresses of a host: all have as many variables.
	addresses [2]int
}

// Units implements feature.Feature.
func (x *hosts) Units() []feature.Units {
	return []feature.Units{feature.Named(feature.Gateways, chassisPrefix, chassisOf, x.rows, x.all)}
}

// rows returns the variables of a host.
func (x *hosts) rows(id string) ([]nb.Row, error) {
	c, ok := x.facts.Now().Chassis[id]
	if !ok {
		return nil, nil
	}
	variables := map[string]string{}
	for f, addrs := range x.facts.Now().NodePortAddresses(c) {
		for i, a := range addrs {
			variables[loadbalancer.AddressVariable(f, i)] = a.String()
		}
		for i := len(addrs); i < x.addresses[f]; i++ {
			variables[loadbalancer.AddressVariable(f, i)] = loadbalancer.NoAddress(f).String()
		}
	}
	for k := range x.local.on[c.Node] {
		for _, v := range x.local.of(k, c.Node).variables {
			variables[v.name] = v.value
		}
	}
	if len(variables) == 0 {
		return nil, nil
	}
	return []nb.Row{loadbalancer.VariablesRow(id, variables)}, nil
}

func (x *hosts) all() []nb.Unit {
	return feature.UnitsOf(x.facts.Now().Chassis, chassisUnit)
}

// FactsChanged returns the units of chassis added, removed, or with other addresses.
func (x *hosts) FactsChanged(c facts.Change) (touched []nb.Unit) {
	touched = x.units(c.Moved...)
	if !c.Topology || !c.Surroundings {
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

// setAddresses records the largest number of addresses of a host. It returns the units of all hosts if it differs.
func (x *hosts) setAddresses(most [2]int) []nb.Unit {
	if x.addresses == most {
		return nil
	}
	x.addresses = most
	return x.all()
}

// units returns the units of the known chassis of some nodes.
func (x *hosts) units(nodes ...string) []nb.Unit {
	var units []nb.Unit
	for _, node := range nodes {
		for _, id := range x.facts.Now().ChassisOf[node] {
			units = append(units, chassisUnit(id))
		}
	}
	return units
}
