package overlay

import (
	"context"
	"errors"
	"net/netip"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/iptables"
)

// A firewall holds the chains that the packet filter of one family should have.
type firewall struct {
	family netip.Addr
	chains []iptables.Chain
}

// bothFamilies are the families that a packet filter may have.
func bothFamilies() []netip.Addr {
	return []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}
}

// syncFirewalls makes the chains with a prefix equal to those of want, in each family.
func syncFirewalls(ctx context.Context, prefix string, want []firewall) error {
	return eachFirewall(want, func(fw *iptables.Firewall, chains []iptables.Chain) error {
		_, err := fw.Sync(ctx, prefix, chains)
		return err
	})
}

// planFirewalls lists the changes of syncFirewalls.
func planFirewalls(ctx context.Context, prefix string, want []firewall) (lines []string, err error) {
	err = eachFirewall(want, func(fw *iptables.Firewall, chains []iptables.Chain) error {
		rules, err := fw.Plan(ctx, prefix, chains)
		lines = append(lines, rules...)
		return err
	})
	return lines, err
}

// eachFirewall calls do for the packet filter of each family. Without its kernel module or program, a family has no
// chains of ours.
func eachFirewall(want []firewall, do func(*iptables.Firewall, []iptables.Chain) error) error {
	for _, family := range bothFamilies() {
		chains := chainsOf(want, family)
		fw, err := iptables.New(family)
		absent := err != nil
		if !absent {
			err = do(fw, chains)
			absent = family.Is6() && errors.Is(err, iptables.ErrUnreadable)
		}
		if err != nil && !(absent && len(chains) == 0) {
			return err
		}
	}
	return nil
}

// chainsOf returns the chains of one family.
func chainsOf(want []firewall, family netip.Addr) []iptables.Chain {
	for _, f := range want {
		if ipnet.SameFamily(f.family, family) {
			return f.chains
		}
	}
	return nil
}

// planGuards plans the guards of this node's pods, which the gateway helper keeps. A host that forwards packets by a
// sysctl of its own needs them before the helper starts, and without a helper. It goes on without iptables.
func (h *host) planGuards(ctx context.Context, s *session) {
	node := nodeport.Host{Management: h.Port.Name}
	for _, a := range h.State.Addresses {
		node.Pods = append(node.Pods, a.Masked())
	}
	for _, family := range bothFamilies() {
		f := firewall{family: family}
		for _, c := range nodeport.Claimed(node, family) {
			f.chains = append(f.chains, iptables.Chain(c))
		}
		if len(f.chains) > 0 {
			h.guards = append(h.guards, f)
		}
	}
	rules, err := planFirewalls(ctx, nodeport.ClaimedChain, h.guards)
	if err != nil {
		s.Warn("%v: where this host forwards packets, others on its network can send to hostPorts of pods with a pod's address", err)
	}
	if err != nil || len(rules) == 0 { // they cannot be made, or are there
		h.guards = nil
	}
	h.changes = append(h.changes, rules...)
}
