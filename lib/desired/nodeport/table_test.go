package nodeport

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/nftables"
	"ovn-k8s/lib/ruleset"
	"ovn-k8s/test/namespace"
	"ovn-k8s/test/require"
)

// tabled reads the answers to clients outside back from the table of nftables of a place.
func (p place) tabled(all []service.Frontend) answers {
	h := Host{Node: p.node.Name, Addrs: p.addrs[:], Management: "k8s-" + p.node.Name}
	out := answers{}
	for f := range service.Outside(all) {
		t := indexed(NewRules(h, families()[f.Family], all, nil).Table())
		e := ruleset.Element{Destination: f.Addr, Protocol: lower(f.Protocol()), Port: f.Number}
		verdicts, destinations, at := []string{mapRanges, mapFrontends}, mapClusterIPs, f.Addr
		if f.Kind == service.NodePort {
			verdicts, destinations, at = []string{mapNodePorts}, mapNodePortIPs, p.addrs[f.Family]
			e.Destination = netip.Addr{}
		}
		for _, set := range verdicts {
			if found, ok := t.elements[set][e]; ok {
				out.set(f.Protocol(), at, f.Number, t.follow(found.Verdict, t.elements[destinations][e], f))
				break
			}
		}
	}
	return out
}

// An index finds chains and elements by name and key. Sources count for nothing.
type index struct {
	chains   map[string][]ruleset.Rule
	elements map[string]map[ruleset.Element]ruleset.Element
}

func indexed(t ruleset.Table) index {
	i := index{map[string][]ruleset.Rule{}, map[string]map[ruleset.Element]ruleset.Element{}}
	for _, c := range t.Chains {
		i.chains[c.Name] = c.Rules
	}
	for _, s := range t.Sets {
		i.elements[s.Name] = map[ruleset.Element]ruleset.Element{}
		for _, e := range s.Elements {
			key := e.Bare()
			key.Source = netip.Prefix{}
			i.elements[s.Name][key] = e
		}
	}
	return i
}

// follow returns the destinations of a verdict for clients outside. A cluster IP stands for all endpoints.
func (i index) follow(verdict string, shared ruleset.Element, f service.Frontend) (out []string) {
	to := func(text string) []string {
		if text == f.Cluster().String() {
			return texts(f.Backends().Cluster())
		}
		return []string{text}
	}
	_, chain, _ := strings.Cut(verdict, "goto ")
	if chain == "svc-cluster-ip" || chain == "svc-nodeport-cluster-ip" {
		return to(shared.To.String())
	}
	for _, r := range i.chains[chain] {
		if strings.Contains(r.Text, "saddr") || strings.HasPrefix(r.Text, "iifname") {
			continue
		}
		if _, text, is := strings.Cut(r.Text, "dnat to "); is {
			out = append(out, to(text)...)
		}
		for _, part := range strings.Split(strings.Trim(r.Text, " }"), ",") {
			if _, next, is := strings.Cut(part, "goto "); is {
				out = append(out, i.follow("goto "+next, shared, f)...)
			}
		}
	}
	return out
}

// nft takes the tables of random Services, one after the other, and a table read again has nothing to change.
func TestTheKernelTakesTables(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		require.Nothing(t, require.Node, "nft")
	}
	namespace.Enter(t)
	for _, family := range families() {
		for seed := range uint64(12) {
			r := rand.New(rand.NewPCG(seed, 7))
			h, frontends, pods := randomHost(r)
			want := NewRules(h, family, frontends, pods).Table()
			table := newTable(family)
			changes, _, err := table.Sync(t.Context(), ObjectPrefix, want)
			if err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(changes, "\n"))
			}
			if again, read, err := table.Sync(t.Context(), ObjectPrefix, want); len(again) > 0 || read || err != nil {
				t.Errorf("seed %d: the same again: read %v, %v, %q", seed, read, err, again)
			}
			if again, err := newTable(family).Plan(ObjectPrefix, want); len(again) > 0 || err != nil {
				t.Errorf("seed %d: read again: %v\n%s", seed, err, strings.Join(again, "\n"))
			}
		}
		if _, _, err := newTable(family).Sync(t.Context(), ObjectPrefix, ruleset.Table{}); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := exec.Command("nft", "list", "ruleset").CombinedOutput(); err != nil || len(left) > 0 {
		t.Errorf("left over: %v\n%s", err, left)
	}
}

func newTable(family netip.Addr) *nftables.Table {
	return nftables.NewTable(family, link.PacketFilterGeneration)
}

// randomHost draws a host, some Services and some pods with hostPorts.
func randomHost(r *rand.Rand) (Host, []service.Frontend, []hostport.Pod) {
	at := network()
	var services []*service.Resolved
	for i := range 1 + r.IntN(3) {
		s := randomly(r)
		s.Name = fmt.Sprint("web-", i)
		if r.IntN(2) == 0 {
			s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("198.51.100.7/32"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("2001:db8::/64")}[:1+r.IntN(4)]
		}
		services = append(services, &s)
	}
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
	return h, service.AllFrontends(services, at.Network), pods[:r.IntN(4)]
}

// An older hostPort at all addresses hides a younger one at one address, and not the other way round.
func TestOfHostPortsInATableTheFirstWins(t *testing.T) {
	everywhere := func(created int64) hostport.Pod {
		return one("everywhere", "", 80, 8080, func(p *hostport.Pod) { p.Created = created })
	}
	single := one("single", "192.0.2.1", 80, 9090, func(p *hostport.Pod) { p.Created = 2 })
	for created, want := range map[int64]string{1: "pod default/everywhere", 3: "pod default/everywhere, pod default/single"} {
		found := indexed(NewRules(node1, IPv4, nil, []hostport.Pod{single, everywhere(created)}).Table())
		var got []string
		for _, set := range []string{mapHostPorts, mapHostPortsAt} {
			for _, e := range found.elements[set] {
				got = append(got, e.Comment)
			}
		}
		slices.Sort(got)
		if strings.Join(got, ", ") != want {
			t.Errorf("created at %d: %q", created, got)
		}
	}
}
