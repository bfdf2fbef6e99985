package nodeport

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/ports"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/nftables"
	"ovn-k8s/lib/ruleset"
	"ovn-k8s/test/namespace"
)

// inputs are those of rules, with Services that do not share frontends.
type inputs struct {
	host     Host
	pods     []hostport.Pod
	claims   ports.Services
	services map[service.Key]*service.Resolved
	lists    service.Lists
	closed   bool // see service.List.Inside
}

func randomInputs(r *rand.Rand) *inputs {
	in := &inputs{services: map[service.Key]*service.Resolved{}}
	in.claims.SetHosts(network().Hosts)
	in.host, in.pods = randomHost(r)
	return in
}

// change draws a change.
func (in *inputs) change(r *rand.Rand) {
	s := randomNamed(r, r.IntN(6))
	switch r.IntN(10) {
	case 0:
		in.host, in.pods = randomHost(r)
	case 3, 4:
		in.host.Nodes = Nodes{"n1": places[0].addrs[:1+r.IntN(2)], "n2": pick(r, nil, places[1].addrs[:], []netip.Addr{addr("192.0.2.22"), addr("2001:db8::22")})}
	case 1:
		changed, _ := in.claims.Put(service.Service{Key: s.Key})
		delete(in.services, s.Key)
		in.resolve(changed...)
	case 2:
		in.closed = r.IntN(2) == 0
	default:
		changed, _ := in.claims.Put(s.Service)
		in.services[s.Key] = &s
		in.resolve(append(changed, s.Key)...)
	}
}

// resolve makes Services again whose claims have changed.
func (in *inputs) resolve(keys ...service.Key) {
	for _, k := range keys {
		if s := in.services[k]; s != nil {
			now := *s
			held := in.claims.Copied(k)
			now.Lost, now.Taken = service.LostIn(held), in.claims.Taken(k)
			in.services[k] = &now
		}
	}
}

// rules are the rules of one family: new ones, and those with kept tables.
func (in *inputs) rules(family netip.Addr, kept *Tables) (fresh, again Rules) {
	var all []*service.Resolved
	for _, k := range slices.SortedFunc(maps.Keys(in.services), func(a, b service.Key) int { return strings.Compare(a.Name, b.Name) }) {
		all = append(all, in.services[k])
	}
	frontends, listed := service.AllFrontends(all, network().Network), in.lists.Of(all, network().Network)
	if in.closed {
		frontends, listed = frontends.Inside(), listed.Inside()
	}
	return NewRules(in.host, family, frontends, in.pods), kept.Rules(in.host, family, listed, in.pods)
}

// randomNamed draws a Service with a number in its name. Numbers of different parity have different cluster IPs.
func randomNamed(r *rand.Rand, i int) service.Resolved {
	s := randomly(r)
	s.Name, s.Created = fmt.Sprint("web-", i), int64(i%3)
	for j, a := range s.ClusterIPs {
		b := a.AsSlice()
		b[len(b)-1] += byte(i % 2)
		s.ClusterIPs[j], _ = netip.AddrFromSlice(b)
	}
	if r.IntN(2) == 0 {
		s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("198.51.100.7/32"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("2001:db8::/64")}[:1+r.IntN(4)]
	}
	return s
}

// After any change of Services, host and pods, kept tables are those of new rules.
func TestKeptTablesEqualNewOnes(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 9))
		in, kept := randomInputs(r), map[netip.Addr]*Tables{IPv4: {}, IPv6: {}}
		for step := range 15 {
			in.change(r)
			for family, tables := range kept {
				fresh, again := in.rules(family, tables)
				if diff := cmp.Diff(nftables.Describe(fresh.Table()), nftables.Describe(again.Table())); diff != "" {
					t.Fatalf("seed %d, step %d (-want +got):\n%s", seed, step, diff)
				}
			}
		}
	}
}

// Another address of a node renders only Services with external policy Local and endpoints there. All were rendered again on
// each host.
func TestAnotherAddressOfANode(t *testing.T) {
	services := many()
	local := *services[5000]
	local.ExternalLocal, local.Ports = true, []service.Port{{Name: "http", Protocol: "TCP", Port: 80, NodePort: 30080}}
	here := local
	local.Endpoints = []service.Endpoints{{{Host: &service.Host{Addr: addr("10.128.2.3"), Node: "node2", State: service.Serving}, Port: 8080}}}
	here.Name = "here"
	services[5000], services[6000] = &local, &here
	frontends := service.AllFrontends(services, service.Network{})
	var kept Tables
	parts := func(address string) []*ruleset.Table {
		h := node1
		h.Nodes = Nodes{"node1": h.Addrs, "node2": {addr(address)}}
		return kept.parts(kept.Rules(h, IPv4, frontends, nil))
	}
	before, after := parts("192.0.2.2"), parts("192.0.2.3")
	for i := range before {
		if (before[i] != after[i]) != (i == 5000) {
			t.Errorf("%s is rendered: %t", services[i].Key, before[i] != after[i])
		}
	}
	if text := fmt.Sprint(nftables.Describe(*after[5000])); !strings.Contains(text, "192.0.2.3") {
		t.Errorf("with the other address: %s", text)
	}
}

// nft takes the tables of random Services, one after the other, and a table read again has nothing to change.
func TestTheKernelTakesTables(t *testing.T) {
	namespace.Load(t, "")
	for _, family := range families() {
		r := rand.New(rand.NewPCG(0, 7))
		in, kept, table := randomInputs(r), &Tables{}, newTable(family)
		var last Rules
		for step := range 30 {
			in.change(r)
			fresh, again := in.rules(family, kept)
			last = fresh
			changes, read, err := table.Sync(t.Context(), ObjectPrefix, again.Table())
			if err != nil || read != (step == 0) {
				t.Fatalf("step %d: read %v, %v\n%s", step, read, err, strings.Join(changes, "\n"))
			}
			if more, read, err := table.Sync(t.Context(), ObjectPrefix, again.Table()); len(more) > 0 || read || err != nil {
				t.Errorf("step %d: the same again: read %v, %v, %q", step, read, err, more)
			}
			if more, err := newTable(family).Plan(ObjectPrefix, fresh.Table()); len(more) > 0 || err != nil {
				t.Errorf("step %d: read again: %v\n%s", step, err, strings.Join(more, "\n"))
			}
		}
		changed := namespace.Listing(t, "nft")
		for _, want := range []ruleset.Table{{}, last.Table(), {}} {
			if _, _, err := newTable(family).Sync(t.Context(), ObjectPrefix, want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(namespace.Listing(t, "nft"), changed); len(want.Sets) > 0 && diff != "" {
				t.Errorf("written at once by nft (-) and after changes (+):\n%s", diff)
			}
		}
	}
	if left, err := exec.Command("nft", "list", "ruleset").CombinedOutput(); err != nil || len(left) > 0 {
		t.Errorf("left over: %v\n%s", err, left)
	}
}

func newTable(family netip.Addr) *nftables.Table {
	return nftables.NewTable(family, link.PacketFilterGeneration)
}

// randomHost draws a host and some pods with hostPorts.
func randomHost(r *rand.Rand) (Host, []hostport.Pod) {
	p := places[r.IntN(2)]
	h := Host{
		Node: p.node.Name, Addrs: p.addrs[:], Nodes: Nodes{"n1": places[0].addrs[:], "n2": places[1].addrs[:]}, Gateway: r.IntN(2) == 0,
		Management: pick(r, "", "k8s-"+p.node.Name), Shared: pick(r, "", "breth0"), PodPorts: "10000-29999",
		Pods:              []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24"), netip.MustParsePrefix("fd00:0:0:1::/64")},
		Routed:            pick(r, nil, []netip.Prefix{netip.MustParsePrefix("172.16.1.0/28")}),
		NodePortAddresses: pick(r, nil, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("::/0")}),
		Servers:           pick(r, nil, []netip.AddrPort{netip.MustParseAddrPort("203.0.113.1:80"), netip.MustParseAddrPort("203.0.113.1:443")}),
	}
	pods := []hostport.Pod{one("web", "", 80, 8080), one("other", "192.0.2.1", 80, 8080), one("dns", "127.0.0.1", 53, 53, udp)}
	return h, pods[:r.IntN(4)]
}
