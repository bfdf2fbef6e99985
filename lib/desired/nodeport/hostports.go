package nodeport

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/guard"
	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ipnet"
)

// OfHostPorts reports whether a change of rules is about hostPorts.
func OfHostPorts(changes []string) bool {
	return slices.ContainsFunc(changes, func(c string) bool {
		return strings.Contains(c, chainHostPorts) || strings.Contains(c, mapHostPorts) || strings.Contains(c, mapHostPortsAt)
	})
}

// Loopback reports whether a hostPort is at 127.0.0.1. Then the kernel must accept
// such addresses at the management port (route_localnet); Chains guards it.
func Loopback(frontends service.List, pods []hostport.Pod) bool {
	return loopback(hostport.Ports(IPv4, frontends, pods))
}

func loopback(ports []hostport.Port) bool {
	return slices.ContainsFunc(ports, func(h hostport.Port) bool {
		return !h.IP.IsValid() || h.IP == IPv4 || h.IP.Is4() && h.IP.IsLoopback()
	})
}

// hostPorts adds the rules from hostPorts to their pods. They must come after
// those of Services.
//
// Packets from pods of any node do not come to this host: OVN sends them to the
// pod, so that policies see their source. Clients outside keep their addresses if
// the pod's answers come back here. If those leave by a gateway that shares the
// host's NIC, the client's address is replaced by the host's.
func (b *builder) hostPorts(ports []hostport.Port) {
	if len(ports) == 0 {
		return
	}
	b.nat(FrontendsChain, "-m addrtype --dst-type LOCAL -j %s", chainHostPorts)
	if m := b.host.Management; m != "" {
		b.nat(chainHostPorts, "-i %s -j RETURN", m)
	}
	for _, h := range ports {
		match := fmt.Sprintf("%s -m comment --comment %q", proto(h.Protocol, h.Port), "pod "+h.Of.Key.String())
		if h.IP.IsValid() && !h.IP.IsUnspecified() {
			match = to(ipnet.Single(h.IP)) + match
		}
		hidden := "-m addrtype --src-type LOCAL "
		if b.host.Shared != "" {
			hidden = ""
			if h.Protocol == corev1.ProtocolTCP {
				b.filter(StrayChain, "%s -j DROP", match)
			}
		}
		b.nat(chainHostPorts, "%s %s-j MARK --set-xmark %s", match, hidden, mark)
		b.nat(chainHostPorts, "%s -j DNAT --to-destination %s", match, h.To)
	}
	b.guardLoopback(ports)
	for _, own := range b.ownConnections(ports, "! -o") {
		b.nat(chainMasq, "%s -j %s", own, b.masquerade(""))
	}
	b.acceptHostPorts(ports)
}

// acceptHostPorts accepts forwarded packets of hostPorts, beyond those of accept.
func (b *builder) acceptHostPorts(ports []hostport.Port) {
	b.sentBack(ports)
	for _, own := range b.ownConnections(ports, "-i") {
		b.filter(chainForward, "%s -j ACCEPT", own)
	}
}

// sentBack accepts packets from pods to hostPorts at the management address: their
// destination is another pod by now, and they leave by the interface that they
// came by. No other packet with an address of these pods leaves by it: see claimed.
func (b *builder) sentBack(ports []hostport.Port) {
	if !slices.ContainsFunc(ports, func(h hostport.Port) bool { return h.Outside(b.family) }) {
		return
	}
	m := b.host.Management
	for _, s := range b.host.pods(b.family) {
		b.filter(chainForward, "%s-i %s -o %s -j ACCEPT", address("-s", s), m, m)
	}
}

// guardLoopback keeps pods from servers at 127.0.0.1, if the kernel accepts
// such addresses at the management port (CVE-2020-8558).
func (b *builder) guardLoopback(ports []hostport.Port) {
	if b.host.Management == "" || b.family.Is6() || !loopback(ports) {
		return
	}
	c, _ := b.chain("filter", ChainPrefix+"INPUT")
	guard := fmt.Sprintf("-d 127.0.0.0/8 -i %s -m conntrack ! --ctstate RELATED,ESTABLISHED -j DROP", b.host.Management)
	c.Rules = append([]string{guard}, c.Rules...)
}

// ownConnections matches connections of a pod from its hostPort's target port, as of
// peers of many UDP protocols, in the direction management, "-i" or "! -o". OVN sends
// all packets from that port to this host, and it lets them out with its address.
// Tunnels are excepted: other hosts would take the packets for this host's.
func (b *builder) ownConnections(ports []hostport.Port, management string) (matches []string) {
	m := b.host.Management
	if m == "" || b.host.Shared != "" {
		return nil
	}
	done := map[string]bool{}
	for _, h := range ports {
		l := strings.ToLower(string(h.Protocol))
		match := fmt.Sprintf("%s%s %s -p %s -m %s --sport %d", address("-s", ipnet.Single(h.To.Addr())), management, m, l, l, h.Target)
		if h.Protocol == corev1.ProtocolUDP {
			match += fmt.Sprintf(" ! --dport %d", guard.TunnelPort)
		}
		if h.Outside(b.family) && !done[match] {
			done[match] = true
			matches = append(matches, match)
		}
	}
	return matches
}
