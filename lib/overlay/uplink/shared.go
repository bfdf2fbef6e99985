package uplink

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/hostgateway"
	"ovn-k8s/lib/desired/nodeclaim"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/link/aged"
	"ovn-k8s/lib/link/defaultroute"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

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

// A HostBridge is a bridge with what the host had on its NIC.
type HostBridge struct {
	Name   string
	NICs   []string
	Shared bool // by the gateway
	Moved  bool // ovnkube has moved the NIC; another gateway may have been the reason
}

// HostBridges returns the bridges of this host that the gateway shares, or to which ovnkube has moved a NIC.
func HostBridges(ctx context.Context, sw *vswitch.Switch, gateway string) (found []HostBridge, err error) {
	all, err := sw.Interfaces(ctx)
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		if i.Name != i.Bridge {
			continue
		}
		row, err := sw.FindBridge(ctx, i.Name)
		if err != nil {
			return nil, err
		}
		b := HostBridge{Name: i.Name, NICs: vswitch.NICs(all, i.Name), Moved: row != nil && row.ExternalIDs[names.MovedBy] == names.Ovnkube}
		b.Shared = slices.ContainsFunc(all, func(patch vswitch.Interface) bool {
			return patch.Bridge == i.Name && patch.Name == names.PatchToIntegration(i.Name) && patch.ExternalIDs[names.GatewayTag] == gateway
		})
		if b.Moved || b.Shared {
			found = append(found, b)
		}
	}
	return found, nil
}

// SharedBridge returns the shared bridge of a gateway on this host, "" without an existing NIC in it.
func SharedBridge(ctx context.Context, sw *vswitch.Switch, gateway string) (string, error) {
	all, err := HostBridges(ctx, sw, gateway)
	for _, b := range all {
		for _, nic := range b.NICs {
			if !b.Shared {
				continue
			}
			if there, err := link.Exists(nic); err != nil || there {
				return b.Name, err
			}
		}
	}
	return "", err
}

// Look reads the host's network, with a NIC of the options in any case.
func Look(ctx context.Context, sw *vswitch.Switch, nic string) (hostgateway.Host, error) {
	view := hostgateway.Host{Interfaces: map[string]hostgateway.Interface{}}
	all, err := sw.Interfaces(ctx)
	if err != nil {
		return view, err
	}
	addresses, err := aged.Addresses()
	if err != nil {
		return view, err
	}
	routes, err := defaultroute.List()
	if err != nil {
		return view, err
	}
	known := maps.Clone(addresses)
	for _, r := range routes {
		view.Routes = append(view.Routes, hostgateway.Route{Interface: r.Interface, Via: r.Via})
		known[r.Interface] = addresses[r.Interface]
	}
	if nic != "" {
		if name, err := link.KernelName(nic); err == nil {
			nic = name
		}
		if there, err := link.Exists(nic); err != nil {
			return view, err
		} else if there {
			known[nic] = addresses[nic]
		}
	}
	for name, list := range known {
		view.Interfaces[name] = hostgateway.Interface{Addresses: list}
	}
	for _, i := range all {
		if i.ExternalIDs[names.Sandbox] == "" && i.Type != "patch" {
			view.Interfaces[i.Name] = hostgateway.Interface{Bridge: i.Bridge, Addresses: addresses[i.Name]}
		}
	}
	return view, nil
}
