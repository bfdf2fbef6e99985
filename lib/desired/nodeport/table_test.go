package nodeport

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ruleset"
)

// tabled reads the answers at some frontends back from the table of nftables of a place: those to clients outside.
func (p place) tabled(all service.List, frontends iter.Seq[service.Frontend]) answers {
	h := p.host()
	out := answers{}
	for f := range frontends {
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
	t = t.Whole()
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
