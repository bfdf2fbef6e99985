package uplink

import (
	"context"
	"net/netip"
	"strings"

	"ovn-k8s/lib/desired/nodeclaim"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// IsShared reports whether an interface is the patch port of a gateway in its shared bridge.
func IsShared(i vswitch.Interface, gateway string) bool {
	return i.Name == names.PatchToIntegration(i.Bridge) && i.ExternalIDs[names.GatewayTag] == gateway
}

// Present returns the addresses of a gateway on this host so far, as Open vSwitch's database has them, or else the claim in the
// annotations of its Node: the former has no addresses of a gateway with a NIC of its own.
func Present(ctx context.Context, sw *vswitch.Switch, gateway string, node map[string]string) (ips []netip.Prefix, err error) {
	all, err := sw.Interfaces(ctx)
	for _, i := range all {
		if i.Bridge != names.IntegrationBridge || i.ExternalIDs[names.GatewayTag] != gateway {
			continue
		}
		for word := range strings.SplitSeq(i.ExternalIDs[names.GatewayIPs], ",") {
			if ip, err := netip.ParsePrefix(word); err == nil {
				ips = append(ips, ip)
			}
		}
	}
	if c, bad := nodeclaim.Parse(gateway, node); len(ips) == 0 && bad == nil && c.Gateway != nil { // a bad one is replaced
		ips = c.Gateway.IPs
	}
	return ips, err
}

// SharedBridge returns the shared bridge of a gateway on this host, "" without an existing NIC in it.
func SharedBridge(ctx context.Context, sw *vswitch.Switch, gateway string) (string, error) {
	all, err := sw.Interfaces(ctx)
	if err != nil {
		return "", err
	}
	for _, patch := range all {
		if !IsShared(patch, gateway) {
			continue
		}
		for _, nic := range all {
			if nic.Bridge != patch.Bridge || nic.Type != "" {
				continue
			}
			if there, err := link.Exists(nic.Name); err != nil || there {
				return patch.Bridge, err
			}
		}
	}
	return "", nil
}
