package desired

import (
	"fmt"
	"maps"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// changedGateways returns the units of gateways that have other rows in one
// topology than in the other.
func changedGateways(old, c topology.Cluster) []nb.Unit {
	names := maps.Clone(c.Gateways)
	if names == nil {
		names = map[string]topology.Gateway{}
	}
	maps.Copy(names, old.Gateways)
	text := func(c topology.Cluster, name string) string {
		return fmt.Sprint(c.GatewayRows(name), c.GatewayRoutes(name))
	}
	var touched []nb.Unit
	for name := range names {
		if text(old, name) != text(c, name) {
			touched = append(touched, topology.GatewayUnit(name))
		}
	}
	return touched
}

// gatewayRows returns the rows of a gateway.
func (w *World) gatewayRows(name string) []nb.Row {
	return append(w.cluster.GatewayRows(name), w.cluster.GatewayRoutes(name)...)
}
