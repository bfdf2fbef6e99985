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

	"ovn-k8s/lib/ipnet"
)

// Default is the text of the default ranges.
const Default = "10.128.0.0/14/23"

// Prefix lengths of nodes' subnets in ranges without one.
const (
	length4 = 24
	length6 = 64
)

// longest4 is the longest prefix of a node's IPv4 subnet, with addresses for topology.MinHosts.
const longest4 = 29

// A Range is a subnet of the cluster, with the prefix length of the subnets of nodes in it.
type Range struct {
	CIDR   netip.Prefix
	Length int
}

// String formats a range as CIDR/LENGTH.
func (r Range) String() string { return fmt.Sprintf("%s/%d", r.CIDR, r.Length) }

// Ranges are the ranges of a cluster, in the order in which they are used.
type Ranges []Range

// ParseRanges parses a comma-separated list of CIDR or CIDR/LENGTH. The error has a line for each bad one; the ranges are
// the others.
func ParseRanges(list string) (Ranges, error) {
	var ranges Ranges
	var errs []error
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		r, err := parseRange(word)
		for i := 0; err == nil && i < len(ranges); i++ {
			if o := ranges[i]; o.CIDR.Overlaps(r.CIDR) {
				err = fmt.Errorf("%s overlaps %s", r.CIDR, o.CIDR)
			}
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ranges = append(ranges, r)
	}
	if len(ranges) == 0 && len(errs) == 0 {
		return nil, errors.New("no subnet; want CIDR or CIDR/LENGTH, as in " + Default)
	}
	return ranges, errors.Join(errs...)
}

func parseRange(word string) (Range, error) {
	cidr, length := word, ""
	if words := strings.Split(word, "/"); len(words) == 3 {
		cidr, length = words[0]+"/"+words[1], words[2]
	}
	p, err := netip.ParsePrefix(cidr)
	if err != nil || p.Addr().Is4In6() {
		return Range{}, fmt.Errorf("%q is not properly formatted; want CIDR or CIDR/LENGTH, as in %s", word, Default)
	}
	if p != p.Masked() {
		return Range{}, fmt.Errorf("%q has bits of the host set; want %s", word, strings.Replace(word, cidr, p.Masked().String(), 1))
	}
	r := Range{p, length4}
	if p.Addr().Is6() {
		r.Length = length6
	}
	if length != "" {
		n, err := strconv.ParseUint(length, 10, 8)
		if err != nil {
			return r, fmt.Errorf("%q: %q is no length of a node's subnet; want a number, as in %s", word, length, Default)
		}
		r.Length = int(n)
	}
	return r, r.check(word)
}

// check checks the prefix length.
func (r Range) check(word string) error {
	least, most := r.CIDR.Bits()+1, longest4
	if r.CIDR.Addr().Is6() {
		most = length6
	}
	switch {
	case least > most:
		return fmt.Errorf("%q has no room for subnets of nodes; want a prefix shorter than /%d", word, most)
	case r.CIDR.Addr().Is6() && r.Length != length6:
		return fmt.Errorf("%q: nodes would get subnets of length %d; want %d, as IPv6 needs", word, r.Length, length6)
	case r.Length < least || r.Length > most:
		return fmt.Errorf("%q: nodes would get subnets of length %d; want a length from %d to %d", word, r.Length, least, most)
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
