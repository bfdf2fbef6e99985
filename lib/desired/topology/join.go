package topology

import (
	"fmt"
	"net/netip"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// A joinNetwork is the network between the cluster router and the gateways.
type joinNetwork struct {
	router  string // name of the cluster router
	subnets []netip.Prefix
}

func (c Cluster) joinNetwork() joinNetwork { return joinNetwork{c.Router, c.Join} }

// take returns wish if it is free and one address in each join subnet, else the
// addresses of the lowest host number that is free in all of them.
func (n joinNetwork) take(wish []netip.Addr, used map[netip.Addr]bool) ([]netip.Addr, error) {
	if n.free(wish, used) {
		return wish, nil
	}
	for number := uint64(joinFirst); ; number++ {
		addrs := make([]netip.Addr, len(n.subnets))
		for i, s := range n.subnets {
			if number > ipnet.Hosts(s) {
				return nil, fmt.Errorf("ran out of IPs for gateway routers: join subnet %s is full", s)
			}
			addrs[i], _ = ipnet.Nth(s, number)
		}
		if n.free(addrs, used) {
			return addrs, nil
		}
	}
}

// free reports whether a gateway can have addrs on the join switch. An address is
// not free if its MAC would be that of the cluster router's port there, which is
// derived from the port's name.
func (n joinNetwork) free(addrs []netip.Addr, used map[netip.Addr]bool) bool {
	if len(addrs) != len(n.subnets) || len(addrs) == 0 {
		return false
	}
	for i, a := range addrs {
		number, ok := ipnet.Offset(n.subnets[i], a)
		if !ok || number < joinFirst || number > ipnet.Hosts(n.subnets[i]) || used[a] {
			return false
		}
	}
	return joinMAC(addrs) != ipnet.RouterMAC(names.RouterToJoin(n.router))
}

// displaced is 1 if a gateway needs other join addresses, else 0.
func (n joinNetwork) displaced(g Gateway) int {
	if n.free(g.Join, nil) {
		return 0
	}
	return 1
}

// within gives join addresses the prefix lengths of their subnets.
func (n joinNetwork) within(addrs []netip.Addr) []netip.Prefix {
	out := make([]netip.Prefix, len(addrs))
	for i, a := range addrs {
		out[i] = netip.PrefixFrom(a, n.subnets[i].Bits())
	}
	return out
}

// joinMAC returns the MAC of a gateway router's port to the join switch. It is derived
// from the first address, so that no two gateways share one.
func joinMAC(addrs []netip.Addr) string {
	b := addrs[0].AsSlice()
	b = b[len(b)-3:]
	return fmt.Sprintf("00:00:00:%02X:%02X:%02X", b[0], b[1], b[2])
}
