package service

import "ovn-k8s/lib/ipnet"

// addMost records that port number i has endpoints beyond MaxEndpoints.
func (r *Resolved) addMost(i int, all []Slice) {
	r.Beyond = true
	if !r.ExternalLocal {
		return
	}
	if r.Most == nil {
		r.Most = make([][2]int, len(r.Ports))
	}
	on := map[string]*[2]int{} // by node
	for hosts := range ofPort(r.Ports[i], all) {
		for _, h := range hosts {
			if on[h.Node] == nil {
				on[h.Node] = new([2]int)
			}
			f := ipnet.Family(h.Addr)
			on[h.Node][f]++
			r.Most[i][f] = min(MaxEndpoints, max(r.Most[i][f], on[h.Node][f]))
		}
	}
}

// ResolveOn records Here. here are the slices of Resolve, with the endpoints on the node only.
func (r *Resolved) ResolveOn(here []Slice) {
	s := r.Service
	s.Ports = r.Ports[:r.Served]
	r.Here = make([]Endpoints, len(r.Ports))
	copy(r.Here, Resolve(s, here).Endpoints)
}

// On returns the endpoints of port number i on a node, also draining ones. Above MaxEndpoints it has all of them only
// for the node of Here.
func (r *Resolved) On(i int, node string) Endpoints {
	all := r.Endpoints[i]
	if r.Here != nil {
		all = r.Here[i]
	}
	return all.on(node)
}
