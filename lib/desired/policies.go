package desired

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/guard"
	"ovn-k8s/lib/desired/kind"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/nb"
)

// Policies are the NetworkPolicies, and the ACLs of nodes' switches.
type Policies struct {
	facts *facts.Index
	index *policy.Index
}

// Units implements feature.Feature.
func (x *Policies) Units() []feature.Units {
	nodes := func() map[string][]netip.Prefix { return x.facts.Now().Cluster.Nodes }
	return []feature.Units{
		{Step: feature.Gateways, Prefix: string(policy.LoggingUnit), Rows: x.policyRows},
		feature.Named(feature.Protection, policy.NodePrefix, policy.NodeOf, x.nodePolicyRows, func() []nb.Unit { return feature.UnitsOf(nodes(), policy.NodeUnit) }),
		{Step: feature.Groups, Prefix: policy.GroupPrefix, Rows: x.policyRows},
		{Step: feature.Policies, Prefix: policy.UnitPrefix, Rows: x.policyRows, List: x.index.Units},
	}
}

// Kinds implements feature.Reader.
func (x *Policies) Kinds() []kind.Kind {
	return []kind.Kind{
		kind.OneByOne(x.putLabels,
			func(name types.NamespacedName) []nb.Unit { return x.index.RemovePod(pod.Key(name)) },
			func() []types.NamespacedName { return kind.Names(x.index.Pods()) }),
		kind.OneByOne(x.index.PutNamespace,
			func(name types.NamespacedName) []nb.Unit { return x.index.RemoveNamespace(name.Name) },
			func() []types.NamespacedName { return kind.ClusterWide(slices.Values(x.index.Namespaces())) }),
		kind.OneByOne(
			func(o *networkingv1.NetworkPolicy) []nb.Unit {
				return x.putPolicies(func() []nb.Unit { return x.index.PutPolicy(policy.New(o)) })
			},
			func(name types.NamespacedName) []nb.Unit {
				return x.putPolicies(func() []nb.Unit { return x.index.RemovePolicy(policy.Key(name)) })
			},
			func() []types.NamespacedName { return kind.Names(slices.Values(x.index.Keys())) }),
	}
}

// putLabels records the labels and ports of a pod with a logical port in the policies.
func (x *Policies) putLabels(o *corev1.Pod) []nb.Unit {
	k := pod.Key{Namespace: o.Namespace, Name: o.Name}
	if !pod.NeedsPort(o) {
		return x.index.RemovePod(k)
	}
	return x.index.PutPod(k, o.Labels, policy.Ports(o))
}

// putPolicies applies a change of policies. The first policy adds ACLs to all nodes, and the end of the last one
// removes them.
func (x *Policies) putPolicies(change func() []nb.Unit) []nb.Unit {
	before := x.index.Any()
	touched := change()
	if x.index.Any() != before {
		for name := range x.facts.Now().Cluster.Nodes {
			touched = append(touched, policy.NodeUnit(name))
		}
	}
	return touched
}

// FactsChanged returns the units of nodes' own ACLs affected.
func (x *Policies) FactsChanged(c facts.Change) (touched []nb.Unit) {
	for _, sw := range c.Moved {
		touched = append(touched, policy.NodeUnit(sw))
	}
	if !c.Topology {
		return touched
	}
	changed := c.ChangedSubnets()
	if c.OtherNetworks() {
		for name := range c.Now.Cluster.Nodes {
			changed[name] = true
		}
	}
	for name := range changed {
		touched = append(touched, policy.NodeUnit(name))
	}
	return touched
}

// nodePolicyRows are the ACLs of a node's switch.
func (x *Policies) nodePolicyRows(sw string) ([]nb.Row, error) {
	now := x.facts.Now()
	management := now.Management(sw)
	if management == nil {
		return nil, nil
	}
	rows := []nb.Row{guard.Claimed(sw, management, now.Inside())}
	if x.index.Any() {
		rows = append(rows, policy.Node{Switch: sw, Management: management, Own: now.Addresses[sw]}.Rows()...)
	}
	return rows, nil
}

// policyRows are the rows of a policy, or of a group of pods.
func (x *Policies) policyRows(u nb.Unit) ([]nb.Row, error) {
	rows, problem := x.index.Rows(u)
	if problem != "" {
		return rows, &feature.Problem{Reason: "NetworkPolicyNotHonoured", Message: problem}
	}
	return rows, nil
}

// Policy returns the policy of unit u.
func (x *Policies) Policy(u nb.Unit) (policy.Policy, bool) { return x.index.Policy(u) }

// Show lists the policies of the pod of unit u, and their rules.
func (x *Policies) Show(u nb.Unit) (string, error) {
	k, _ := pod.KeyOf(u)
	text, ok := x.index.Show(k)
	if !ok {
		return "", noPod(k)
	}
	return text, nil
}

func noPod(k pod.Key) error {
	return fmt.Errorf("%q is no pod that needs a port: write NAMESPACE/NAME of a scheduled pod outside the host's network", k)
}
