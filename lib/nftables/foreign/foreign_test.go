package foreign

import (
	"net/netip"
	"slices"
	"testing"

	"ovn-k8s/test/namespace"
)

// load runs the test in a network namespace with this ruleset, and reads it.
func load(t *testing.T, rules string) Ruleset {
	t.Helper()
	namespace.Load(t, rules)
	r, err := Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// H12: chains that drop packets of pods are found, others are not.
func TestDrops(t *testing.T) {
	needs := Needs{Interfaces: []string{"br-nexthop", "k8s-node1"}, Ports: []int{6081}, IPTables: []netip.Addr{netip.IPv4Unspecified()}, Answers: "br-nexthop", Families: []string{"ip", "ip6"}}
	const early = "type filter hook prerouting priority 10; policy accept; "
	const forward, input = "type filter hook forward priority 10; ", "type filter hook input priority 10; "
	for _, tt := range []struct {
		what, rules string
		want        []string
	}{
		{"nothing", "", nil},
		{"a policy", "table inet f {\n chain through { " + forward + "policy drop; }\n}", []string{
			`nftables: chain through of table inet f drops at hook forward all packets that its rules do not accept, and no rule names interface { "br-nexthop", "k8s-node1" }: egress and NodePorts may fail: accept it in the firewall's configuration, or by 'nft insert rule inet f through iifname { "br-nexthop", "k8s-node1" } accept' and 'nft insert rule inet f through oifname { "br-nexthop", "k8s-node1" } accept'`}},
		{"a last rule", "table ip f {\n chain through { " + forward + `policy accept; iifname "br-nexthop" accept; log prefix "no" reject; }` + "\n}", []string{
			`nftables: chain through of table ip f drops at hook forward all packets that its rules do not accept, and no rule names interface "k8s-node1": egress and NodePorts may fail: accept it in the firewall's configuration, or by 'nft insert rule ip f through iifname "k8s-node1" accept' and 'nft insert rule ip f through oifname "k8s-node1" accept'`}},
		{"firewalld", "table inet firewalld {\n chain filter_FORWARD { " + forward + "policy accept; reject; }\n chain filter_INPUT { " + input + "policy accept; reject; }\n}", []string{
			`nftables: chain filter_FORWARD of table inet firewalld drops at hook forward all packets that its rules do not accept, and no rule names interface { "br-nexthop", "k8s-node1" }: egress and NodePorts may fail: trust it by 'firewall-cmd --permanent --zone=trusted --add-interface=br-nexthop --add-interface=k8s-node1' and 'firewall-cmd --reload'`,
			`nftables: chain filter_INPUT of table inet firewalld drops at hook input all packets that its rules do not accept, and no rule names UDP port 6081: tunnels between nodes may fail: accept it by 'firewall-cmd --permanent --add-port=6081/udp' and 'firewall-cmd --reload'`}},
		{"firewalld reloads", "table inet firewalld_policy_drop {\n chain filter_forward { " + forward + "policy drop; ct state established accept; }\n}", nil},
		{"input", "table inet f {\n chain inward { " + input + "policy drop; tcp dport 22 accept; udp dport 6000-6080 accept; }\n}", []string{
			`nftables: chain inward of table inet f drops at hook input all packets that its rules do not accept, and no rule names UDP port 6081: tunnels between nodes may fail: accept it in the firewall's configuration, or by 'nft insert rule inet f inward udp dport 6081 accept'`}},
		{"ports", "table inet f {\n chain inward { " + input + "policy drop; udp dport { 53, 6000-7000 } accept; }\n}", nil},
		{"names in another chain, a set and a pattern", "table inet f {\n set trusted { type ifname; elements = { \"br-nexthop\" }; }\n chain through { " + forward + "policy drop; jump zones; }\n" +
			" chain zones { iifname @trusted accept; oifname \"k8s-*\" accept; }\n}", nil},
		{"a limited or conditional drop", "table inet f {\n chain through { " + forward + "policy accept; ct state invalid drop; limit rate over 10/second drop; }\n}", nil},
		{"other hooks", "table inet f {\n chain out { type filter hook output priority 0; policy drop; }\n chain nat { type nat hook prerouting priority 0; policy accept; }\n}", nil},
		{"iptables", "table ip filter {\n chain FORWARD { type filter hook forward priority 0; policy drop; }\n}", nil},
		{"ip6tables, without rules of ours", "table ip6 filter {\n chain FORWARD { " + forward + `policy drop; iifname "br-nexthop" accept; }` + "\n chain INPUT { " + input + "policy drop; }\n}", []string{
			`nftables: chain FORWARD of table ip6 filter drops at hook forward all packets that its rules do not accept, and no rule names interface "k8s-node1": egress and NodePorts may fail: accept it in the firewall's configuration, or by 'nft insert rule ip6 filter FORWARD iifname "k8s-node1" accept' and 'nft insert rule ip6 filter FORWARD oifname "k8s-node1" accept'`}},
		{"firewalld's reverse path filter", "table inet firewalld {\n chain filter_PREROUTING { " + early + "icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept; meta nfproto ipv6 fib saddr . mark . iif oif missing drop; }\n" +
			" chain zones { iifname \"br-nexthop\" accept; }\n}", []string{
			`nftables: chain filter_PREROUTING of table inet firewalld drops at hook prerouting packets of IPv6 whose route back uses another interface, as answers of pods by br-nexthop to clients with a route to pods: set IPv6_rpfilter=loose in /etc/firewalld/firewalld.conf, or no before firewalld 2.2, and run 'firewall-cmd --reload'`}},
		{"a reverse path filter", "table inet f {\n chain early { " + early + `counter; fib saddr . iif oif eq 0 log prefix "spoofed" drop; }` + "\n}", []string{
			`nftables: chain early of table inet f drops at hook prerouting packets of IPv4 and IPv6 whose route back uses another interface, as answers of pods by br-nexthop to clients with a route to pods: accept them in the firewall's configuration, or by 'nft insert rule inet f early iifname "br-nexthop" accept'`}},
		{"a reverse path filter of IPv4", "table ip f {\n chain through { " + forward + "policy accept; fib saddr . iif oif missing drop; }\n}", []string{
			`nftables: chain through of table ip f drops at hook forward packets of IPv4 whose route back uses another interface, as answers of pods by br-nexthop to clients with a route to pods: accept them in the firewall's configuration, or by 'nft insert rule ip f through iifname "br-nexthop" accept'`}},
		{"loose ones, and some for other packets", "table inet f {\n chain early { " + early + `fib saddr oif missing drop; fib saddr . iif oif exists accept; fib saddr . iif oif missing counter; iifname "eth1" fib saddr . iif oif missing drop; ip saddr 192.0.2.0/24 fib saddr . iif oif missing drop; iifname "br-nexthop" accept; fib saddr . iif oif missing drop; }` + "\n}", nil},
		{"a bridge's", "table bridge f {\n chain through { " + forward + "policy drop; }\n}", nil},
	} {
		t.Run(tt.what, func(t *testing.T) {
			var got []string
			for _, d := range load(t, tt.rules).Drops(needs) {
				got = append(got, d.String())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
		})
	}
}

// With our rules in nftables, those of iptables accept nothing of ours.
func TestDropsOfIPTables(t *testing.T) {
	r := load(t, "table ip filter {\n chain FORWARD { type filter hook forward priority 0; policy drop; }\n chain INPUT { type filter hook input priority 0; policy drop; }\n}\n"+
		"table ip ovn-k8s {\n chain svc-claimed { type filter hook forward priority -150; drop; }\n}")
	drops := r.Drops(Needs{Interfaces: []string{"k8s-node1"}, Ports: []int{6081}})
	if len(drops) != 1 || drops[0].Chain != "FORWARD" {
		t.Errorf("got %v", drops)
	}
}

// Without a local gateway, and for families without pods, a reverse path filter drops nothing of pods.
func TestReversePathOfNoPods(t *testing.T) {
	r := load(t, "table inet f {\n chain early { type filter hook prerouting priority 10; meta nfproto ipv6 fib saddr . iif oif missing drop; }\n}")
	for _, needs := range []Needs{{Families: []string{"ip6"}}, {Answers: "br-nexthop", Families: []string{"ip"}}} {
		if drops := r.Drops(needs); len(drops) > 0 {
			t.Errorf("%v: got %v", needs, drops)
		}
	}
}

// Findings, section 5: kube-proxy in mode nftables has the tables ip kube-proxy and ip6 kube-proxy.
func TestHasKubeProxy(t *testing.T) {
	for rules, want := range map[string]bool{
		"table ip kube-proxy {\n chain services { }\n}": true, "table inet kube-proxy {\n chain services { }\n}": false, "": false,
	} {
		t.Run(rules, func(t *testing.T) {
			if got := load(t, rules).HasKubeProxy(); got != want {
				t.Errorf("got %v", got)
			}
		})
	}
}
