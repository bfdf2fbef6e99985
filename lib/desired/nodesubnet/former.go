package nodesubnet

import (
	"net/netip"
	"slices"
)

// former are the subnets of removed nodes, for the next nodes of their names: a Node may be deleted by mistake, and its
// pods go on. None overlaps another one, so there are at most as many as a range has.
type former struct {
	subnets held
	of      map[netip.Prefix]string
	names   map[string][]netip.Prefix
}

// add records a subnet of a removed node. No node has a part of it.
func (f *former) add(s netip.Prefix, name string) {
	f.forget(s)
	if f.of == nil {
		f.of, f.names = map[netip.Prefix]string{}, map[string][]netip.Prefix{}
	}
	f.subnets = f.subnets.with(s)
	f.of[s], f.names[name] = name, append(f.names[name], s)
}

// forget forgets all that overlap s.
func (f *former) forget(s netip.Prefix) {
	for {
		old, found := f.subnets.overlapping(s)
		if !found {
			return
		}
		f.remove(old)
	}
}

func (f *former) remove(s netip.Prefix) {
	name := f.of[s]
	f.subnets = f.subnets.without(s)
	delete(f.of, s)
	if f.names[name] = slices.DeleteFunc(f.names[name], func(o netip.Prefix) bool { return o == s }); len(f.names[name]) == 0 {
		delete(f.names, name)
	}
}

// take forgets and returns the subnets of the former node of a name.
func (f *former) take(name string) []netip.Prefix {
	subnets := slices.Clone(f.names[name])
	for _, s := range subnets {
		f.remove(s)
	}
	return subnets
}
