package node

import (
	"context"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/iptables"
)

// planGuards plans the guards of this node's pods, which the gateway helper keeps. A host that forwards packets by a
// sysctl of its own needs them before the helper starts, and without a helper. It goes on without iptables.
func (p *Plan) planGuards(ctx context.Context) {
	node := nodeport.Host{Management: p.Port.Name}
	for _, a := range p.State.Addresses {
		node.Pods = append(node.Pods, a.Masked())
	}
	for _, family := range ipnet.Families() {
		f := iptables.FamilyChains{Family: family}
		for _, c := range nodeport.Claimed(node, family) {
			f.Chains = append(f.Chains, iptables.Chain(c))
		}
		if len(f.Chains) > 0 {
			p.guards = append(p.guards, f)
		}
	}
	rules, err := iptables.PlanFamilies(ctx, nodeport.ClaimedChain, p.guards)
	if err != nil {
		p.host.Report.Warn("%v: where this host forwards packets, others on its network can send to hostPorts of pods with a pod's address", err)
	}
	if err != nil || len(rules) == 0 { // they cannot be made, or are there
		p.guards = nil
	}
	p.changes = append(p.changes, rules...)
}
