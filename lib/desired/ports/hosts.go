package ports

import (
	"net/netip"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/service"
)

// SetHosts records the addresses of hosts. The Taken ports of Services with an address that is a host's from now on, or no
// longer, may differ.
func (x *Services) SetHosts(all Hosts) {
	x.init()
	was := x.hosts
	x.hosts = make(map[netip.Addr]bool, len(all))
	for _, a := range all {
		x.hosts[a] = true
	}
	affected := map[service.Key]bool{}
	for a := range facts.OtherKeys(was, x.hosts, facts.Same) {
		for k := range x.outside[a] {
			affected[k] = true
		}
	}
	for k := range affected {
		for _, claim := range x.claimed[k] {
			x.dropAtHosts(claim, k)
		}
		for _, claim := range x.claimed[k] {
			x.addAtHosts(claim, k)
		}
	}
}

func (x *Services) addAtHosts(claim service.Claim, k service.Key) {
	if !x.hosts[claim.Addr] {
		return
	}
	at := claim.AtNodes()
	if x.atHosts[at] == nil {
		x.atHosts[at] = map[service.Key]bool{}
	}
	x.atHosts[at][k] = true
}

// dropAtHosts removes a Service, with all its claims to a port.
func (x *Services) dropAtHosts(claim service.Claim, k service.Key) {
	at := claim.AtNodes()
	if delete(x.atHosts[at], k); len(x.atHosts[at]) == 0 {
		delete(x.atHosts, at)
	}
}
