package nodeport

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/flow"
	"ovn-k8s/lib/ruleset"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// web is a Service with one port, an endpoint on each of two nodes, and every
// kind of frontend, as changed.
func web(change ...func(*service.Resolved)) service.List {
	return service.AllFrontends(webService(change...), service.Network{})
}

func webService(change ...func(*service.Resolved)) []*service.Resolved {
	s := service.Resolved{
		Service: service.Service{
			Key: service.Key{Namespace: "default", Name: "web"}, Type: corev1.ServiceTypeLoadBalancer, Ours: true,
			ClusterIPs:  []netip.Addr{addr("172.30.0.10")},
			Ports:       []service.Port{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}},
			ExternalIPs: []netip.Addr{addr("203.0.113.7")},
			Ingress:     []service.Ingress{{Addr: addr("203.0.113.8")}},
		},
		Endpoints: []service.Endpoints{{
			{Host: &service.Host{Addr: addr("10.128.1.3"), Node: "node1", State: service.Serving}, Port: 8080},
			{Host: &service.Host{Addr: addr("10.128.2.3"), Node: "node2", State: service.Serving}, Port: 8080},
		}},
	}
	for _, c := range change {
		c(&s)
	}
	return []*service.Resolved{&s}
}

var node1 = Host{Node: "node1", Addrs: []netip.Addr{addr("192.0.2.1"), addr("10.128.1.2")}, Management: "k8s-node1"}

// rules returns the rules of a table with given words, sorted, each after the name of its
// chain. Names of our chains are cut to the kind.
func rules(chains []Chain, table string, words ...string) []string {
	var out []string
	for _, c := range chains {
		for _, r := range c.Rules {
			line := c.Name + " " + r
			if c.Table != table || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				continue
			}
			fields := strings.Fields(line)
			for i, f := range fields {
				if name, ok := strings.CutPrefix(f, ChainPrefix); ok {
					fields[i], _, _ = strings.Cut(name, "-")
				}
			}
			out = append(out, strings.Join(fields, " "))
		}
	}
	slices.Sort(out)
	return out
}

const dnat = "-p tcp -j DNAT --to-destination "

func TestAWayInLeadsToTheClusterIP(t *testing.T) {
	got := chainsOf(node1, IPv4, web(), nil)
	if diff := cmp.Diff([]string{
		"EXT -j SVC",
		`NODEPORTS -p tcp -m tcp --dport 30080 -m comment --comment "default/web:http" -j EXT`,
		"POSTROUTING -p udp -m udp --dport 6081 -j RETURN",
		"SVC -j MARK --set-xmark 0x1000/0x1000",
		"SVC " + dnat + "172.30.0.10:80",
		`WAYS ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j NODEPORTS`,
		`WAYS -d 203.0.113.7/32 -p tcp -m tcp --dport 80 -m comment --comment "default/web:http external IP" -j EXT`,
		`WAYS -d 203.0.113.8/32 -p tcp -m tcp --dport 80 -m comment --comment "default/web:http" -j EXT`,
	}, slices.DeleteFunc(rules(got, "nat"), func(r string) bool { return strings.HasSuffix(r, "-j WAYS") || strings.Contains(r, "MASQUERADE") })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := rules(got, "filter", "default/web"); got != nil {
		t.Errorf("refused: %q", got)
	}
	if got := rules(chainsOf(node1, IPv6, web(), nil), "nat", "web"); got != nil {
		t.Errorf("an IPv4 Service in IPv6: %q", got)
	}
}

func TestPolicyLocalKeepsTheSource(t *testing.T) {
	local := func(s *service.Resolved) { s.ExternalLocal = true }
	got := chainsOf(node1, IPv4, web(local), nil)
	if diff := cmp.Diff([]string{
		"EXT -i k8s-node1 -j POD",
		"EXT -j KEP",
		"EXT -m addrtype --src-type LOCAL -j SVC",
	}, rules(got, "nat", "EXT-", "-j")[:3]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"KEP " + dnat + "10.128.1.3:8080"}, rules(got, "nat", "KEP-", "DNAT")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"SEP " + dnat + "10.128.1.3:8080"}, rules(got, "nat", "SEP-", "DNAT")); diff != "" {
		t.Errorf("pods of other nodes get an endpoint of this node (-want +got):\n%s", diff)
	}
	elsewhere := node1
	elsewhere.Node = "node3"
	if got := rules(chainsOf(elsewhere, IPv4, web(local), nil), "filter", "-j DROP"); len(got) != 3 {
		t.Errorf("a node without an endpoint drops what comes to all 3 ways in: %q", got)
	}
}

func TestWithoutAnEndpointHereTheHostGoesToNodesThatHaveOne(t *testing.T) {
	local := func(s *service.Resolved) { s.ExternalLocal, s.Ports[0].Protocol = true, corev1.ProtocolUDP }
	h := Host{Node: "node3", Addrs: []netip.Addr{addr("192.0.2.3")}, Nodes: Nodes{
		"node1": {addr("2001:db8::1"), addr("192.0.2.1")}, "node2": {addr("192.0.2.2")}, "node3": {addr("192.0.2.3")},
	}}
	if diff := cmp.Diff([]string{
		"KEP -p udp -j DNAT --to-destination 192.0.2.1:30080",
		"KEP -p udp -j DNAT --to-destination 192.0.2.2:30080",
	}, rules(chainsOf(h, IPv4, web(local), nil), "nat", "KEP-", "DNAT")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		`NODEPORTS -p udp -m udp --dport 30080 -m addrtype --src-type LOCAL -m comment --comment "default/web:http" -j OWN`,
		`NODEPORTS -p udp -m udp --dport 30080 -m comment --comment "default/web:http" -j EXT`,
	}, rules(chainsOf(h, IPv4, web(local), nil), "nat", "NODEPORTS -p")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if NewTracked(h, IPv4, web(local), nil).Stale(netip.MustParseAddrPort("192.0.2.3:30080"), netip.MustParseAddrPort("192.0.2.2:30080")) {
		t.Error("a connection to the NodePort of another node is taken for stale")
	}
	for name, change := range map[string]func(*Host){
		"an endpoint is here":        func(h *Host) { h.Node = "node1" },
		"an address is not known":    func(h *Host) { delete(h.Nodes, "node2") },
		"no NodePorts at an address": func(h *Host) { h.NodePortAddresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/31")} },
	} {
		h := h
		h.Nodes = maps.Clone(h.Nodes)
		change(&h)
		if got := rules(chainsOf(h, IPv4, web(local), nil), "nat", "OWN-"); got != nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestWithoutARouteTheHostChoosesTheEndpoint(t *testing.T) {
	h := node1
	h.Routed = []netip.Prefix{netip.MustParsePrefix("172.30.0.0/16")}
	if got := rules(chainsOf(h, IPv4, web(), nil), "nat", "INT"); got != nil {
		t.Errorf("there is a route: %q", got)
	}
	later := func(s *service.Resolved) { s.ClusterIPs[0] = addr("203.0.113.10") }
	got := chainsOf(h, IPv4, web(later), nil)
	if diff := cmp.Diff([]string{`WAYS -d 203.0.113.10/32 -p tcp -m tcp --dport 80 -m comment --comment "default/web:http" -j INT`}, rules(got, "nat", "203.0.113.10")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := rules(got, "nat", "OVN-SVC-SVC-", "OVN-SVC-SEP-"); len(got) != 2 {
		t.Errorf("NodePorts lead to both endpoints: %q", got)
	}
	h.Routed = []netip.Prefix{}
	if got := rules(chainsOf(h, IPv4, web(), nil), "nat", "OVN-SVC-SVC-", "OVN-SVC-SEP-"); len(got) != 2 {
		t.Errorf("without any route NodePorts lead to both endpoints: %q", got)
	}
}

func TestNoEndpointsAreRefusedAtOnce(t *testing.T) {
	none := func(s *service.Resolved) { s.Endpoints[0] = nil }
	if diff := cmp.Diff([]string{
		`REFUSE ! -d 127.0.0.0/8 -p tcp -m tcp --dport 30080 -m addrtype --dst-type LOCAL -m comment --comment "default/web:http" -j REJECT --reject-with tcp-reset`,
		`REFUSE -d 203.0.113.7/32 -p tcp -m tcp --dport 80 -m comment --comment "default/web:http external IP" -j REJECT --reject-with tcp-reset`,
		`REFUSE -d 203.0.113.8/32 -p tcp -m tcp --dport 80 -m comment --comment "default/web:http" -j REJECT --reject-with tcp-reset`,
	}, rules(chainsOf(node1, IPv4, web(none), nil), "filter", "REJECT")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSourceRanges(t *testing.T) {
	ranges := func(s *service.Resolved) {
		s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8::/64")}
	}
	got := chainsOf(node1, IPv4, web(ranges), nil)
	if diff := cmp.Diff([]string{`WAYS -s 198.51.100.0/24 -d 203.0.113.8/32 -p tcp -m tcp --dport 80 -m comment --comment "default/web:http" -j EXT`}, rules(got, "nat", "203.0.113.8/32")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{`REFUSE -d 203.0.113.8/32 -p tcp -m tcp --dport 80 -m comment --comment "default/web:http" -j DROP`}, rules(got, "filter", "203.0.113.8/32")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Only of the other family: closed.
	other := func(s *service.Resolved) { s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("2001:db8::/64")} }
	if got := rules(chainsOf(node1, IPv4, web(other), nil), "nat", "203.0.113.8/32"); got != nil {
		t.Errorf("let in: %q", got)
	}
}

func TestAnEndpointInTheHostsOwnNetwork(t *testing.T) {
	own := func(s *service.Resolved) { s.Endpoints[0][0].Addr = addr("192.0.2.1") }
	got := chainsOf(node1, IPv4, web(own), nil)
	if diff := cmp.Diff([]string{
		"SEP " + dnat + "10.128.2.3:8080",
		"SEP " + dnat + "192.0.2.1:8080",
	}, rules(got, "nat", "DNAT")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := rules(got, "nat", "-m statistic --mode random --probability 0.50000000000"); len(got) != 2 {
		t.Errorf("one half each, from outside and from this host: %q", got)
	}
	if got := rules(got, "nat", "-d 172.30.0.10/32"); len(got) != 1 {
		t.Errorf("what this host sends to the ClusterIP: %q", got)
	}
	// Its gateway router has the same address, so flows leave it to the host.
	b := bridgeflows.Bridge{Physical: 1, Overlay: 2, MAC: "0a:00:00:00:00:01", Zone: 64000, Addrs: node1.Addrs[:1], NodePorts: node1.Addrs[:1]}
	if got, base := bridgeflows.Flows(b, web(own), nil), bridgeflows.Base(b); len(got) != len(base) {
		t.Errorf("flows: %v", got[len(base):])
	}
}

func TestAffinity(t *testing.T) {
	sticky := func(s *service.Resolved) { s.Affinity = 600 }
	got := chainsOf(node1, IPv4, web(sticky), nil)
	if n := len(rules(got, "nat", "-m recent --rcheck --seconds 600 --reap --name OVN-SVC-SEP-")); n != 2 {
		t.Errorf("%d rules look for the client", n)
	}
	if n := len(rules(got, "nat", "-m recent --set --name OVN-SVC-SEP-", "DNAT")); n != 2 {
		t.Errorf("%d rules remember the client", n)
	}
	// As with kube-proxy, looking does not make it last longer; a connection does.
	if got := rules(got, "nat", "--update"); len(got) != 0 {
		t.Errorf("rules that refresh: %q", got)
	}
}

func TestProbabilities(t *testing.T) {
	for n, want := range map[int]string{1: "", 2: "0.50000000000", 3: "0.33333333349", 7: "0.14285714272"} {
		if got := chance(n); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("1 of %d: %q, want %s", n, got, want)
		}
	}
}

// Answers of pods to clients outside leave by a gateway with a NIC, if there is one, and not
// by the host: it would have to reverse the NAT.
func TestPolicyLocalBesideAGateway(t *testing.T) {
	h := node1
	h.Gateway = true
	got := chainsOf(h, IPv4, web(func(s *service.Resolved) { s.ExternalLocal = true }), nil)
	if kept := rules(got, "nat", "KEP-"); kept != nil {
		t.Errorf("a client keeps its address: %q", kept)
	}
	if to := rules(got, "nat", "SEP-", "DNAT"); !slices.Equal(to, []string{"SEP " + dnat + "10.128.1.3:8080"}) {
		t.Errorf("led to %q", to)
	}
}

func TestHealthChecks(t *testing.T) {
	checked := func(s *service.Resolved) { s.ExternalLocal, s.HealthCheckNodePort = true, 32000 }
	draining := func(s *service.Resolved) {
		checked(s)
		for i := range s.Endpoints[0] {
			s.Endpoints[0][i].State = service.Draining
		}
	}
	if got := HealthChecks("node1", webService(draining)); got[32000].Local != 0 {
		t.Errorf("endpoints that drain count: %v", got)
	}
	for node, want := range map[string]int{"node1": 1, "node3": 0} {
		got := HealthChecks(node, webService(checked))
		if diff := cmp.Diff(map[uint16]Health{32000: {service.Key{Namespace: "default", Name: "web"}, want}}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", node, diff)
		}
	}
}

// hosts is a network with two nodes.
var hosts = service.Network{Hosts: []netip.Addr{addr("192.0.2.1"), addr("192.0.2.2")}}

// A Service does not get the host's connections to another node's kubelet by claiming its
// address.
func TestNodesKeepThePortsThatTheyNeed(t *testing.T) {
	for _, a := range []string{"192.0.2.1", "192.0.2.2", "203.0.113.7"} {
		for _, port := range []uint16{10250, 80} {
			chains := chainsOf(node1, IPv4, service.AllFrontends(webService(func(s *service.Resolved) {
				s.ExternalIPs, s.Ports[0].Port = []netip.Addr{addr(a)}, port
			}), hosts), nil)
			let := len(rules(chains, "nat", "WAYS -d "+a+"/32")) > 0
			if want := port == 80 || a == "203.0.113.7"; let != want {
				t.Errorf("%s:%d is a frontend: %t", a, port, let)
			}
		}
	}
}

// A Service with the address of a host as external address gets no connections to ports
// reserved for the host or another Service; it gets those to other ports.
func TestNobodyTakesAHostsPort(t *testing.T) {
	for _, at := range []string{"192.0.2.1", "192.0.2.2"} { // its own, another node's
		for port, want := range map[uint16]bool{22: false, 30081: false, 8443: true} {
			services := webService(func(s *service.Resolved) {
				s.ExternalIPs = []netip.Addr{addr(at)}
				s.Ports[0].Port = port
				s.Taken = map[service.Claim]service.Key{{Protocol: corev1.ProtocolTCP, Port: 30081}: {Namespace: "default", Name: "door"}}
			})
			if got := rules(chainsOf(node1, IPv4, service.AllFrontends(services, hosts), nil), "nat", "-d "+at+"/32"); len(got) > 0 != want {
				t.Errorf("port %d at %s: %q", port, at, got)
			}
		}
	}
}

// A Service with an address of a pod, a cluster IP or a router among its external IPs gets no connections of the host
// to it. OVN never sent them there.
func TestNobodyTakesAddressesInside(t *testing.T) {
	n := service.Network{
		Inside: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/14")}, Ranges: servicecidr.Ranges{netip.MustParsePrefix("172.30.0.0/16")},
		Hops: []netip.Addr{addr("192.0.2.254")},
	}
	b := bridgeflows.Bridge{Physical: 1, Overlay: 2, MAC: "0a:00:00:00:00:01", Zone: 64000, Addrs: node1.Addrs[:1], NodePorts: node1.Addrs[:1]}
	for at, want := range map[string]bool{"10.128.2.3": false, "172.30.0.11": false, "192.0.2.254": false, "203.0.113.7": true} {
		frontends := service.AllFrontends(webService(func(s *service.Resolved) { s.ExternalIPs = []netip.Addr{addr(at)} }), n)
		rules := rules(chainsOf(node1, IPv4, frontends, nil), "nat", "-d "+at+"/32")
		flows := slices.DeleteFunc(bridgeflows.Flows(b, frontends, nil), func(f flow.Flow) bool { return !strings.Contains(f.Match, "nw_dst="+at+",") })
		if len(rules) > 0 != want || len(flows) > 0 != want {
			t.Errorf("at %s: %q %v", at, rules, flows)
		}
	}
}

// P6: a Service does not get the host's own connections to databases and API servers.
func TestServersAreSpared(t *testing.T) {
	api := netip.MustParseAddrPort("203.0.113.7:6443")
	s := web(func(s *service.Resolved) {
		s.ExternalIPs = []netip.Addr{api.Addr()}
		s.Ports[0].Port = api.Port()
	})
	for _, h := range []Host{{Node: "node1"}, {Node: "node1", Servers: []netip.AddrPort{api}}} {
		claims := ServerClaims(h, s)
		if (len(claims) > 0) != (h.Servers != nil) {
			t.Errorf("claims of %+v: %v", h, claims)
		}
		for _, c := range chainsOf(h, IPv4, s, nil) {
			if c.Name != ChainPrefix+"OUTPUT" {
				continue
			}
			if spared := c.Rules[0] == "-d 203.0.113.7/32 -p tcp -m tcp --dport 6443 -j RETURN"; spared != (h.Servers != nil) {
				t.Errorf("%s of %s: %q", c.Name, c.Table, c.Rules)
			}
		}
	}
}

// Issue 16: a host that does not know the Services yet keeps the exceptions made by the former release, which did not
// mark rules of external IPs, and makes those for marked rules.
func TestServersStaySparedAfterAnUpgrade(t *testing.T) {
	api, other := netip.MustParseAddrPort("203.0.113.7:80"), netip.MustParseAddrPort("203.0.113.9:80")
	s := web(func(s *service.Resolved) { s.ExternalIPs = []netip.Addr{api.Addr(), other.Addr()} })
	h := Host{Node: "node1", Servers: []netip.AddrPort{api}}
	have := map[string][]string{}
	for _, c := range chainsOf(h, IPv4, s, nil) {
		if c.Table == "nat" {
			have[c.Name] = c.Rules
		}
	}
	for i := range s[0] { // without endpoints: the frontends refuse
		none := *s[0][i].Resolved
		none.Endpoints = make([]service.Endpoints, len(none.Endpoints))
		s[0][i].Resolved = &none
	}
	for _, c := range chainsOf(h, IPv4, s, nil) {
		if c.Name == RefuseChain {
			have[RefuseChain] = c.Rules
		}
	}
	unmarked := strings.Split(strings.ReplaceAll(strings.Join(have[FrontendsChain], "\n"), externalMark, ""), "\n")
	h.Servers = append(h.Servers, other)
	for _, tt := range []struct {
		have  []string
		spare []string
	}{{have[FrontendsChain], []string{spare(other), spare(api)}}, {have[RefuseChain], []string{spare(other), spare(api)}}, {unmarked, []string{spare(api)}}} {
		for _, c := range (Servers{Host: h, Family: IPv4, Have: tt.have, Spared: have[OutputChain]}).Chains(false) {
			if got := c.Rules[:len(c.Rules)-1]; !slices.Equal(got, tt.spare) {
				t.Errorf("%s: %q, want %q", c.Table, got, tt.spare)
			}
		}
	}
}

// Issue 14: the address of a Service becomes that of a server. The table for nft spares it with no change but that of the
// servers, which do not depend on the Services.
func TestLaterServersAreSpared(t *testing.T) {
	api := netip.MustParseAddrPort("203.0.113.7:80")
	s := web(func(s *service.Resolved) { s.ExternalIPs = []netip.Addr{api.Addr()} })
	has := func(table ruleset.Table, set string) bool {
		i := slices.IndexFunc(table.Sets, func(s ruleset.Set) bool { return s.Name == set })
		return i >= 0 && slices.ContainsFunc(table.Sets[i].Elements, func(e ruleset.Element) bool {
			return e.Destination == api.Addr() && e.Port == api.Port()
		})
	}
	if !has(NewRules(Host{Node: "node1"}, IPv4, s, nil).Table().Whole(), setClaims) {
		t.Error("without servers, the frontend is not among those that may become one")
	}
	if !has(Servers{Host: Host{Node: "node1", Servers: []netip.AddrPort{api}}, Family: IPv4}.Table(), ServersObject) {
		t.Error("the server is not in the set of servers")
	}
}

// S6: connections of clients outside share the address of the management port: each
// source port is chosen at random.
func TestMasqueradeIsRandom(t *testing.T) {
	h := Host{Node: "node1", Management: "k8s-node1"}
	for _, c := range NewRules(h, IPv4, web(), nil).Chains(true) {
		if c.Name == chainMasq && !slices.Contains(c.Rules, "-o k8s-node1 -p tcp -m mark --mark 0x1000/0x1000 -j MASQUERADE --to-ports 1024-65535 --random-fully") {
			t.Errorf("rules: %q", c.Rules)
		}
	}
}

// chainsOf renders rules for iptables.
func chainsOf(h Host, family netip.Addr, frontends service.List, pods []hostport.Pod) []Chain {
	return NewRules(h, family, frontends, pods).Chains(false)
}

// Two Services have no chain in common, whatever their names: these two have equal beginnings of hashes, 56 bits, found in half a
// minute. Names of chains have at most 28 characters, for iptables.
func TestNamesOfChains(t *testing.T) {
	var chains []string
	for _, name := range []string{"a820ded04230582", "a3089b2b77f14f0"} {
		f := web(func(s *service.Resolved) { s.Name = name })[0][0]
		for _, kind := range []string{"EXT", "POD", "SVC", "INT", "OWN", "SEP", "KEP"} {
			chains = append(chains, chainName(kind, f, ""))
		}
	}
	slices.Sort(chains)
	if n := len(slices.Compact(slices.Clone(chains))); n != len(chains) || slices.ContainsFunc(chains, func(c string) bool { return len(c) > 28 }) {
		t.Errorf("%d different names of %q", n, chains)
	}
}
