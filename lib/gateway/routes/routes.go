// Package routes keeps the host's routes to ServiceCIDRs, by the management port.
package routes

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link"
)

// Of are the wanted routes of a host to ServiceCIDRs, except those in the settings: minion-init creates these. They
// are not known yet without the ServiceCIDRs, or without a management port to route by.
func Of(c config.Config, host nodeport.Host, cidrs servicecidr.Ranges) (want link.Routes, known bool) {
	if cidrs == nil || host.Management == "" || len(host.Pods) == 0 {
		return want, false
	}
	want = link.Routes{Interface: host.Management, Protocol: link.ServiceProtocol, Metric: link.ServiceMetric}
	for _, to := range cidrs {
		if slices.ContainsFunc(c.ServiceCIDRs, to.Overlaps) || slices.ContainsFunc(host.Addrs, to.Contains) {
			continue // there is a route, or there must not be one
		}
		i := slices.IndexFunc(host.Pods, func(s netip.Prefix) bool { return ipnet.SameFamily(s.Addr(), to.Addr()) })
		if i >= 0 {
			want.Routes = append(want.Routes, link.Route{To: to, Via: topology.PodGateways(host.Pods[i : i+1])[0]})
		}
	}
	return want, true
}

// Sync creates the routes, and logs changes.
func Sync(c config.Config, host nodeport.Host, cidrs servicecidr.Ranges, log *logrus.Entry) error {
	want, known := Of(c, host, cidrs)
	if !known {
		return nil
	}
	changes, err := link.EnsureRoutes(want)
	for _, c := range changes {
		log.Info(c)
	}
	if err != nil {
		return fmt.Errorf("routes to ServiceCIDRs: %w", err)
	}
	return nil
}
