package gateway

import (
	"fmt"
	"net/netip"
	"slices"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link"
)

// routesOf are those to ServiceCIDRs by the management port, except those in the settings: minion-init creates these. They
// are not known yet without the ServiceCIDRs, or without a management port to route by.
func routesOf(c config.Config, v view) (want link.Routes, known bool) {
	if v.cidrs == nil || v.host.Management == "" || len(v.host.Pods) == 0 {
		return want, false
	}
	want = link.Routes{Interface: v.host.Management, Protocol: link.ServiceProtocol, Metric: link.ServiceMetric}
	for _, to := range v.cidrs {
		if slices.ContainsFunc(c.ServiceCIDRs, to.Overlaps) || slices.ContainsFunc(v.host.Addrs, to.Contains) {
			continue // there is a route, or there must not be one
		}
		i := slices.IndexFunc(v.host.Pods, func(s netip.Prefix) bool { return ipnet.SameFamily(s.Addr(), to.Addr()) })
		if i >= 0 {
			want.Routes = append(want.Routes, link.Route{To: to, Via: topology.PodGateways(v.host.Pods[i : i+1])[0]})
		}
	}
	return want, true
}

// syncRoutes creates the routes to ServiceCIDRs.
func (e *engine) syncRoutes(v view) error {
	want, known := routesOf(e.config, v)
	if !known {
		return nil
	}
	changes, err := link.EnsureRoutes(want)
	for _, c := range changes {
		e.log.Info(c)
	}
	if err != nil {
		return fmt.Errorf("routes to ServiceCIDRs: %w", err)
	}
	return nil
}
