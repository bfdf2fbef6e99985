package pod

import (
	"maps"
	"net/netip"
	"slices"

	"ovn-k8s/lib/ipnet"
)

// FirstHost is the number of the first address of a node's subnet that is
// given to pods: before it come the router's (1) and the management port's (2).
const FirstHost = 3

// A Pool hands out the addresses of one node's subnets. It does not give out
// an address again until it has gone round all others, so that what still
// talks to a pod that is gone does not reach another one.
type Pool struct {
	subnets []netip.Prefix
	next    []uint64 // by subnet: the host number to try first
	held    map[netip.Addr]Key
}

// NewPool returns a pool in which every address of subnets is free.
func NewPool(subnets []netip.Prefix) *Pool {
	p := &Pool{subnets: subnets, next: make([]uint64, len(subnets)), held: map[netip.Addr]Key{}}
	for i := range p.next {
		p.next[i] = FirstHost
	}
	return p
}

// Claim gives the addresses ips to pod k: one for each subnet, in any order.
// It reports false, and changes nothing, unless all are in the pool's range
// and free or held by k already.
func (p *Pool) Claim(k Key, ips []netip.Addr) bool {
	if len(ips) != len(p.subnets) {
		return false
	}
	for _, s := range p.subnets {
		at := slices.IndexFunc(ips, s.Contains)
		if at < 0 {
			return false
		}
		n, ok := ipnet.Offset(s, ips[at])
		if holder, held := p.held[ips[at]]; !ok || n < FirstHost || n > ipnet.Hosts(s) || held && holder != k {
			return false
		}
	}
	for _, ip := range ips {
		p.held[ip] = k
	}
	return true
}

// Pass has Take go on behind ips, which are some of the pool's. It is for addresses
// that were handed out in a former life, and not for those that a user wishes: by
// the last of all he would have the round begin anew, and get an address at once
// that another pod had until now.
func (p *Pool) Pass(ips []netip.Addr) {
	for i, s := range p.subnets {
		for _, ip := range ips {
			if n, ok := ipnet.Offset(s, ip); ok {
				p.next[i] = max(p.next[i], n+1)
			}
		}
	}
}

// Take gives free addresses to pod k, one of each subnet in their order. It
// returns the subnet that is full, and changes nothing, if there is none left.
func (p *Pool) Take(k Key) (ips []netip.Addr, full netip.Prefix) {
	hosts := make([]uint64, len(p.subnets))
	for i, s := range p.subnets {
		ip, n, ok := p.free(i)
		if !ok {
			return nil, s
		}
		ips, hosts[i] = append(ips, ip), n
	}
	for i, ip := range ips {
		p.held[ip], p.next[i] = k, hosts[i]+1
	}
	return ips, netip.Prefix{}
}

// Compact gives back the room of addresses that were released.
func (p *Pool) Compact() { p.held = maps.Collect(maps.All(p.held)) }

// free finds the next free address of subnet i and its host number.
func (p *Pool) free(i int) (netip.Addr, uint64, bool) {
	s := p.subnets[i]
	last := ipnet.Hosts(s)
	// Who holds one address holds one of each subnet.
	if last < FirstHost || uint64(len(p.held)/len(p.subnets)) > last-FirstHost {
		return netip.Addr{}, 0, false
	}
	n := p.next[i]
	for range last - FirstHost + 1 {
		if n > last {
			n = FirstHost
		}
		ip, _ := ipnet.Nth(s, n)
		if _, held := p.held[ip]; !held {
			return ip, n, true
		}
		n++
	}
	return netip.Addr{}, 0, false
}

// Release takes ips back from pod k. Addresses that k does not hold stay.
func (p *Pool) Release(k Key, ips []netip.Addr) {
	for _, ip := range ips {
		if p.held[ip] == k {
			delete(p.held, ip)
		}
	}
}
