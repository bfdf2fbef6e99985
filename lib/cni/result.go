package cni

import (
	"net"
	"net/netip"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"ovn-k8s/lib/desired/pod/annotation"
	"ovn-k8s/lib/link"

	"github.com/containernetworking/cni/pkg/types"
)

// result is the result of ADD: the host end, the container's end, and the pod's addresses, each with its default
// route. For an older version, the runtime gets the fields of that version.
func result(a attachment, addresses annotation.Addresses, mtu int, hostMAC string) *types100.Result {
	container := 1 // index into Interfaces
	r := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion,
		Interfaces: []*types100.Interface{
			{Name: a.host(), Mac: hostMAC, Mtu: mtu},
			{Name: a.ifname, Mac: addresses.MAC, Mtu: mtu, Sandbox: a.netns},
		},
	}
	for i, p := range addresses.IPs {
		gw := addresses.Gateways[i].AsSlice()
		r.IPs = append(r.IPs, &types100.IPConfig{Interface: &container, Address: ipNet(p), Gateway: gw})
		r.Routes = append(r.Routes, &types.Route{Dst: ipNet(link.DefaultRoute(addresses.Gateways[i]).To), GW: gw})
	}
	return r
}

func ipNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// prefix is the inverse of ipNet, the zero Prefix for an invalid address.
func prefix(n net.IPNet) netip.Prefix {
	a, _ := netip.AddrFromSlice(n.IP)
	bits, size := n.Mask.Size()
	if size == 32 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, bits)
}

// expected returns the state of the container's interface according to a result.
func expected(r *types100.Result, ifname string) (link.State, bool) {
	index := -1
	for i, ifc := range r.Interfaces {
		if ifc.Name == ifname && ifc.Sandbox != "" {
			index = i
		}
	}
	if index < 0 {
		return link.State{}, false
	}
	s := link.State{Interface: ifname, MTU: r.Interfaces[index].Mtu}
	s.MAC, _ = net.ParseMAC(r.Interfaces[index].Mac) // missing from older results
	for _, ip := range r.IPs {
		if ip.Interface == nil || *ip.Interface != index {
			continue
		}
		s.Addresses = append(s.Addresses, prefix(ip.Address))
		if gw, ok := netip.AddrFromSlice(ip.Gateway); ok {
			s.Routes = append(s.Routes, link.DefaultRoute(gw.Unmap()))
		}
	}
	return s, true
}
