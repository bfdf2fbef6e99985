package nodesubnet

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"ovn-k8s/lib/ipnet"
)

// A simulation is a cluster with a master that gives subnets to nodes, and the state that outlives the master.
type simulation struct {
	t      *testing.T
	r      *rand.Rand
	steps  []string
	ranges Ranges
	nodes  map[string]Node // in the API server
	clock  int
	record map[string][]netip.Prefix // on the cluster's router
	copied map[string][]netip.Prefix // of record, in the ConfigMap
	marks  []netip.Prefix
	master *Allocator // nil: none runs
	// former are the subnets of removed nodes, as far as a master knows them and gave them to nobody since.
	former map[string][]netip.Prefix
	// free are the nodes that may get other subnets: those made again, and those with edited annotations when the record
	// and its copy were lost.
	free map[string]bool
}

var allRanges = []string{"10.0.0.0/22/24", "10.1.0.0/26/28", "fd00::/62", "10.2.0.0/23/24", "fd01::/63"}

func newSimulation(t *testing.T, seed uint64) *simulation {
	s := &simulation{t: t, r: rand.New(rand.NewPCG(seed, 1)), nodes: map[string]Node{}, record: map[string][]netip.Prefix{}, free: map[string]bool{}, former: map[string][]netip.Prefix{}}
	count := 1 + s.r.IntN(3)
	for _, text := range allRanges[:count] {
		s.addRange(text)
	}
	if s.r.IntN(3) == 0 { // nodes made by hand, with a length of their own
		s.join("n0")
		s.record["n0"] = prefixes([]string{"10.0.1.0/25", "10.0.2.0/23", "10.0.3.64/26"}[s.r.IntN(3)])
		s.copied = maps.Clone(s.record)
	}
	return s
}

func (s *simulation) addRange(text string) {
	r, err := ParseRanges(text)
	if err != nil {
		s.t.Fatal(err)
	}
	s.ranges = append(s.ranges, r...)
}

func (s *simulation) step() {
	name := fmt.Sprint("n", s.r.IntN(14))
	var what string
	switch s.r.IntN(12) {
	case 0, 1, 2, 3:
		what = "join " + name
		s.join(name)
	case 4, 5:
		what = "leave " + name
		s.leave(name)
	case 6, 7:
		what = "edit " + name
		s.edit(name)
	case 8:
		what, s.master = "stop", nil
	case 9:
		what = "start"
		s.start()
	case 10:
		what = "lose the database"
		s.lose()
	case 11:
		if s.master = nil; len(s.ranges) < len(allRanges) && s.r.IntN(3) == 0 {
			what = "add " + allRanges[len(s.ranges)]
			s.addRange(allRanges[len(s.ranges)])
		}
	}
	s.steps = append(s.steps, what)
	if s.master != nil && s.r.IntN(3) > 0 { // else several changes come together
		s.allocate()
	}
}

// join creates a node, sometimes with annotations of another cluster, or of a node that was deleted.
func (s *simulation) join(name string) {
	if _, ok := s.nodes[name]; ok {
		return
	}
	s.clock++
	n := Node{Name: name, Created: int64(s.clock / 2)} // some are of the same second
	if s.r.IntN(4) == 0 {
		n.Wish = s.wish()
	}
	s.put(n)
}

func (s *simulation) put(n Node) {
	if s.nodes[n.Name] = n; s.master != nil {
		s.master.Put(n)
	}
}

func (s *simulation) leave(name string) {
	delete(s.nodes, name)
	if s.master != nil {
		if subnets := s.master.Subnets(name); len(subnets) > 0 {
			s.former[name] = subnets
		}
		s.master.Remove(name)
		s.free[name] = true // the next node of this name is another one
	}
}

func (s *simulation) edit(name string) {
	n, ok := s.nodes[name]
	if !ok {
		return
	}
	n.Wish, n.Invalid = nil, nil
	switch s.r.IntN(4) {
	case 0:
	case 1:
		n.Invalid = errors.New("foo")
	default:
		n.Wish = s.wish()
	}
	s.put(n)
}

// wish returns subnets of the ranges, or near them.
func (s *simulation) wish() []netip.Prefix {
	all := prefixes("10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24", "10.0.1.128/25", "10.1.0.16/28", "10.1.0.0/24", "10.2.0.0/24", "10.9.0.0/24", "10.0.0.0/22")
	out := []netip.Prefix{all[s.r.IntN(len(all))]}
	if s.r.IntN(2) == 0 {
		six := prefixes("fd00::/64", "fd00:0:0:1::/64", "fd00:0:0:9::/64", "fd01::/64")
		out = append(out, six[s.r.IntN(len(six))])
	}
	return out
}

// lose empties the database. A running master writes it again. Another one reads the copy, unless it is lost as well:
// then it has only the annotations, as far as they were not edited since.
func (s *simulation) lose() {
	if s.master != nil {
		s.allocate()
		return
	}
	s.record, s.marks = maps.Clone(s.copied), nil
	if s.r.IntN(2) == 0 {
		return
	}
	for name, n := range s.nodes {
		if !slices.Equal(n.Wish, s.copied[name]) || s.odd(n.Wish) {
			s.free[name] = true // and it may claim the subnets of others
			for other := range s.nodes {
				if _, _, overlap := ipnet.Overlap(n.Wish, s.copied[other]); overlap {
					s.free[other] = true
				}
			}
		}
	}
	s.record, s.copied = map[string][]netip.Prefix{}, nil
}

// odd reports whether a subnet has not the length of its range: such annotations are replaced.
func (s *simulation) odd(subnets []netip.Prefix) bool {
	return slices.ContainsFunc(subnets, func(p netip.Prefix) bool {
		return !slices.ContainsFunc(s.ranges, func(r Range) bool { return r.CIDR.Overlaps(p) && r.Length == p.Bits() })
	})
}

func (s *simulation) start() {
	if s.master != nil {
		return
	}
	if err := s.ranges.CheckNodes(s.record); err != nil {
		s.fatal("%v", err)
	}
	s.master = New(s.ranges)
	s.master.Restore(s.record, s.marks)
	s.former = map[string][]netip.Prefix{}
	maps.Copy(s.former, s.record)
	maps.DeleteFunc(s.former, func(name string, _ []netip.Prefix) bool { _, ok := s.nodes[name]; return ok })
	for _, n := range s.nodes {
		s.master.Put(n)
	}
	s.allocate()
}

// allocate lets the master give subnets, checks the result, and writes record and annotations.
func (s *simulation) allocate() {
	before, wanted := maps.Clone(s.record), s.grantable()
	maps.DeleteFunc(before, func(name string, _ []netip.Prefix) bool { _, ok := s.nodes[name]; return !ok || s.free[name] })
	touched := s.master.Allocate()
	s.check(before, wanted)
	for name := range s.nodes {
		if !slices.Equal(s.record[name], s.master.Subnets(name)) && !slices.Contains(touched, name) {
			s.fatal("Allocate changed %s in silence", name)
		}
	}
	s.forget()
	s.record, s.marks = map[string][]netip.Prefix{}, s.master.Marks()
	s.free = map[string]bool{}
	for name, n := range s.nodes {
		subnets := s.master.Subnets(name)
		if len(subnets) == 0 {
			continue
		}
		s.record[name] = subnets
		n.Wish, n.Invalid = subnets, nil
		s.put(n)
	}
	s.copied = maps.Clone(s.record)
	for _, name := range s.master.Allocate() { // the annotations come back
		if p := s.master.Problem(name); p != nil && p.Reason != "SubnetsFull" || !slices.Equal(s.record[name], s.master.Subnets(name)) {
			s.fatal("%s: %v, and then %v, %v", name, s.record[name], s.master.Subnets(name), p)
		}
	}
}

// forget forgets the former subnets of nodes made again, and those given to other nodes.
func (s *simulation) forget() {
	for name, subnets := range s.former {
		if s.nodes[name].Name != "" {
			delete(s.former, name)
			continue
		}
		s.former[name] = slices.DeleteFunc(slices.Clone(subnets), func(p netip.Prefix) bool {
			return slices.ContainsFunc(s.master.Names(), func(other string) bool { return slices.ContainsFunc(s.master.Subnets(other), p.Overlaps) })
		})
	}
}

// formerly are all subnets of removed nodes.
func (s *simulation) formerly() []netip.Prefix {
	return slices.Concat(slices.Collect(maps.Values(s.former))...)
}

// grantable are the wishes that nobody else may get: valid, and of nobody else's record or wish.
func (s *simulation) grantable() map[string]netip.Prefix {
	out := map[string]netip.Prefix{}
	for name, n := range s.nodes {
		if len(n.Wish) == 0 || len(s.record[name]) > 0 || s.free[name] {
			continue
		}
		taken := false
		for other, o := range s.nodes {
			_, _, inRecord := ipnet.Overlap(n.Wish, s.record[other])
			_, _, inWish := ipnet.Overlap(n.Wish, o.Wish)
			taken = taken || other != name && (inRecord || inWish)
		}
		if !taken && !s.odd(n.Wish[:1]) && s.master.valid(n.Wish[0]) {
			out[name] = n.Wish[0]
		}
	}
	return out
}

func (s *simulation) check(before map[string][]netip.Prefix, wanted map[string]netip.Prefix) {
	var all []netip.Prefix
	for name := range s.nodes {
		got := s.master.Subnets(name)
		if a, b, overlap := ipnet.Overlap(got, all); overlap {
			s.fatal("%s and another node share %s and %s", name, a, b)
		}
		if all = append(all, got...); !ipnet.OnePerFamily(got) || !ipnet.Within(got, s.ranges.Subnets()) {
			s.fatal("%s has %v", name, got)
		}
		if has := before[name]; !ipnet.Within(has, got) {
			s.fatal("%s was moved from %v to %v", name, has, got)
		}
		if w, ok := wanted[name]; ok && !slices.Contains(got, w) {
			s.fatal("%s has %v instead of its wish %v", name, got, w)
		}
	}
	for name := range s.nodes {
		s.checkFull(name, all)
		s.checkFormer(name)
		for _, p := range s.master.Subnets(name) {
			if slices.Contains(s.record[name], p) {
				continue
			}
			if s.odd([]netip.Prefix{p}) && !slices.Contains(s.former[name], p) {
				s.fatal("%s got %v", name, p)
			}
			if !slices.Contains(s.nodes[name].Wish, p) && !slices.Contains(s.former[name], p) {
				s.checkFirst(name, p, all)
			}
		}
	}
}

// checkFull checks that a node lacks subnets only if all subnets of a family are used, and is told so.
func (s *simulation) checkFull(name string, all []netip.Prefix) {
	lacks, full := false, false
	for f, family := range ipnet.Families() {
		if s.master.needs(family) && len(ipnet.OfFamily(s.master.Subnets(name), f)) == 0 {
			lacks = true
			full = full || !slices.ContainsFunc(s.ranges, func(r Range) bool { return ipnet.Family(r.CIDR.Addr()) == f && s.hasFree(r, all) })
		}
	}
	if p := s.master.Problem(name); lacks != full || lacks != (p != nil && p.Reason == "SubnetsFull") {
		s.fatal("%s has %v, problem %v; there is a free subnet: %t", name, s.master.Subnets(name), p, !full)
	}
}

// granted reports whether a Node has wished a part of subnet p, and has it.
func (s *simulation) granted(p netip.Prefix) bool {
	for name, n := range s.nodes {
		if slices.ContainsFunc(s.master.Subnets(name), func(q netip.Prefix) bool { return q.Overlaps(p) && slices.Contains(n.Wish, q) }) {
			return true
		}
	}
	return false
}

// checkFormer checks that a node made again has its former subnets, unless it has wished others, or another Node
// these.
func (s *simulation) checkFormer(name string) {
	got := s.master.Subnets(name)
	for _, p := range s.former[name] {
		wished := slices.ContainsFunc(s.nodes[name].Wish, func(w netip.Prefix) bool {
			return ipnet.SameFamily(w.Addr(), p.Addr()) && slices.Contains(got, w)
		})
		if !wished && !s.granted(p) && !slices.Contains(got, p) {
			s.fatal("%s had %v and is there again with %v", name, p, got)
		}
	}
}

// checkFirst checks that subnet p was given from the first range with room, and if a former node had it, that all others of
// the family are in use.
func (s *simulation) checkFirst(name string, p netip.Prefix, all []netip.Prefix) {
	fresh := slices.Concat(all, s.formerly())
	old := slices.ContainsFunc(s.formerly(), func(f netip.Prefix) bool { return f.Overlaps(p) && !s.granted(f) })
	before := true // in the order of the ranges
	for _, r := range s.ranges {
		before = before && !r.CIDR.Contains(p.Addr())
		if !ipnet.SameFamily(p.Addr(), r.CIDR.Addr()) {
			continue
		}
		if (before || old) && s.hasFree(r, fresh) {
			s.fatal("%s got %v, but %v has room; formerly used: %v", name, p, r, s.formerly())
		}
		if before && old && s.hasFree(r, all) {
			s.fatal("%s got %v, but %v has room", name, p, r)
		}
	}
}

// hasFree reports whether a range has a subnet that overlaps none of all.
func (s *simulation) hasFree(r Range, all []netip.Prefix) bool {
	for p := netip.PrefixFrom(r.CIDR.Addr(), r.Length); r.CIDR.Contains(p.Addr()); p = after(p) {
		if !slices.ContainsFunc(all, p.Overlaps) {
			return true
		}
	}
	return false
}

// after is the next subnet of the same length.
func after(p netip.Prefix) netip.Prefix {
	b := p.Addr().AsSlice()
	bit := p.Bits() - 1
	for i, add := bit/8, 1<<(7-bit%8); i >= 0 && add > 0; i-- {
		add += int(b[i])
		b[i], add = byte(add), add>>8
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(a, p.Bits())
}

func (s *simulation) fatal(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\nranges %v, record %v, nodes %v\nsteps %q", fmt.Sprintf(format, args...), s.ranges, s.record, s.nodes, s.steps)
}

// Nodes that join and leave, restarts, edited annotations and lost databases, in any order: no two nodes share an
// address, no node with a record is moved, all subnets can be used.
func TestRandomSequences(t *testing.T) {
	for seed := range uint64(10_000) {
		s := newSimulation(t, seed)
		for range 40 {
			s.step()
		}
		s.start()
	}
}
