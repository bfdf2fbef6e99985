package nodesubnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func parse(t testing.TB, text string) Ranges {
	t.Helper()
	r, err := ParseRanges(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParseRanges(t *testing.T) {
	for _, tt := range []struct{ in, want, subnets, err string }{
		{in: Default, want: "10.128.0.0/14/23", subnets: "10.128.0.0/14"},
		{in: "10.128.0.0/14", want: "10.128.0.0/14/24", subnets: "10.128.0.0/14"},
		{in: "10.128.0.0/14/23,10.0.0.0/14/24", want: "10.128.0.0/14/23,10.0.0.0/14/24", subnets: "10.128.0.0/14,10.0.0.0/14"},
		{in: "fd01::/48, 10.0.0.0/16", want: "fd01::/48/64,10.0.0.0/16/24", subnets: "10.0.0.0/16,fd01::/48"},
		{in: "10.128.0.0/14, ,", want: "10.128.0.0/14/24", subnets: "10.128.0.0/14"},
		{in: "", err: "no subnet; want CIDR or CIDR/LENGTH, as in 10.128.0.0/14/23"},
		{in: ",", err: "no subnet; want CIDR or CIDR/LENGTH, as in 10.128.0.0/14/23"},
		{in: "10.128.0.0", err: `"10.128.0.0" is not properly formatted; want CIDR or CIDR/LENGTH, as in 10.128.0.0/14/23`},
		{in: "10.128.0.0/14/23/1", err: `"10.128.0.0/14/23/1" is not properly formatted; want CIDR or CIDR/LENGTH, as in 10.128.0.0/14/23`},
		{in: "::ffff:10.0.0.0/112", err: `"::ffff:10.0.0.0/112" is not properly formatted; want CIDR or CIDR/LENGTH, as in 10.128.0.0/14/23`},
		{in: "10.128.0.0/14/x", err: `"10.128.0.0/14/x": "x" is no length of a node's subnet; want a number, as in 10.128.0.0/14/23`},
		{in: "10.128.0.0/14/999", err: `"10.128.0.0/14/999": "999" is no length of a node's subnet; want a number, as in 10.128.0.0/14/23`},
		{in: "10.128.0.0/14/33", err: `"10.128.0.0/14/33": nodes would get subnets of length 33; want a length from 15 to 29`},
		{in: "10.128.0.1/14", err: `"10.128.0.1/14" has bits of the host set; want 10.128.0.0/14`},
		{in: "10.128.0.1/14/23", err: `"10.128.0.1/14/23" has bits of the host set; want 10.128.0.0/14/23`},
		{in: "10.128.0.0/24", err: `"10.128.0.0/24": nodes would get subnets of length 24; want a length from 25 to 29`},
		{in: "10.128.0.0/14/14", err: `"10.128.0.0/14/14": nodes would get subnets of length 14; want a length from 15 to 29`},
		{in: "10.128.0.0/14/30", err: `"10.128.0.0/14/30": nodes would get subnets of length 30; want a length from 15 to 29`},
		{in: "10.128.0.0/29/30", err: `"10.128.0.0/29/30" has no room for subnets of nodes; want a prefix shorter than /29`},
		{in: "fd01::/48/72", err: `"fd01::/48/72": nodes would get subnets of length 72; want 64, as IPv6 needs`},
		{in: "fd01::/48/56", err: `"fd01::/48/56": nodes would get subnets of length 56; want 64, as IPv6 needs`},
		{in: "fd01::/64", err: `"fd01::/64" has no room for subnets of nodes; want a prefix shorter than /64`},
		{in: "10.0.0.0/8,10.128.0.0/14/23", err: "10.128.0.0/14 overlaps 10.0.0.0/8"},
	} {
		got, err := ParseRanges(tt.in)
		if tt.err != "" {
			if err == nil || err.Error() != tt.err {
				t.Errorf("%q: error %v, want %q", tt.in, err, tt.err)
			}
			continue
		}
		if err != nil || ipnet.Join(got) != tt.want || ipnet.Join(got.Subnets()) != tt.subnets {
			t.Errorf("%q: %s of %s, %v; want %s of %s", tt.in, ipnet.Join(got), ipnet.Join(got.Subnets()), err, tt.want, tt.subnets)
		}
	}
}

// Each bad range has a line, and the others are returned.
func TestEveryBadRangeHasALine(t *testing.T) {
	got, err := ParseRanges("x,10.0.0.0/16,fd01::/48/72,10.0.128.0/17")
	want := `"x" is not properly formatted; want CIDR or CIDR/LENGTH, as in 10.128.0.0/14/23
"fd01::/48/72": nodes would get subnets of length 72; want 64, as IPv6 needs
10.0.128.0/17 overlaps 10.0.0.0/16`
	if fmt.Sprint(err) != want || ipnet.Join(got) != "10.0.0.0/16/24" {
		t.Errorf("%v, %v", got, err)
	}
}

// A node's IPv4 subnet of the longest prefix has the addresses for a node, and a longer one has not.
func TestLongestPrefix(t *testing.T) {
	hosts := func(length int) uint64 { return ipnet.Hosts(netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), length)) }
	if hosts(longest4) < topology.MinHosts || hosts(longest4+1) >= topology.MinHosts {
		t.Errorf("/%d has %d addresses, /%d has %d, and %d are needed", longest4, hosts(longest4), longest4+1, hosts(longest4+1), topology.MinHosts)
	}
}

func FuzzParseRanges(f *testing.F) {
	f.Add("10.128.0.0/14/23,fd01::/48/64")
	f.Add("0.0.0.0/0/29,::/0")
	f.Fuzz(func(t *testing.T, text string) {
		ranges, err := ParseRanges(text)
		if err != nil {
			return
		}
		if again := parse(t, ipnet.Join(ranges)); !slices.Equal(again, ranges) {
			t.Errorf("%q: %v is read as %v", text, ranges, again)
		}
		a := New(ranges)
		a.Put(Node{Name: "n"})
		if a.Allocate(); !ipnet.Within(a.Subnets("n"), ranges.Subnets()) || len(a.Subnets("n")) == 0 {
			t.Errorf("%q: subnets %v", text, a.Subnets("n"))
		}
	})
}

func TestRangesThatCannotBe(t *testing.T) {
	ranges := parse(t, "10.128.0.0/14/23,fd01::/48")
	err := ranges.Check(prefixes("10.96.0.0/12", "10.129.0.0/16"), prefixes("fd01::/64"))
	for _, want := range []string{"cluster subnet 10.128.0.0/14 overlaps the subnet of services 10.129.0.0/16", "cluster subnet fd01::/48 overlaps join subnet fd01::/64"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	nodes := map[string][]netip.Prefix{"a": prefixes("10.128.0.0/23"), "c": prefixes("10.0.0.0/24"), "b": prefixes("10.128.2.0/23", "fd02::/64")}
	want := "cluster subnets 10.128.0.0/14/23,fd01::/48/64 lack those of nodes b (10.128.2.0/23,fd02::/64), c (10.0.0.0/24): add the ranges of these nodes, or delete the nodes first"
	if err := ranges.CheckNodes(nodes); err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
	for n := range 30 {
		nodes[fmt.Sprintf("x%02d", n)] = prefixes("10.0.0.0/24")
	}
	if err := ranges.CheckNodes(nodes); !strings.Contains(fmt.Sprint(err), "x07 (10.0.0.0/24) and 22 more:") {
		t.Errorf("%v", err)
	}
}

func TestAnnotations(t *testing.T) {
	const key, old = names.SubnetsAnnotation, names.HostSubnetAnnotation
	for _, subnets := range [][]netip.Prefix{prefixes("10.128.2.0/23"), prefixes("10.128.2.0/23", "fd01::/64")} {
		made := Annotations(subnets)
		for _, in := range []map[string]string{made, {key: made[key]}, {old: made[old]}, {key: made[key], old: "junk"}} {
			if got, err := ParseAnnotations(in); err != nil || !slices.Equal(got, subnets) {
				t.Errorf("%v: %v, %v", in, got, err)
			}
		}
	}
	if got := Annotations(prefixes("10.128.2.0/23")); got[old] != "10.128.2.0/23" || got[key] != `{"default":"10.128.2.0/23"}` {
		t.Errorf("%v", got)
	}
	if got := Annotations(prefixes("10.128.2.0/23", "fd01::/64")); got[old] != "10.128.2.0/23,fd01::/64" || got[key] != `{"default":["10.128.2.0/23","fd01::/64"]}` {
		t.Errorf("%v", got)
	}
	for _, tt := range []struct{ key, value, want string }{
		{old, "foo", `annotation ovn_host_subnet: "foo" is not a subnet`},
		{old, "10.0.0.0/24,10.0.1.0/24", "two subnets of one family"},
		{key, "10.128.2.0/23", `annotation k8s.ovn.org/node-subnets "10.128.2.0/23" is not JSON as {"default": "10.128.2.0/23"}`},
		{key, `{"default":5}`, "is not JSON as"},
		{key, `{"other":"10.128.2.0/23"}`, "is not JSON as"},
		{key, `{"default":["x"]}`, `"x" is not a subnet`},
		{key, strings.Repeat("x", 5000), "has 5000 bytes, and subnets have at most 1024"},
	} {
		if _, err := ParseAnnotations(map[string]string{tt.key: tt.value}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s=%.30s: %v, want %q", tt.key, tt.value, err, tt.want)
		}
	}
	if got, err := ParseAnnotations(nil); got != nil || err != nil {
		t.Errorf("no annotation: %v, %v", got, err)
	}
}

// AC-27: the second range serves when the first is full. AC-28: a node waits, with a Problem, for a node to leave.
func TestFullRanges(t *testing.T) {
	a := New(parse(t, "10.0.0.0/23/24,10.1.0.0/23/24"))
	for n := range 5 {
		a.Put(Node{Name: fmt.Sprint("n", n), Created: int64(n)})
	}
	a.Allocate()
	for n, want := range []string{"10.0.0.0/24", "10.0.1.0/24", "10.1.0.0/24", "10.1.1.0/24", ""} {
		if got := ipnet.Join(a.Subnets(fmt.Sprint("n", n))); got != want {
			t.Errorf("n%d has %q, want %q", n, got, want)
		}
	}
	const want = "node n4 waits for a subnet: all subnets of 10.0.0.0/23/24,10.1.0.0/23/24 are in use: add a range to the cluster subnets, or delete a node"
	if p := a.Problem("n4"); p == nil || p.Reason != "SubnetsFull" || p.Message != want || a.Problem("n3") != nil {
		t.Errorf("%v, want %s", p, want)
	}
	a.Remove("n1")
	if touched := a.Allocate(); !slices.Equal(touched, []string{"n1", "n4"}) || ipnet.Join(a.Subnets("n4")) != "10.0.1.0/24" || a.Problem("n4") != nil {
		t.Errorf("touched %v: n4 has %v, %v", touched, a.Subnets("n4"), a.Problem("n4"))
	}
}

// A node made again has its former subnets, as long as others can have other ones. All subnets of a range are given.
func TestANodeThatIsThereAgain(t *testing.T) {
	a := New(parse(t, "10.0.0.0/22/24,10.1.0.0/23/24,fd00::/61"))
	put := func(name, want string) {
		t.Helper()
		a.Put(Node{Name: name})
		a.Allocate()
		if got := ipnet.Join(a.Subnets(name)); got != want {
			t.Errorf("%s has %s, want %s", name, got, want)
		}
	}
	remove := func(name string) {
		a.Remove(name)
		a.Allocate()
	}
	put("a", "10.0.0.0/24,fd00::/64")
	put("b", "10.0.1.0/24,fd00:0:0:1::/64")
	for range 3 {
		remove("a")
		put("a", "10.0.0.0/24,fd00::/64")
	}
	a.Remove("b") // and there again before Allocate
	put("b", "10.0.1.0/24,fd00:0:0:1::/64")
	remove("a")
	remove("b")
	for i, want := range []string{"10.0.2.0/24", "10.0.3.0/24", "10.1.0.0/24", "10.1.1.0/24", "10.0.0.0/24"} {
		put(fmt.Sprint("n", i), fmt.Sprintf("%s,fd00:0:0:%d::/64", want, 2+i))
	}
	put("b", "10.0.1.0/24,fd00:0:0:1::/64")
	put("a", "fd00::/64")
	if p := a.Problem("a"); p == nil || p.Reason != "SubnetsFull" {
		t.Errorf("a: %v", p)
	}
	remove("n2")
	if got := ipnet.Join(a.Subnets("a")); got != "10.1.0.0/24,fd00::/64" || len(a.former.of) != 1 || len(a.former.subnets) != 1 || len(a.former.names) != 1 {
		t.Errorf("a has %s; remembered: %v", got, a.former)
	}
}

// A released subnet is given to another node after a whole round, restarts or not.
func TestRounds(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		ranges := parse(t, "10.0.0.0/21/24,fd00::/61")
		a := New(ranges)
		last := map[netip.Prefix]int{}
		for round := range 64 {
			name := fmt.Sprint("n", round) // the same one would get its former subnets
			a.Put(Node{Name: name})
			a.Allocate()
			for _, s := range a.Subnets(name) {
				if was, ok := last[s]; ok && round-was != 8 {
					t.Fatalf("restarts %t: %s was given in rounds %d and %d", restarts, s, was, round)
				}
				last[s] = round
			}
			a.Remove(name)
			a.Allocate()
			if restarts {
				marks := a.Marks()
				a = New(ranges)
				a.Restore(nil, marks)
			}
		}
		if len(last) != 16 {
			t.Errorf("restarts %t: %d subnets were used, want all 16", restarts, len(last))
		}
	}
}

// An annotation is a wish. If it is not granted, the Problem says why.
func TestWishes(t *testing.T) {
	a := New(parse(t, "10.0.0.0/16/24"))
	long := strings.Repeat("a.", 120) + "a"
	a.Restore(map[string][]netip.Prefix{"old": prefixes("10.0.9.0/25"), "gone": prefixes("10.0.8.0/24"), long: prefixes("10.0.7.0/24")}, nil)
	for _, n := range []Node{
		{Name: "old", Created: 9, Wish: prefixes("10.0.3.0/24")},
		{Name: "a", Created: 1, Wish: prefixes("10.0.5.0/24")},
		{Name: "b", Created: 2, Wish: prefixes("10.0.5.0/24")},
		{Name: "c", Created: 3, Wish: prefixes("10.1.5.0/24")},
		{Name: "d", Created: 4, Wish: prefixes("10.0.6.0/25")},
		{Name: "e", Created: 5, Wish: prefixes("10.0.9.0/24")},
		{Name: "f", Created: 6, Wish: prefixes("10.0.8.0/24")},
		{Name: "join", Created: 0},
		{Name: long, Created: 0},
		{Name: long + "b", Created: 0},
	} {
		a.Put(n)
	}
	a.Allocate()
	for _, tt := range []struct{ name, subnets, problem string }{
		{"old", "10.0.9.0/25", "the annotations of node old have subnet 10.0.3.0/24, but the node has another one already: replaced by its subnets 10.0.9.0/25"},
		{"a", "10.0.5.0/24", ""},
		{"b", "10.0.10.0/24", "which another node has"},
		{"c", "10.0.11.0/24", "which is in no range of the cluster subnets"},
		{"d", "10.0.12.0/24", "which has another prefix length than its range"},
		{"e", "10.0.13.0/24", "which another node has"},
		{"f", "10.0.8.0/24", ""},
		{"join", "", "is the name of the join switch"},
		{long, "10.0.7.0/24", ""}, // as recorded by an earlier release
		{long + "b", "", "have room for 232"},
	} {
		p := a.Problem(tt.name)
		if got := ipnet.Join(a.Subnets(tt.name)); got != tt.subnets || (p != nil) != (tt.problem != "") || p != nil && !strings.Contains(p.Message, tt.problem) {
			t.Errorf("%s has %q, problem %v; want %q, %q", tt.name, got, p, tt.subnets, tt.problem)
		}
	}
}

// Memory allocated for a node does not grow with the number of nodes: 1 000 cost ten times as much as 100. Neither do
// nodes waiting for a full range.
func TestCostIsLinear(t *testing.T) {
	cost := func(count, ranges int) float64 {
		all := parse(t, fmt.Sprintf("10.128.0.0/14/%d", ranges))
		return testing.AllocsPerRun(3, func() {
			a := New(all)
			for n := range count {
				a.Put(Node{Name: fmt.Sprint("n", n)})
			}
			a.Allocate()
		})
	}
	for _, length := range []int{23, 19} { // room for 512 and for 32
		few, many := cost(100, length), cost(1000, length)
		if many > 13*few {
			t.Errorf("/%d: 100 nodes cost %.0f allocations, 1 000 nodes %.0f", length, few, many)
		}
	}
}

func BenchmarkAllocate(b *testing.B) {
	for _, count := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			ranges := parse(b, "10.0.0.0/8/24")
			for b.Loop() {
				a := New(ranges)
				for n := range count {
					a.Put(Node{Name: fmt.Sprint("n", n)})
				}
				a.Allocate()
			}
		})
	}
}
