// Package nodesubnet gives each node its subnets: one of each family, from ranges such as 10.128.0.0/14/23.
package nodesubnet

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
)

// Default is the text of the default ranges.
const Default = "10.128.0.0/14/23"

// Prefix lengths of nodes' subnets in ranges without one.
const (
	length4 = 24
	length6 = 64
)

// A Range is a subnet of the cluster, with the prefix length of the subnets of nodes in it.
type Range struct {
	CIDR   netip.Prefix
	Length int
}

// String formats a range as CIDR/PREFIX.
func (r Range) String() string { return fmt.Sprintf("%s/%d", r.CIDR, r.Length) }

// Ranges are the ranges of a cluster, in the order in which they are used.
type Ranges []Range

// ParseRanges parses a comma-separated list of CIDR or CIDR/PREFIX. The error lists every problem.
func ParseRanges(list string) (Ranges, error) {
	var ranges Ranges
	var errs []error
	for text := range strings.SplitSeq(list, ",") {
		r, err := parseRange(strings.TrimSpace(text))
		for i := 0; err == nil && i < len(ranges); i++ {
			if o := ranges[i]; o.CIDR.Overlaps(r.CIDR) {
				err = fmt.Errorf("cluster subnets %s and %s overlap: give each address once", o, r)
			}
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ranges = append(ranges, r)
	}
	return ranges, errors.Join(errs...)
}

func parseRange(text string) (Range, error) {
	cidr, length := text, ""
	if words := strings.Split(text, "/"); len(words) == 3 {
		cidr, length = words[0]+"/"+words[1], words[2]
	}
	subnets, err := ipnet.ParseSubnets(cidr, 0)
	if err != nil {
		return Range{}, fmt.Errorf("cluster subnet %q is not CIDR or CIDR/PREFIX, as in 10.128.0.0/14/23: %w", text, err)
	}
	r := Range{subnets[0], length4}
	if r.CIDR.Addr().Is6() {
		r.Length = length6
	}
	if length != "" {
		n, err := strconv.ParseUint(length, 10, 8)
		if err != nil {
			return r, fmt.Errorf("cluster subnet %q: %q is not the prefix length of a node's subnet: give a number, as in 10.128.0.0/14/23", text, length)
		}
		r.Length = int(n)
	}
	return r, r.check(text)
}

// check checks the prefix length.
func (r Range) check(text string) error {
	first := netip.PrefixFrom(r.CIDR.Addr(), r.Length)
	switch {
	case r.CIDR.Addr().Is6() && r.Length != length6:
		return fmt.Errorf("cluster subnet %q: subnets of nodes would be /%d: IPv6 needs /%d", text, r.Length, length6)
	case !first.IsValid():
		return fmt.Errorf("cluster subnet %q: /%d is not a prefix length of IPv4: give 29 or less", text, r.Length)
	case r.Length <= r.CIDR.Bits():
		return fmt.Errorf("cluster subnet %q: subnets of nodes would be /%d, which is not longer than /%d: give CIDR/PREFIX with a longer PREFIX", text, r.Length, r.CIDR.Bits())
	case ipnet.Hosts(first) < topology.MinHosts:
		return fmt.Errorf("cluster subnet %q: subnets of nodes would be /%d, with %d usable addresses, and %d are needed: give a shorter PREFIX", text, r.Length, ipnet.Hosts(first), topology.MinHosts)
	}
	return nil
}

// Subnets are the ranges as subnets of a cluster, IPv4 first.
func (rs Ranges) Subnets() (out []netip.Prefix) {
	for f := range ipnet.Families() {
		for _, r := range rs {
			if ipnet.Family(r.CIDR.Addr()) == f {
				out = append(out, r.CIDR)
			}
		}
	}
	return out
}

// Check returns an error if a range overlaps a subnet of Services or of the join switch.
func (rs Ranges) Check(services, join []netip.Prefix) error {
	var errs []error
	if a, b, overlap := ipnet.Overlap(rs.Subnets(), services); overlap {
		errs = append(errs, fmt.Errorf("cluster subnet %s overlaps the subnet of services %s: choose another one", a, b))
	}
	if a, b, overlap := ipnet.Overlap(rs.Subnets(), join); overlap {
		errs = append(errs, fmt.Errorf("cluster subnet %s overlaps join subnet %s: choose another one, or set ovn-k8s-join-subnet", a, b))
	}
	return errors.Join(errs...)
}

// maxNamed bounds the nodes named in an error.
const maxNamed = 10

// CheckNodes returns an error that names the nodes with subnets outside of the ranges: a range with nodes cannot be
// removed.
func (rs Ranges) CheckNodes(nodes map[string][]netip.Prefix) error {
	var outside []string
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if !ipnet.Within(nodes[name], rs.Subnets()) {
			outside = append(outside, fmt.Sprintf("%s (%s)", name, ipnet.Join(nodes[name])))
		}
	}
	if len(outside) == 0 {
		return nil
	}
	named := strings.Join(outside[:min(maxNamed, len(outside))], ", ")
	if more := len(outside) - maxNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("cluster subnets %s lack those of nodes %s: add the ranges of these nodes, or delete the nodes first", ipnet.Join(rs), named)
}
