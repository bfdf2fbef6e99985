package nodes

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// A simulation is the API server's Nodes, the record, and a master.
type simulation struct {
	*testing.T
	ranges nodesubnet.Ranges
	nodes  map[string]*corev1.Node
	record topology.Cluster
	index  *Index
	uids   int
}

func simulate(t *testing.T, ranges string) *simulation {
	t.Helper()
	r, err := nodesubnet.ParseRanges(ranges)
	if err != nil {
		t.Fatal(err)
	}
	c, err := membership.Numbering{Program: names.Ovnkube, Ranges: r, Join: []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")}}.Begin()(membership.State{})
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{T: t, ranges: r, nodes: map[string]*corev1.Node{}, record: c}
	s.start()
	return s
}

// start starts the master anew.
func (s *simulation) start() {
	s.Helper()
	c, err := topology.ReadRegistry(s.record.Registry())
	if err != nil {
		s.Fatal(err)
	}
	s.record, s.index = c, New(s.ranges, c, nil)
}

func (s *simulation) list() []nb.Unit {
	return s.index.Replace(func(yield func(any) bool) {
		for _, n := range s.nodes {
			if !yield(n) {
				return
			}
		}
	})
}

// add creates a Node, with an address that no other has.
func (s *simulation) add(name string) *corev1.Node {
	s.uids++
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprint(s.uids)), CreationTimestamp: metav1.Unix(int64(1000+s.uids), 0), Annotations: map[string]string{}}}
	s.nodes[name] = n
	return n
}

// put sends a Node to the master.
func (s *simulation) put(name string) []nb.Unit { return s.index.Put(s.nodes[name].DeepCopy()) }

func (s *simulation) remove(name string) []nb.Unit {
	delete(s.nodes, name)
	return s.index.Remove(name)
}

// next lets the master work: it writes the record and the annotations. It returns the step.
func (s *simulation) next(dirty []nb.Unit) Step {
	s.Helper()
	step := s.index.Next(dirty, nil)
	s.record = step.Record
	s.index.Record(s.record)
	for _, p := range step.Patches {
		n := s.nodes[p.Name]
		if n == nil || string(n.UID) != p.UID {
			s.Fatalf("a patch of %+v", p)
		}
		n = n.DeepCopy()
		s.nodes[p.Name] = n
		for key, v := range p.Annotations {
			if n.Annotations[key] = v; v == "" {
				delete(n.Annotations, key)
			}
		}
		s.index.Written(p)
	}
	return step
}

func (s *simulation) problem(step Step, name, want string) {
	s.Helper()
	err := step.Problems[topology.NodeUnit(name)]
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
		s.Errorf("%s: %v, want %q", name, err, want)
	}
}

func (s *simulation) subnets(name, want string) {
	s.Helper()
	if got := ipnet.Join(s.record.Nodes[name]); got != want {
		s.Errorf("%s has %q, want %q", name, got, want)
	}
}

// AC-24, AC-27: nodes get subnets in the order of the ranges, and annotations. AC-25: a restart changes nothing.
func TestJoin(t *testing.T) {
	s := simulate(t, "10.0.0.0/23/24,10.1.0.0/16/24,fd00::/48")
	for _, name := range []string{"n1", "n2", "n3"} {
		s.add(name)
		if step := s.next(s.put(name)); len(step.Units)+len(step.Patches) > 0 {
			t.Errorf("before all Nodes are known: %+v", step)
		}
	}
	step := s.next(s.list())
	s.subnets("n1", "10.0.0.0/24,fd00::/64")
	s.subnets("n2", "10.0.1.0/24,fd00:0:0:1::/64")
	s.subnets("n3", "10.1.0.0/24,fd00:0:0:2::/64")
	if len(step.Patches) != 3 || s.nodes["n3"].Annotations["ovn_host_subnet"] != "10.1.0.0/24,fd00:0:0:2::/64" ||
		s.nodes["n3"].Annotations["k8s.ovn.org/node-subnets"] != `{"default":["10.1.0.0/24","fd00:0:0:2::/64"]}` {
		t.Errorf("annotations: %+v", s.nodes["n3"].Annotations)
	}
	// The event of a patch, and a heartbeat.
	for range 2 {
		if step := s.next(s.put("n2")); !step.Before.Equal(step.Record) || len(step.Patches) > 0 {
			t.Errorf("the event of the patch: %+v", step)
		}
	}
	if touched := s.put("n2"); touched != nil {
		t.Errorf("nothing changed, and %v are dirty", touched)
	}
	s.start()
	if step := s.next(s.list()); !step.Before.Equal(step.Record) || len(step.Patches)+len(step.Problems) > 0 {
		t.Errorf("a restart: %+v", step)
	}
}

// An event of one Node costs that Node.
func TestWorkOfAnEvent(t *testing.T) {
	s := simulate(t, "10.0.0.0/8/24")
	for i := range 1000 {
		s.add(fmt.Sprint("n", i))
	}
	s.next(s.list())
	for name := range s.nodes {
		s.next(s.put(name))
	}
	s.add("new")
	if step := s.next(s.put("new")); len(step.Units) != 1 || len(step.Patches) != 1 {
		t.Errorf("a new Node: %d units, %d patches", len(step.Units), len(step.Patches))
	}
	if step := s.next(s.remove("n7")); len(step.Units) != 1 || len(step.Patches) != 0 {
		t.Errorf("a Node that is gone: %d units, %d patches", len(step.Units), len(step.Patches))
	}
}

// AC-28: the others go on, and a freed subnet serves the node that waits. AC-30: a node deleted while no master runs.
func TestFull(t *testing.T) {
	s := simulate(t, "10.0.0.0/23/24")
	for _, name := range []string{"n1", "n2"} {
		s.add(name)
	}
	s.next(s.list())
	s.add("n3").Annotations[names.HostSubnetAnnotation] = "10.0.0.0/24" // of another cluster, perhaps
	step := s.next(s.put("n3"))
	s.problem(step, "n3", "node n3 waits for a subnet: all subnets of 10.0.0.0/23/24 are in use")
	s.subnets("n3", "")
	if a := s.nodes["n3"].Annotations; len(a) != 0 {
		t.Errorf("a node without a subnet has annotations: %v", a)
	}
	s.next(s.put("n3"))
	step = s.next(s.remove("n1"))
	s.problem(step, "n3", "")
	s.subnets("n3", "10.0.0.0/24")
	s.subnets("n1", "")
	if s.nodes["n3"].Annotations[names.HostSubnetAnnotation] != "10.0.0.0/24" {
		t.Errorf("annotations: %v", s.nodes["n3"].Annotations)
	}
	delete(s.nodes, "n2")
	s.start()
	s.next(s.list())
	s.subnets("n2", "")
	s.add("n4")
	s.next(s.put("n4"))
	s.subnets("n4", "10.0.1.0/24")
}

// No subnet is given again before a whole round, also over restarts.
func TestRound(t *testing.T) {
	s := simulate(t, "10.0.0.0/21/24,fd00::/61")
	for i := range 24 {
		name := fmt.Sprint("n", i)
		s.add(name)
		s.next(s.list())
		six := netip.MustParsePrefix(fmt.Sprintf("fd00:0:0:%x::/64", i%8))
		s.subnets(name, fmt.Sprintf("10.0.%d.0/24,%s", i%8, six))
		delete(s.nodes, name)
		s.start()
		s.next(s.list())
		s.start()
	}
}

// A Node deleted by mistake and registered again has its former subnets, in one event or two. Its rows go at once.
func TestANodeThatRegistersAgain(t *testing.T) {
	s := simulate(t, "10.0.0.0/16/24,fd00::/48")
	for _, name := range []string{"n1", "n2"} {
		s.add(name)
	}
	s.next(s.list())
	s.next(s.remove("n1"))
	s.subnets("n1", "")
	s.add("n3")
	s.next(s.put("n3"))
	s.add("n1")
	s.next(s.put("n1"))
	s.subnets("n1", "10.0.0.0/24,fd00::/64")
	s.subnets("n3", "10.0.2.0/24,fd00:0:0:2::/64")
	s.add("n2") // with another UID
	s.next(s.put("n2"))
	s.subnets("n2", "10.0.1.0/24,fd00:0:0:1::/64")
	if got := s.nodes["n2"].Annotations[names.HostSubnetAnnotation]; got != "10.0.1.0/24,fd00:0:0:1::/64" {
		t.Errorf("annotation %q", got)
	}
	delete(s.nodes, "n2") // while no master runs
	s.start()
	s.next(s.list())
	s.subnets("n2", "")
	s.add("n2")
	s.next(s.put("n2"))
	s.subnets("n2", "10.0.1.0/24,fd00:0:0:1::/64")
}

// AC-31: an annotation that is none, or another node's, is replaced, with an Event; one that fits is granted.
func TestAnnotations(t *testing.T) {
	s := simulate(t, "10.0.0.0/16/24")
	s.add("n1").Annotations[names.HostSubnetAnnotation] = "10.0.9.0/24"
	s.add("n2").Annotations[names.HostSubnetAnnotation] = "foo"
	s.add("n3").Annotations[names.SubnetsAnnotation] = `{"default":"10.0.9.0/24"}`
	step := s.next(s.list())
	s.subnets("n1", "10.0.9.0/24")
	s.problem(step, "n1", "")
	s.problem(step, "n2", `"foo" is not a subnet`)
	s.problem(step, "n3", "which another node has: replaced by its subnets 10.0.")
	for _, n := range []string{"n1", "n2", "n3"} {
		if got, want := s.nodes[n].Annotations[names.HostSubnetAnnotation], ipnet.Join(s.record.Nodes[n]); got != want || want == "" {
			t.Errorf("%s: annotation %q, want %q", n, got, want)
		}
		s.problem(s.next(s.put(n)), n, "")
	}
	s.nodes["n1"].Annotations[names.HostSubnetAnnotation] = "10.0.77.0/24"
	s.nodes["n1"].Annotations[names.SubnetsAnnotation] = ""
	s.problem(s.next(s.put("n1")), "n1", "but the node has another one already")
	if got := s.nodes["n1"].Annotations[names.HostSubnetAnnotation]; got != "10.0.9.0/24" {
		t.Errorf("an edited annotation became %q", got)
	}
}

// After any changes, a master that starts finds nothing to do, and no two nodes share anything.
func TestRestartsChangeNothing(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := simulate(t, []string{"10.0.0.0/22/24", "10.0.0.0/23/24,10.1.0.0/24/26,fd00::/61"}[r.IntN(2)])
		dirty := s.list()
		for range 40 {
			name := fmt.Sprint("n", r.IntN(6))
			switch n := s.nodes[name]; {
			case n == nil:
				s.add(name)
				dirty = append(dirty, s.put(name)...)
			case r.IntN(4) == 0:
				dirty = append(dirty, s.remove(name)...)
			case r.IntN(4) == 0:
				s.nodes[name] = n.DeepCopy()
				s.nodes[name].Annotations[names.HostSubnetAnnotation] = []string{"foo", "10.0.1.0/24", "10.9.0.0/24"}[r.IntN(3)]
				delete(s.nodes[name].Annotations, names.SubnetsAnnotation)
				dirty = append(dirty, s.put(name)...)
			default:
				i := r.IntN(4)
				s.claim(name, fmt.Sprint("c", r.IntN(4)), fmt.Sprintf("192.0.2.%d/24", 1+i), func(g *topology.Gateway) {
					g.Closed = r.IntN(2) == 0
					if r.IntN(4) == 0 {
						g.Mode, g.IPs[0] = topology.Local, netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", 1+r.IntN(4)))
					}
				})
				dirty = append(dirty, s.put(name)...)
			}
			if r.IntN(3) > 0 {
				continue
			}
			s.next(dirty)
			dirty = nil
			for name := range s.nodes {
				dirty = append(dirty, s.put(name)...)
			}
			s.next(dirty)
			dirty = nil
			before := s.record
			s.check()
			s.start()
			if step := s.next(s.list()); !before.Equal(s.record) || len(step.Patches) > 0 {
				t.Fatalf("seed %d: a restart changed\n%+v to\n%+v, patches %+v", seed, before, s.record, step.Patches)
			}
		}
	}
}

// check checks that nodes share nothing.
func (s *simulation) check() {
	s.Helper()
	if _, err := topology.ReadRegistry(s.record.Registry()); err != nil {
		s.Fatal(err)
	}
	if ids := slices.Sorted(maps.Values(s.record.Chassis)); len(slices.Compact(ids)) != len(s.record.Chassis) {
		s.Fatalf("nodes share a chassis: %v", s.record.Chassis)
	}
	for name := range s.record.Gateways {
		if s.nodes[name] == nil {
			s.Fatalf("gateway %s of a node that is gone", name)
		}
	}
	for name := range s.record.Nodes {
		if s.nodes[name] == nil {
			s.Fatalf("node %s is gone", name)
		}
	}
}
