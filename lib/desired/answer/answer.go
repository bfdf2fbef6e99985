// Package answer chooses the gateway that answers ARP requests and neighbor
// solicitations for an address of its LAN, and makes the row by which it does.
package answer

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Prefix starts the units of addresses that a gateway answers for.
const Prefix = "answer/"

// Unit is the unit of an address.
func Unit(a netip.Addr) nb.Unit { return nb.Unit(Prefix + a.String()) }

// Of is the inverse of Unit. It reports false for units of other kinds.
func Of(u nb.Unit) (netip.Addr, bool) {
	text, ok := strings.CutPrefix(string(u), Prefix)
	if !ok {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(text)
	return a, err == nil
}

// A Gateway is one that can answer.
type Gateway struct {
	Name string
	Node string         // on the same host, "" if there is none
	LANs []netip.Prefix // its own addresses with their prefix lengths
	Hops []netip.Addr   // the routers outside to which it sends
}

// MayAnswer reports whether an address is on a LAN of g, and is not the router of g: others would lose their router. A prefix of full
// length has no neighbors.
func (g Gateway) MayAnswer(a netip.Addr) bool {
	return !slices.Contains(g.Hops, a) && slices.ContainsFunc(g.LANs, func(p netip.Prefix) bool { return !p.IsSingleIP() && p.Contains(a) })
}

// Equal reports whether two gateways are the same.
func (g Gateway) Equal(o Gateway) bool {
	return g.Name == o.Name && g.Node == o.Node && slices.Equal(g.LANs, o.LANs) && slices.Equal(g.Hops, o.Hops)
}

// Compare is positive if g is the better one of two gateways for an address: the one that serves more of the
// address's Services, and of equals the one with the higher rendezvous hash. So a gateway that goes or comes moves
// its own addresses only.
func (g Gateway) Compare(o Gateway, a netip.Addr, serves func(Gateway) int) int {
	return cmp.Or(cmp.Compare(serves(g), serves(o)), cmp.Compare(g.weight(a), o.weight(a)), cmp.Compare(o.Name, g.Name))
}

// weight hashes a gateway and an address. All versions of the watcher must agree on it.
func (g Gateway) weight(a netip.Addr) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(g.Name))
	b := a.As16()
	x := h.Sum64() ^ binary.BigEndian.Uint64(b[:8])
	return mix(mix(x) ^ binary.BigEndian.Uint64(b[8:]))
}

// mix is the finalizer of MurmurHash3, since FNV of similar texts has similar high bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Row is the load balancer by which one gateway's router answers for an address (neighbor_responder in ovn-nb(5),
// Load_Balancer). It has no port: it drops packets to the address that load balancers of Services do not take.
func Row(a netip.Addr, gateway string) nb.Row {
	return nb.Row{
		Table: nbdb.LoadBalancerTable, ID: string(Unit(a)),
		Model: &nbdb.LoadBalancer{
			Name: string(Unit(a)), Vips: map[string]string{a.String(): ""}, Options: map[string]string{"neighbor_responder": "all"},
		},
		In: []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.GatewayRouter(gateway), Column: "load_balancer"}},
	}
}
