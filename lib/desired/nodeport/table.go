package nodeport

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/guard"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ruleset"
)

// Prefixes of the names of our objects in a table of nftables. They stand for the same parts as the prefixes of chains of
// iptables.
const (
	ObjectPrefix  = "svc-"
	StrayObject   = ObjectPrefix + "stray"
	ClaimedObject = ObjectPrefix + "claimed"
	// ServersObject is the set of databases and API servers. It does not depend on Kubernetes objects.
	ServersObject = ObjectPrefix + "servers"
)

// Our sets and maps. Most frontends are elements of two maps: one leads to a chain for all of them, and that takes the
// destination from the other.
const (
	mapFrontends    = "svc-frontends"
	mapRanges       = "svc-source-ranges"
	mapClusterIPs   = "svc-cluster-ips"
	mapNodePorts    = "svc-nodeports"
	mapNodePortIPs  = "svc-nodeport-cluster-ips"
	mapOwnNodePorts = "svc-own-nodeports"
	mapHostPorts    = "svc-hostports"
	mapHostPortPods = "svc-hostport-pods"
	mapHostPortsAt  = "svc-address-hostports"
	mapHostPortsTo  = "svc-address-hostport-pods"
	mapRefused      = "svc-refused"
	mapRefusedPorts = "svc-refused-nodeports"
	setClaims       = "svc-external-ips"
	setStrayPorts   = "svc-stray-ports"
	setStraysAt     = "svc-stray-addresses"
)

// Fields of keys.
var (
	byPort    = []ruleset.Field{ruleset.Protocol, ruleset.Port}
	byAddress = []ruleset.Field{ruleset.Destination, ruleset.Protocol, ruleset.Port}
	bySource  = []ruleset.Field{ruleset.Source, ruleset.Destination, ruleset.Protocol, ruleset.Port}
)

// fixedSets are our sets and maps with fixed names, without elements.
var fixedSets = map[string]ruleset.Set{
	mapFrontends:    {Key: byAddress, Value: ruleset.Verdict},
	mapRanges:       {Key: bySource, Value: ruleset.Verdict},
	mapClusterIPs:   {Key: byAddress, Value: ruleset.AddrPort},
	mapNodePorts:    {Key: byPort, Value: ruleset.Verdict},
	mapNodePortIPs:  {Key: byPort, Value: ruleset.AddrPort},
	mapOwnNodePorts: {Key: byPort, Value: ruleset.Verdict},
	mapHostPorts:    {Key: byPort, Value: ruleset.Verdict},
	mapHostPortPods: {Key: byPort, Value: ruleset.AddrPort},
	mapHostPortsAt:  {Key: byAddress, Value: ruleset.Verdict},
	mapHostPortsTo:  {Key: byAddress, Value: ruleset.AddrPort},
	mapRefused:      {Key: byAddress, Value: ruleset.Verdict},
	mapRefusedPorts: {Key: byPort, Value: ruleset.Verdict},
	setClaims:       {Key: byAddress},
	ServersObject:   {Key: byAddress},
	setStrayPorts:   {Key: byPort}, // with a shared NIC only
	setStraysAt:     {Key: byAddress},
}

// A tableBuilder collects the objects of a table.
type tableBuilder struct {
	Rules
	ip     string // "ip" or "ip6"
	chains map[string]*ruleset.Chain
	sets   map[string]*ruleset.Set
}

func newTableBuilder(r Rules) *tableBuilder {
	b := &tableBuilder{Rules: r, ip: "ip", chains: map[string]*ruleset.Chain{}, sets: map[string]*ruleset.Set{}}
	if r.Family.Is6() {
		b.ip = "ip6"
	}
	return b
}

// Table renders the rules for nft(8). Each Service has a part of it.
func (r Rules) Table() ruleset.Table {
	b := newTableBuilder(r)
	b.declareAll()
	b.natChains()
	b.filterChains()
	b.strays()
	b.claimed()
	b.hostPortElements()
	t := b.table()
	t.Parts = r.tables.parts(r)
	return t
}

// Table renders the guards for nft(8): no chain if this node has no pods in the family.
func (g Guards) Table() ruleset.Table {
	b := newTableBuilder(Rules{Host: g.Host, Family: g.Family})
	b.claimed()
	return b.table()
}

// Table renders the servers for nft(8).
func (s Servers) Table() ruleset.Table {
	b := newTableBuilder(Rules{Host: s.Host, Family: s.Family})
	b.servers()
	return b.table()
}

func (b *tableBuilder) table() (t ruleset.Table) {
	for _, c := range b.chains {
		t.Chains = append(t.Chains, *c)
	}
	for _, s := range b.sets {
		t.Sets = append(t.Sets, *s)
	}
	slices.SortFunc(t.Chains, func(a, b ruleset.Chain) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(t.Sets, func(a, b ruleset.Set) int { return cmp.Compare(a.Name, b.Name) })
	return t
}

// declareAll makes all sets and maps, since rules name them.
func (b *tableBuilder) declareAll() {
	for name := range fixedSets {
		if b.Host.Shared != "" || name != setStrayPorts && name != setStraysAt {
			b.declare(name)
		}
	}
	b.servers()
}

// servers makes the set of servers.
func (b *tableBuilder) servers() {
	b.declare(ServersObject)
	for _, at := range b.Host.Servers {
		if at.Addr().Is4() == b.Family.Is4() {
			b.element(ServersObject, ruleset.Element{Destination: at.Addr(), Protocol: "tcp", Port: at.Port()})
		}
	}
}

// declare makes a set without elements, unless it is there.
func (b *tableBuilder) declare(name string) *ruleset.Set {
	s := b.sets[name]
	if s == nil {
		s = new(fixedSets[name])
		s.Name = name
		b.sets[name] = s
	}
	return s
}

// element adds an element to a set. The first element with a key counts.
func (b *tableBuilder) element(set string, e ruleset.Element) {
	s := b.declare(set)
	s.Elements = append(s.Elements, e)
}

// rule adds a rule to a chain.
func (b *tableBuilder) rule(chain, format string, args ...any) {
	b.about("", chain, format, args...)
}

// about adds a rule with a comment.
func (b *tableBuilder) about(comment, chain, format string, args ...any) {
	b.add(chain, ruleset.Rule{Text: fmt.Sprintf(format, args...), Comment: comment})
}

// does adds a rule of statements. A change of such rules needs no process: Services change often.
func (b *tableBuilder) does(comment, chain string, statements ...ruleset.Statement) {
	b.add(chain, ruleset.NewRule(comment, statements...))
}

func (b *tableBuilder) add(chain string, r ruleset.Rule) {
	c, there := b.chains[chain]
	if !there {
		c = &ruleset.Chain{Name: chain}
		b.chains[chain] = c
	}
	c.Rules = append(c.Rules, r)
}

// hook makes a base chain. Ours come before those of other programs at the same hook: the first translation wins, and an
// early refusal is final.
func (b *tableBuilder) hook(chain, kind, hook, priority string) {
	b.chains[chain] = &ruleset.Chain{Name: chain, Type: kind, Hook: hook, Priority: priority}
}

const (
	natPriority    = "-110" // dstnat is -100
	maskPriority   = "90"   // srcnat is 100
	filterPriority = "-10"  // filter is 0
	strayPriority  = "-15"
	earlyPriority  = "-150" // mangle
)

const (
	transport = "meta l4proto { tcp, udp, sctp }"
	toPort    = "meta l4proto . th dport"
	// trackedToPort is toPort for ranges: nft before 1.1 converts the order of the one byte of "meta l4proto" for them, which Linux 7.2
	// refuses (nft_byteorder_init in net/netfilter/nft_byteorder.c).
	trackedToPort = "ct original protocol . th dport"
	isMarked      = "meta mark & 0x1000 == 0x1000"
	opening       = "tcp flags & (fin | syn | rst | ack) == syn"
	segment       = "tcp flags & (fin | syn | rst | ack) != syn"
)

// marked sets the mark of packets to be masqueraded.
var marked = ruleset.SetMark{Bits: 0x1000}

// toAddress is the key of maps by address.
func (b *tableBuilder) toAddress() string { return b.ip + " daddr . " + toPort }

// spare exempts this host's own connections to servers that a Service claims.
func (b *tableBuilder) spare(chain string) {
	b.rule(chain, "%s @%s %s @%s return", b.toAddress(), ServersObject, b.toAddress(), setClaims)
}

// natChains makes the chains that translate.
func (b *tableBuilder) natChains() {
	b.hook("svc-prerouting", "nat", "prerouting", natPriority)
	if s := b.Host.Shared; s != "" {
		b.rule("svc-prerouting", "iifname %q %s return", s, segment)
	}
	b.rule("svc-prerouting", "jump svc-translate")
	tableMapped(b)
	b.hook("svc-output", "nat", "output", natPriority)
	b.spare("svc-output")
	b.rule("svc-output", "jump svc-translate")
	b.rule("svc-translate", "%s saddr . %s daddr . %s vmap @%s", b.ip, b.ip, trackedToPort, mapRanges)
	b.rule("svc-translate", "%s vmap @%s", b.toAddress(), mapFrontends)
	for _, where := range b.local() {
		b.rule("svc-translate", "%sfib daddr type local fib saddr type local %s vmap @%s", where, toPort, mapOwnNodePorts)
		b.rule("svc-translate", "%sfib daddr type local %s vmap @%s", where, toPort, mapNodePorts)
	}
	b.rule("svc-cluster-ip", "%s %s", transport, marked)
	b.rule("svc-cluster-ip", "%s dnat to %s map @%s", transport, b.toAddress(), mapClusterIPs)
	b.rule("svc-nodeport-cluster-ip", "%s %s", transport, marked)
	b.rule("svc-nodeport-cluster-ip", "%s dnat to %s map @%s", transport, toPort, mapNodePortIPs)
	b.hook("svc-postrouting", "nat", "postrouting", maskPriority)
	if m := b.Host.Management; m != "" { // no pod shares its address
		b.rule("svc-postrouting", "oifname %q %s %s masquerade to :%s fully-random", m, transport, isMarked, managementPorts)
	}
	// The kernel's datapath keeps the mark on tunnel packets.
	b.rule("svc-postrouting", "udp dport %d return", guard.TunnelPort)
	b.rule("svc-postrouting", "%s %s masquerade to :%s fully-random", transport, isMarked, sourcePorts)
}

// local returns matches of the addresses with NodePorts, for packets to this host.
func (b *tableBuilder) local() (out []string) {
	if len(b.Host.NodePortAddresses) == 0 {
		loopback := "127.0.0.0/8"
		if b.Family.Is6() {
			loopback = "::1"
		}
		return []string{b.ip + " daddr != " + loopback + " "}
	}
	for _, p := range b.Host.NodePortAddresses {
		if p.Addr().Is4() == b.Family.Is4() {
			out = append(out, b.prefix("daddr", p))
		}
	}
	return out
}

// prefix matches addresses of a prefix.
func (b *tableBuilder) prefix(field string, p netip.Prefix) string {
	if p.Bits() == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s %s ", b.ip, field, p.Masked())
}

// filterChains makes the chains that refuse.
func (b *tableBuilder) filterChains() {
	b.hook("svc-input", "filter", "input", filterPriority)
	if m := b.Host.Management; m != "" && b.Family.Is4() && loopback(b.HostPorts) { // CVE-2020-8558
		b.rule("svc-input", "ip daddr 127.0.0.0/8 iifname %q ct state new,invalid,untracked drop", m)
	}
	b.hook("svc-forward", "filter", "forward", filterPriority)
	b.hook("svc-refuse-output", "filter", "output", filterPriority)
	b.spare("svc-refuse-output")
	for _, chain := range []string{"svc-input", "svc-forward", "svc-refuse-output"} {
		b.rule(chain, "ct state new jump svc-refuse")
	}
	b.rule("svc-refuse", "%s vmap @%s", b.toAddress(), mapRefused)
	for _, where := range b.local() {
		b.rule("svc-refuse", "%sfib daddr type local %s vmap @%s", where, toPort, mapRefusedPorts)
	}
	b.rule("svc-reject", "meta l4proto tcp reject with tcp reset")
	b.rule("svc-reject", "reject")
}

// strays drops TCP segments of pods' connections that came in by a shared NIC, see builder.unlessStray. A listener at
// all addresses is no reason to let one in, but any other socket is.
func (b *tableBuilder) strays() {
	if b.Host.Shared == "" {
		return
	}
	b.hook(StrayObject, "filter", "input", strayPriority)
	b.rule(StrayObject, "iifname != %q return", b.Host.Shared)
	b.rule(StrayObject, "meta l4proto != tcp return")
	b.rule(StrayObject, opening+" return")
	const drop = StrayObject + "-drop"
	b.rule(StrayObject, "socket wildcard 1 goto "+drop)
	b.rule(StrayObject, "socket transparent 0 return")
	b.rule(StrayObject, "goto "+drop)
	if p := b.Host.PodPorts; p != "" {
		b.rule(drop, "tcp dport %s drop", p)
	}
	b.rule(drop, "%s @%s drop", toPort, setStrayPorts)
	b.rule(drop, "%s @%s drop", b.toAddress(), setStraysAt)
}

// claimed drops packets with a forged address of a pod, see builder.claimed.
func (b *tableBuilder) claimed() {
	pods := b.Host.pods(b.Family)
	if len(pods) == 0 {
		return
	}
	b.hook(ClaimedObject, "filter", "forward", earlyPriority)
	for _, s := range pods {
		b.rule(ClaimedObject, "%siifname != %q oifname %q drop", b.prefix("saddr", s), b.Host.Management, b.Host.Management)
	}
}

// name names the Service and port of a rule or element.
func name(f service.Frontend) string {
	return strings.TrimSuffix(f.Key.String()+":"+f.Port().Name, ":")
}

func lower(p corev1.Protocol) string { return strings.ToLower(string(p)) }
