package node

import (
	"context"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/firewall"
	"ovn-k8s/lib/ipnet"
)

// planGuards plans the guards of this node's pods, which the gateway helper keeps. A host that forwards packets by a
// sysctl of its own needs them before the helper starts, and without a helper. It goes on without a packet filter.
func (p *Plan) planGuards(ctx context.Context) {
	node := nodeport.Host{Management: p.Port.Name}
	for _, a := range p.State.Addresses {
		node.Pods = append(node.Pods, a.Masked())
	}
	for _, family := range ipnet.Families() {
		guards := nodeport.Guards{Host: node, Family: family}
		if len(guards.Chains(false)) > 0 {
			p.guards = append(p.guards, firewall.FamilyRules{Family: family, Rules: guards})
		}
	}
	rules, err := firewall.PlanFamilies(ctx, p.host.Config.Firewall, firewall.Claimed, p.guards)
	if err != nil {
		p.host.Report.Warn("%v: where this host forwards packets, others on its network can send to hostPorts of pods with a pod's address", err)
	}
	if err != nil || len(rules) == 0 { // they cannot be made, or are there
		p.guards = nil
	}
	p.changes = append(p.changes, rules...)
}
