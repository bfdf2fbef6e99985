package link

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
)

// Lacks lists, for people, the properties of s missing from an interface for its traffic. Harmless changes by a pod
// or a later CNI plugin are accepted: sysctls, a smaller MTU, more addresses and routes, routes of another protocol
// or metric.
func Lacks(s State) ([]string, error) {
	l, err := find(s.Interface)
	if err != nil {
		return nil, err
	}
	if l != nil && l.Attrs().MTU < s.MTU {
		s.MTU = 0
	}
	changes, err := planLink(s)
	if err != nil {
		return nil, err
	}
	more, err := planAddresses(s)
	if err != nil {
		return nil, err
	}
	var lacks []string
	for _, c := range append(changes, more...) {
		lacks = append(lacks, c.String())
	}
	have, err := routes(s.Interface)
	if err != nil {
		return nil, err
	}
	for _, want := range s.Routes {
		if !slices.ContainsFunc(have, func(h netlink.Route) bool { return same(h, want) }) {
			lacks = append(lacks, fmt.Sprintf("add route %s dev %s", want, s.Interface))
		}
	}
	return lacks, nil
}
