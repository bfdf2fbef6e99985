package gateway

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/link"
)

// takeCIDRs records the subnets of ServiceCIDRs. Only routes wait for them.
func (e *engine) takeCIDRs(ev kube.Event) []string {
	now := maps.Clone(e.cidrs)
	switch {
	case ev.Replace:
		now = map[string]servicecidr.Ranges{}
		for _, o := range ev.Objects {
			c := o.(*networkingv1.ServiceCIDR)
			now[c.Name] = servicecidr.Of(c)
		}
	case ev.Gone:
		delete(now, ev.Object.(*networkingv1.ServiceCIDR).Name)
	default:
		c := ev.Object.(*networkingv1.ServiceCIDR)
		now[c.Name] = servicecidr.Of(c)
	}
	if e.cidrs != nil && maps.EqualFunc(e.cidrs, now, slices.Equal) {
		return nil
	}
	e.cidrs = now
	return []string{partRoutes}
}

// syncRoutes creates routes to ServiceCIDRs by the management port, except those
// in the settings: minion-init creates these.
func (e *engine) syncRoutes(v view) error {
	if v.cidrs == nil || v.host.Management == "" || len(v.host.Pods) == 0 {
		return nil // not known yet, or no management port to route by
	}
	want := link.Routes{Interface: v.host.Management, Protocol: link.ServiceProtocol, Metric: link.ServiceMetric}
	for _, to := range v.cidrs {
		there := slices.Concat(e.config.ServiceCIDRs, e.config.ClusterSubnets, e.config.JoinSubnets, v.host.Pods)
		if slices.ContainsFunc(there, to.Overlaps) || slices.ContainsFunc(v.host.Addrs, to.Contains) {
			continue // there is a route, or there must not be one
		}
		i := slices.IndexFunc(v.host.Pods, func(s netip.Prefix) bool { return ipnet.SameFamily(s.Addr(), to.Addr()) })
		if i >= 0 {
			want.Routes = append(want.Routes, link.Route{To: to, Via: topology.Gateways(v.host.Pods[i : i+1])[0]})
		}
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
