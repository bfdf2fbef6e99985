// Package localgateway computes the addresses, the routing rule and the rules of the packet filter by which a local gateway uses its host's network.
package localgateway

import (
	"fmt"
	"net/netip"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ruleset"
)

const (
	// Port is the host's interface to its local gateway. Later releases of the
	// original use the same name.
	Port = "br-nexthop"
	// ChainPrefix begins the names of a local gateway's chains.
	ChainPrefix = "OVN-K8S-GATEWAY-"
	// ObjectPrefix begins the names of its objects in a table of nftables.
	ObjectPrefix = "gw-"
	// Mark is on packets from routers outside to pods; routing table Table sends them
	// to the gateway router. The kubelet uses the marks 0x4000 and 0x8000, the CNI
	// plugin portmap 0x2000, the gateway helper 0x1000.
	Mark = 0x800
	// Table is the number of that routing table. Its rules have the next preference.
	Table = 1646

	// Host numbers in the subnet between gateway and host.
	hostNumber   = 1
	routerNumber = 2
)

// A Link connects a local gateway with its host, in one family.
type Link struct {
	Host, Router netip.Prefix   // their addresses
	Pods         []netip.Prefix // the cluster's subnets
}

// Links returns a link for each family of pods, in the first of subnets of the same
// family.
func Links(subnets, pods []netip.Prefix) ([]Link, error) {
	var links []Link
	for f := range ipnet.Families() {
		of, between := ipnet.OfFamily(pods, f), ipnet.OfFamily(subnets, f)
		if len(of) == 0 {
			continue
		}
		if len(between) == 0 {
			return nil, fmt.Errorf("local gateway subnets %s lack one for %s: set external_ids:ovn-k8s-local-gateway-subnet", ipnet.Join(subnets), of[0])
		}
		subnet := between[0].Masked()
		router, _ := ipnet.Nth(subnet, routerNumber)
		host, _ := ipnet.Nth(subnet, hostNumber)
		if !subnet.Contains(router) || subnet.IsSingleIP() {
			return nil, fmt.Errorf("local gateway subnet %s is too small: it needs 2 usable addresses", subnet)
		}
		links = append(links, Link{netip.PrefixFrom(host, subnet.Bits()), netip.PrefixFrom(router, subnet.Bits()), of})
	}
	return links, nil
}

// Chains accepts packets of the gateway, with masquerade, and replies of pods. It
// marks packets from routers outside to pods, so that the gateway router gets them
// and knows the replies: the host's own route to pods uses the management port. The
// mark goes when they have been routed: the kernel's datapath would keep it on tunnel
// packets, which have a route of their own. The host's own rules decide whether packets
// from routers outside may pass.
func (l Link) Chains(randomFully bool) []nodeport.Chain {
	self := l.self()
	masquerade := "-s " + self + " -j MASQUERADE"
	if randomFully {
		masquerade += " --random-fully"
	}
	mark := []string{
		"-i " + Port + " -j RETURN",
		"-i " + names.ManagementPort("") + "+ -j RETURN",
	}
	for _, pods := range l.Pods {
		mark = append(mark, fmt.Sprintf("-d %s -j MARK --set-xmark %#x/%#x", pods, Mark, Mark))
	}
	return []nodeport.Chain{
		l.accept(),
		{Table: "mangle", Name: ChainPrefix + "PREROUTING", From: "PREROUTING", Rules: mark},
		{Table: "mangle", Name: ChainPrefix + "POSTROUTING", From: "POSTROUTING", Rules: []string{fmt.Sprintf("-o %s -j MARK --set-xmark 0x0/%#x", Port, Mark)}},
		{Table: "nat", Name: ChainPrefix + "SNAT", From: "POSTROUTING", Rules: []string{masquerade}},
	}
}

// self is the router's address as a prefix.
func (l Link) self() string {
	return ipnet.Single(l.Router.Addr()).String()
}

// accept is the chain of the rules that accept.
func (l Link) accept() nodeport.Chain {
	c := nodeport.Chain{Table: "filter", Name: ChainPrefix + "FORWARD", From: "FORWARD", Rules: []string{
		"-s " + l.self() + " -i " + Port + " -j ACCEPT",
		"-d " + l.self() + " -o " + Port + " -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
	}}
	for _, pods := range l.Pods {
		c.Rules = append(c.Rules, fmt.Sprintf("-s %s -i %s -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", pods, Port))
	}
	return c
}

// Accepts are the rules beside those in nftables: they accept packets that another firewall's chain FORWARD would drop.
func (l Link) Accepts() []nodeport.Chain {
	c := l.accept()
	c.IfDrops = true
	return []nodeport.Chain{c}
}

// Table is Chains for nft(8), without the rules that accept: a base chain cannot overrule another.
func (l Link) Table() ruleset.Table {
	ip := "ip"
	if l.Router.Addr().Is6() {
		ip = "ip6"
	}
	mark := []ruleset.Rule{
		{Text: fmt.Sprintf("iifname %q return", Port)},
		{Text: fmt.Sprintf("iifname %q return", names.ManagementPort("")+"*")},
	}
	for _, pods := range l.Pods {
		mark = append(mark, ruleset.Rule{Text: fmt.Sprintf("%s daddr %s meta mark set meta mark | %#x", ip, pods, Mark)})
	}
	return ruleset.Table{Chains: []ruleset.Chain{
		{Name: ObjectPrefix + "prerouting", Type: "filter", Hook: "prerouting", Priority: "-150", Rules: mark},
		{Name: ObjectPrefix + "routed", Type: "filter", Hook: "postrouting", Priority: "-150", Rules: []ruleset.Rule{
			{Text: fmt.Sprintf("oifname %q meta mark set meta mark & %#x", Port, ^uint32(Mark))},
		}},
		{Name: ObjectPrefix + "postrouting", Type: "nat", Hook: "postrouting", Priority: "90", Rules: []ruleset.Rule{
			{Text: fmt.Sprintf("%s saddr %s masquerade fully-random", ip, l.Router.Addr())},
		}},
	}}
}
