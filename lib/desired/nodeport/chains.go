package nodeport

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/guard"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ipnet"
)

// A Chain is a chain of iptables(8), as in lib/iptables.
type Chain struct {
	Table, Name string
	From, Match string   // the built-in chain with a jump here, and the match of that rule
	Rules       []string // as iptables-save(8) prints them, without "-A NAME "
	IfDrops     bool     // the chain is wanted only while From drops packets by default
}

// ChainPrefix begins the names of our chains.
const ChainPrefix = "OVN-SVC-"

// StrayChain drops segments of pods' connections that came in by a shared NIC. It
// exists only on a host that shares one, with or without Services.
const StrayChain = ChainPrefix + "STRAY"

// ClaimedChain drops packets with a forged source address of a pod of this node, see
// claimed. It does not depend on Kubernetes objects.
const ClaimedChain = ChainPrefix + "CLAIMED"

// FrontendsChain has the rules of frontends at external addresses, RefuseChain those of frontends without endpoints, and
// OutputChain those of the host's own connections.
const (
	FrontendsChain = ChainPrefix + "WAYS"
	RefuseChain    = ChainPrefix + "REFUSE"
	OutputChain    = ChainPrefix + "OUTPUT"
)

// externalMark ends the comment of a rule of an external IP, see Spared.
const externalMark = " external IP"

// Our chains. Jump targets of built-in chains are named after those, and each port
// of a Service has chains of its own, see chainName.
const (
	chainNodePorts = ChainPrefix + "NODEPORTS"
	chainHostPorts = ChainPrefix + "HOSTPORTS"
	chainForward   = ChainPrefix + "FORWARD"
	chainMasq      = ChainPrefix + "POSTROUTING"
)

// refuse sends new connections to the chain of refused frontends.
const refuse = "-m conntrack --ctstate NEW -j " + RefuseChain

// mark is set on packets whose source address must become this host's, so that the
// answer comes back here. The kubelet uses the bits 0x4000 and 0x8000, and the CNI
// plugin portmap 0x2000.
const mark = "0x1000/0x1000"

// sourcePorts are the source ports of connections masqueraded by this host: those that
// Linux gives to a host's own connections. They are neither NodePorts nor, on a shared
// address, ports of pods' connections.
const sourcePorts = "32768-60999"

// managementPorts are the source ports of connections masqueraded with the address
// of the management port.
const managementPorts = "1024-65535"

// Chains renders the rules for iptables(8). randomFully is whether that knows MASQUERADE --random-fully.
func (r Rules) Chains(randomFully bool) []Chain {
	b := newBuilder(r.Host, r.Family)
	b.randomFully = randomFully
	b.frame()
	b.claimed()
	s := newServiceRules(r.Host, r.Family, r.frontends)
	b.services(s)
	for _, at := range s.Spared {
		b.spareServer(at)
	}
	b.nodePorts()
	b.hostPorts(r.HostPorts)
	return b.sorted()
}

// Accepts are the rules beside those in nftables: they accept packets that another firewall's chain FORWARD would drop.
func (r Rules) Accepts() []Chain {
	b := newBuilder(r.Host, r.Family)
	b.from("filter", "FORWARD")
	b.accept()
	b.acceptHostPorts(r.HostPorts)
	out := b.sorted()
	out[0].IfDrops = true
	return out
}

// Accepts is empty: guards only drop.
func (g Guards) Accepts() []Chain { return nil }

// Guards are the rules that protect the pods of this node in one family. They do not depend on Kubernetes objects.
type Guards struct {
	Host   Host
	Family netip.Addr
}

// Chains renders the guards for iptables(8): none if this node has no pods in the family.
func (g Guards) Chains(bool) []Chain {
	b := newBuilder(g.Host, g.Family)
	b.claimed()
	return b.sorted()
}

// Servers exempt this host's own connections to databases and API servers while the Services are not known yet: without
// them, a server added since the rules were made could be out of reach behind an external IP.
type Servers struct {
	Host   Host
	Family netip.Addr
	// Have are the rules of FrontendsChain and RefuseChain, and Spared those of OutputChain, made by a former process. Another release may
	// have made them: it did not mark rules of external IPs.
	Have, Spared []string
}

// Chains renders the chains OutputChain for iptables(8).
func (s Servers) Chains(bool) []Chain {
	b := newBuilder(s.Host, s.Family)
	b.output()
	for _, at := range s.Host.Servers {
		claims := func(r string) bool {
			return strings.HasPrefix(r, toServer(at)+" ") && strings.Contains(r, externalMark+`" `)
		}
		if slices.ContainsFunc(s.Have, claims) || slices.Contains(s.Spared, spare(at)) {
			b.spareServer(at)
		}
	}
	return b.sorted()
}

// A builder collects chains, by table and name.
type builder struct {
	host        Host
	family      netip.Addr
	randomFully bool
	chains      map[[2]string]*Chain
}

func newBuilder(h Host, family netip.Addr) *builder {
	return &builder{host: h, family: family, chains: map[[2]string]*Chain{}}
}

func (b *builder) sorted() []Chain {
	out := make([]Chain, 0, len(b.chains))
	for _, c := range b.chains {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b Chain) int {
		return cmp.Or(strings.Compare(a.Table, b.Table), strings.Compare(a.Name, b.Name))
	})
	return out
}

func (b *builder) nat(chain, format string, args ...any)    { b.add("nat", chain, format, args...) }
func (b *builder) filter(chain, format string, args ...any) { b.add("filter", chain, format, args...) }

func (b *builder) add(table, chain, format string, args ...any) {
	c, _ := b.chain(table, chain)
	c.Rules = append(c.Rules, fmt.Sprintf(format, args...))
}

// chain returns a chain. It reports whether it was there already.
func (b *builder) chain(table, name string) (*Chain, bool) {
	key := [2]string{table, name}
	c, there := b.chains[key]
	if !there {
		c = &Chain{Table: table, Name: name}
		b.chains[key] = c
	}
	return c, there
}

// from makes the jump target of a built-in chain.
func (b *builder) from(table, builtIn string, rules ...string) {
	c, _ := b.chain(table, ChainPrefix+builtIn)
	c.From, c.Rules = builtIn, rules
}

// frame makes the jumps to our chains, and the rules that do not depend on Services.
func (b *builder) frame() {
	b.output()
	b.from("nat", "PREROUTING", b.unlessStray("nat", "RETURN", "-j "+FrontendsChain)...)
	b.mapped()
	b.from("nat", "POSTROUTING")
	if m := b.host.Management; m != "" { // no pod shares its address
		b.masqueraded("-o "+m+" ", managementPorts)
	}
	// The kernel's datapath keeps the mark on tunnel packets.
	b.nat(chainMasq, "-p udp -m udp --dport %d -j RETURN", guard.TunnelPort)
	b.masqueraded("", sourcePorts)
	b.from("filter", "INPUT", b.unlessStray("filter", StrayChain, refuse)...)
	b.from("filter", "FORWARD", refuse)
	b.accept()
	b.chain("nat", FrontendsChain)
	b.chain("nat", chainNodePorts)
	b.chain("filter", RefuseChain)
}

// masqueraded masquerades matching packets of Services.
func (b *builder) masqueraded(match, ports string) {
	for _, p := range []string{"tcp", "udp", "sctp"} {
		b.nat(chainMasq, "%s-p %s -m mark --mark %s -j %s", match, p, mark, b.masquerade(ports))
	}
}

// accept accepts forwarded packets of Services.
func (b *builder) accept() {
	b.filter(chainForward, "-m mark --mark %s -j ACCEPT", mark)
	b.filter(chainForward, "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	if m := b.host.Management; m != "" {
		b.filter(chainForward, "-o %s -m conntrack --ctstate DNAT -j ACCEPT", m)
	}
}

// output makes the chains of the host's own connections.
func (b *builder) output() {
	b.from("nat", "OUTPUT", "-j "+FrontendsChain)
	b.from("filter", "OUTPUT", refuse)
}

// claimed drops packets to the management port with the source address of a pod of this node,
// unless they came in there. For OVN they look like packets of a pod to a hostPort, which it
// accepts (hostport.Node.Rows). No ACCEPT of another program precedes a chain of the table mangle.
func (b *builder) claimed() {
	m := b.host.Management
	for _, s := range b.host.pods(b.family) {
		c, _ := b.chain("mangle", ClaimedChain)
		c.From = "FORWARD"
		c.Rules = append(c.Rules, fmt.Sprintf("%s! -i %s -o %s -j DROP", address("-s", s), m, m))
	}
}

// spareServer excludes the host's own connections to a server from our rules.
func (b *builder) spareServer(at netip.AddrPort) {
	if b.family.Is4() != at.Addr().Is4() {
		return
	}
	for _, table := range []string{"nat", "filter"} {
		c, _ := b.chain(table, OutputChain)
		c.Rules = append([]string{spare(at)}, c.Rules...)
	}
}

func spare(at netip.AddrPort) string { return toServer(at) + " -j RETURN" }

func toServer(at netip.AddrPort) string {
	return to(ipnet.Single(at.Addr())) + proto(corev1.ProtocolTCP, at.Port())
}

// masquerade returns the target that replaces the source address by that of the
// outgoing interface.
func (b *builder) masquerade(ports string) string {
	target := "MASQUERADE"
	if ports != "" {
		target += " --to-ports " + ports
	}
	if b.randomFully {
		target += " --random-fully"
	}
	return target
}

// unlessStray puts a rule before others for TCP segments from the shared NIC that
// open no connection. While ovs-vswitchd restarts, segments of pods' connections
// reach the host, which must neither reset them nor send them to another endpoint:
// those without a socket here are dropped, and their senders repeat them.
func (b *builder) unlessStray(table, target, rule string) []string {
	if b.host.Shared == "" {
		return []string{rule}
	}
	if table == "filter" {
		b.filter(StrayChain, "-m socket -j RETURN")
		if b.host.PodPorts != "" {
			b.filter(StrayChain, "-p tcp -m tcp --dport %s -j DROP", strings.Replace(b.host.PodPorts, "-", ":", 1))
		}
	}
	return []string{fmt.Sprintf("-i %s -p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -j %s", b.host.Shared, target), rule}
}

// nodePorts adds the jump from the host's own addresses to the chain of NodePorts.
// It comes last: the addresses of other frontends take precedence.
func (b *builder) nodePorts() {
	for _, where := range b.local() {
		b.nat(FrontendsChain, "%s-m addrtype --dst-type LOCAL -j %s", where, chainNodePorts)
	}
}

// local returns matches of the addresses with NodePorts, for packets already known
// to be for an address of this host.
func (b *builder) local() []string {
	if len(b.host.NodePortAddresses) == 0 {
		loopback := "127.0.0.0/8"
		if b.family.Is6() {
			loopback = "::1/128"
		}
		return []string{"! -d " + loopback + " "}
	}
	var out []string
	for _, p := range b.host.NodePortAddresses {
		if p.Addr().Is4() == b.family.Is4() {
			out = append(out, to(p))
		}
	}
	return out
}

// to matches a destination. It is empty for the prefix of all addresses, as
// iptables-save prints no such match.
func to(p netip.Prefix) string { return address("-d", p) }

func address(option string, p netip.Prefix) string {
	if p.Bits() == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s ", option, p.Masked())
}

// proto matches protocol and destination port.
func proto(p corev1.Protocol, port uint16) string {
	l := strings.ToLower(string(p))
	return fmt.Sprintf("-p %s -m %s --dport %d", l, l, port)
}

// comment names the Service and port of a rule.
func comment(k service.Key, port service.Port) string {
	return fmt.Sprintf("-m comment --comment %q", strings.TrimSuffix(k.String()+":"+port.Name, ":"))
}

// hashed are the bytes of a hash in a chain's name: 80 bits, as in those of kube-proxy. With fewer, users could find a name for
// a Service with a chain of another Service.
const hashed = 10

// chainName names a chain of one port of a Service. Names of iptables have at most 28 characters.
func chainName(kind string, f service.Frontend, more string) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%s:%d/%s %s", f.Key, f.Port().Port, f.Protocol(), more)))
	return ChainPrefix + kind + "-" + base32.StdEncoding.EncodeToString(sum[:hashed])
}
