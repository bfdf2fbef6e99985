package topology

import (
	"fmt"
	"net/netip"
	"slices"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// A joinNetwork is the network between the cluster router and the gateways.
type joinNetwork struct {
	router  string // name of the cluster router
	subnets []netip.Prefix
}

func (c Cluster) joinNetwork() joinNetwork { return joinNetwork{c.Router, c.Join} }

// take returns an address in each join subnet: wish's if it is free. The others have one host number, wish's or else the lowest
// free one in all of their subnets. So a gateway keeps its address while the cluster becomes dual stack.
func (n joinNetwork) take(wish []netip.Addr, used map[netip.Addr]bool) ([]netip.Addr, error) {
	kept := n.kept(wish, used)
	for i, a := range kept {
		if number, ok := ipnet.Offset(n.subnets[i], a); ok {
			if addrs, err := n.numbered(number, kept); err == nil && n.free(addrs, used) {
				return addrs, nil
			}
		}
	}
	for number := uint64(joinFirst); ; number++ {
		addrs, err := n.numbered(number, kept)
		if err != nil || n.free(addrs, used) {
			return addrs, err
		}
	}
}

// numbered returns kept, with the addresses of a host number in place of missing ones.
func (n joinNetwork) numbered(number uint64, kept []netip.Addr) ([]netip.Addr, error) {
	addrs := slices.Clone(kept)
	for i, s := range n.subnets {
		switch {
		case kept[i].IsValid():
		case number > ipnet.Hosts(s):
			return nil, fmt.Errorf("ran out of IPs for gateway routers: join subnet %s is full", s)
		default:
			addrs[i], _ = ipnet.Nth(s, number)
		}
	}
	return addrs, nil
}

// kept are those of some addresses free for a gateway on the join switch, one for each subnet, invalid if there is none. An
// address is not free if its MAC would be the MAC of the cluster router's port there, derived from the port's name.
func (n joinNetwork) kept(addrs []netip.Addr, used map[netip.Addr]bool) []netip.Addr {
	out := make([]netip.Addr, len(n.subnets))
	for i, s := range n.subnets {
		for _, a := range addrs {
			number, ok := ipnet.Offset(s, a)
			if !ok || number < joinFirst || number > ipnet.Hosts(s) || used[a] {
				continue
			}
			if i > 0 || joinMAC([]netip.Addr{a}) != ipnet.RouterMAC(names.RouterToJoin(n.router)) {
				out[i] = a
			}
		}
	}
	return out
}

// free reports whether a gateway can have addrs on the join switch, one in each subnet.
func (n joinNetwork) free(addrs []netip.Addr, used map[netip.Addr]bool) bool {
	return len(addrs) > 0 && !slices.Contains(addrs, netip.Addr{}) && slices.Equal(n.kept(addrs, used), addrs)
}

// displaced is the number of other join addresses needed by a gateway.
func (n joinNetwork) displaced(g Gateway) (missing int) {
	for _, a := range n.kept(g.Join, nil) {
		if !a.IsValid() {
			missing++
		}
	}
	return missing
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
