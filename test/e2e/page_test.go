package e2e

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/docs"
	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// A page runs the commands of docs/gateways.md literally on hosts of the cluster.
// It replaces only addresses, by those of the host.
type page struct {
	t *testing.T
	// hosts are the hosts of the page's gateways, by gateway name.
	hosts map[string]*world.Node
	// made are the existing gateways, by name, with their source addresses seen
	// outside.
	made map[string][]netip.Addr
	ran  int
}

// TestEveryCommandOfTheGatewaysPage runs the page from top to bottom.
func TestEveryCommandOfTheGatewaysPage(t *testing.T) {
	ofPrograms(t, "test/docs")
	require.Nothing(t, require.Cluster, world.Missing())
	list := pods(t, map[string]string{"near": "minion1", "far": "minion2"})
	around := surround(t)
	p := &page{t: t, made: map[string][]netip.Addr{}, hosts: map[string]*world.Node{
		"kube-gw1": cluster.Master(), "kube-minion1": cluster.Node("minion1"),
		"kube-gw2": cluster.Node("minion2"), "kube-minion2": cluster.Node("minion2"),
	}}
	before := map[*world.Node][]string{}
	for _, n := range cluster.Nodes {
		before[n] = state(t, n)
	}
	t.Cleanup(func() {
		p.t = t
		for name := range p.made {
			p.run(context.Background(), p.hosts[name], "ovn-k8s-overlay gateway-remove --node-name="+name)
		}
		if err := cluster.StartHelper(context.Background(), cluster.Node("minion1")); err != nil {
			t.Error(err)
		}
		for n, was := range before {
			unchanged(t, "after the page, on "+n.Name, was, n)
		}
	})
	text, err := docs.Files.ReadFile("gateways.md")
	if err != nil {
		t.Fatal(err)
	}
	for section := range strings.SplitSeq(string(text), "\n## ") {
		title, _, _ := strings.Cut(section, "\n")
		commands := commandsOf(section)
		here := p.host(commands)
		t.Run(title, func(t *testing.T) {
			p.t = t
			for _, c := range commands {
				p.do(here, c)
			}
			if len(commands) == 0 {
				return
			}
			outside := around.Outside
			outside.Addresses = slices.DeleteFunc(slices.Clone(outside.Addresses), func(a netip.Addr) bool {
				return !slices.ContainsFunc(p.seen(), func(s netip.Addr) bool { return s.Is4() == a.Is4() })
			})
			leaves(t, []world.Endpoint{list["near"], list["far"]}, p.seen(), outside)
		})
	}
	if p.ran < 12 {
		t.Errorf("the page has only %d commands", p.ran)
	}
}

// commandsOf lists the commands of a section: the lines of its blocks, except
// drawings.
func commandsOf(section string) []string {
	var all []string
	for _, b := range docs.Blocks(section) {
		for line := range strings.Lines(strings.ReplaceAll(b.Text, "\\\n", " ")) {
			if line = strings.TrimRight(line, "\n"); line != "" && line[0] != ' ' {
				all = append(all, line)
			}
		}
	}
	return all
}

// host returns the host of the gateway named in a section.
func (p *page) host(commands []string) *world.Node {
	for _, c := range commands {
		if name, ok := option(strings.Fields(c), "--node-name"); ok {
			if p.hosts[name] == nil {
				p.t.Fatalf("%q is about a gateway that this test has no host for", c)
			}
			return p.hosts[name]
		}
	}
	return cluster.Master()
}

// seen returns the addresses of all gateways.
func (p *page) seen() (all []netip.Addr) {
	for _, addrs := range p.made {
		all = append(all, addrs...)
	}
	return all
}

// option returns the value of a command's option.
func option(words []string, name string) (string, bool) {
	i := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, name+"=") })
	if i < 0 {
		return "", false
	}
	return strings.TrimPrefix(words[i], name+"="), true
}

// do runs a command of the page, and checks its documented effect.
func (p *page) do(here *world.Node, command string) {
	p.t.Helper()
	words := strings.Fields(command)
	if strings.HasPrefix(command, "ovn-nbctl ") {
		here = cluster.Master()
	}
	p.ran++
	name, _ := option(words, "--node-name")
	switch {
	case strings.Contains(command, " gateway-init "):
		p.made[name] = p.local(here, words)
		p.run(p.t.Context(), here, strings.Join(words, " ")+" --dry-run")
		p.run(p.t.Context(), here, strings.Join(words, " "))
		if list := p.run(p.t.Context(), cluster.Master(), "ovn-nbctl lr-list"); !strings.Contains(list, "GR_"+name+")") {
			p.t.Errorf("%s made no router: %s", command, list)
		}
	case strings.Contains(command, " gateway-remove "):
		p.run(p.t.Context(), here, command)
		delete(p.made, name)
	case strings.HasPrefix(command, "ovn-nbctl lr-route-list"):
		if out := p.run(p.t.Context(), here, command); strings.Count(out, " 0.0.0.0/0 ") != len(p.made) {
			p.t.Errorf("%d gateways, and other routes: %s", len(p.made), out)
		}
	case strings.HasPrefix(command, "ip"), strings.HasPrefix(command, "nft"):
		if out := p.run(p.t.Context(), here, command); !strings.Contains(out, "gw-postrouting") && !strings.Contains(out, "1646") && !strings.Contains(out, "br-nexthop") {
			p.t.Errorf("%s shows nothing of the gateway: %s", command, out)
		}
	default:
		p.run(p.t.Context(), here, command)
	}
}

// local replaces the addresses in a gateway-init by those of the host, and returns
// the source addresses seen outside.
func (p *page) local(here *world.Node, words []string) (seen []netip.Addr) {
	p.t.Helper()
	addresses, hops := here.Addresses, here.Gateways()
	if nic, dedicated := option(words, "--physical-interface"); dedicated {
		addresses, hops = here.Second()
		if err := here.HideFromKernel(p.t.Context(), nic); err != nil {
			p.t.Fatal(err)
		}
	}
	families := 2 // of a local gateway: the cluster's
	for i, w := range words {
		name, value, _ := strings.Cut(w, "=")
		n := len(strings.Split(value, ","))
		switch name {
		case "--cluster-ip-subnet":
			words[i] = name + "=" + world.ClusterSubnets
		case "--physical-ip":
			families, words[i] = n, name+"="+join(addresses[:n])
		case "--default-gw":
			words[i] = name + "=" + join(hops[:n])
		}
	}
	for _, a := range addresses[:families] {
		seen = append(seen, a.Addr())
	}
	return seen
}

// join joins values with commas.
func join[T interface{ String() string }](all []T) string {
	var words []string
	for _, a := range all {
		words = append(words, a.String())
	}
	return strings.Join(words, ",")
}

// run runs a command line.
func (p *page) run(ctx context.Context, here *world.Node, command string) string {
	p.t.Helper()
	words := strings.Fields(command)
	out, _, err := here.Run(ctx, words[0], words[1:]...)
	if err != nil {
		p.t.Error(err)
	}
	return out
}
