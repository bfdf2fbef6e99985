package desired

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/nb"
)

// putLabels records the labels and ports of a pod with a logical port in the policies.
func (w *World) putLabels(o *corev1.Pod, p pod.Pod) []nb.Unit {
	if !p.NeedsPort {
		return w.policies.RemovePod(p.Key)
	}
	return w.policies.PutPod(p.Key, o.Labels, policy.Ports(o))
}

// putPolicies applies a change of policies. The first policy adds ACLs to all nodes, and the end of the last one
// removes them.
func (w *World) putPolicies(change func() []nb.Unit) []nb.Unit {
	before := w.policies.Any()
	touched := change()
	if w.policies.Any() != before {
		for name := range w.Facts().Cluster.Nodes {
			touched = append(touched, policy.NodeUnit(name))
		}
	}
	return touched
}

func (w *World) putPolicy(o *networkingv1.NetworkPolicy) []nb.Unit {
	return w.putPolicies(func() []nb.Unit { return w.policies.PutPolicy(policy.New(o)) })
}

func (w *World) removePolicy(name types.NamespacedName) []nb.Unit {
	return w.putPolicies(func() []nb.Unit { return w.policies.RemovePolicy(policy.Key(name)) })
}

func (w *World) policyNames() []types.NamespacedName {
	return namesOf(slices.Values(w.policies.Keys()))
}

func (w *World) putNamespace(n *corev1.Namespace) []nb.Unit {
	return append(w.look(w.facts.PutNamespace(n)), w.policies.PutNamespace(n)...)
}

func (w *World) removeNamespace(name types.NamespacedName) []nb.Unit {
	return w.policies.RemoveNamespace(name.Name)
}

func (w *World) namespaceNames() []types.NamespacedName {
	return clusterWide(slices.Values(w.policies.Namespaces()))
}

// lookPolicies returns the units of the guard and of nodes' own ACLs affected.
func (w *World) lookPolicies(c facts.Change) (touched []nb.Unit) {
	for _, sw := range c.Moved {
		touched = append(touched, policy.NodeUnit(sw))
	}
	if !c.Topology {
		return touched
	}
	changed := c.ChangedSubnets()
	if c.OtherNetworks() {
		touched = append(touched, policy.GuardUnit)
		for name := range c.Now.Cluster.Nodes {
			changed[name] = true
		}
	}
	for name := range changed {
		touched = append(touched, policy.NodeUnit(name), policy.GuardUnit)
	}
	return touched
}

// nodePolicyRows are the ACLs of a node's switch.
func (w *World) nodePolicyRows(sw string) ([]nb.Row, error) {
	if w.Facts().Management(sw) == nil {
		return nil, nil
	}
	return policy.Node{
		Switch: sw, Management: w.Facts().Management(sw), Own: w.Facts().Addresses[sw],
		Inside: w.Facts().Inside(), Policies: w.policies.Any(),
	}.Rows(), nil
}

// guardRows returns the rows of the guard.
func (w *World) guardRows() ([]nb.Row, error) {
	return policy.GuardRows(w.Facts().Cluster.Subnets, w.Facts().Switches), nil
}

// policyRows are the rows of a policy, or of a group of pods.
func (w *World) policyRows(u nb.Unit) ([]nb.Row, error) {
	rows, problem := w.policies.Rows(u)
	if problem != "" {
		return rows, &feature.Problem{Reason: "NetworkPolicyNotHonoured", Message: problem}
	}
	return rows, nil
}

// policyUnits lists the units of policies, their groups and their logging.
func (w *World) policyUnits() []nb.Unit { return w.policies.Units() }

func (w *World) guardUnits() []nb.Unit {
	if len(w.Facts().Cluster.Nodes) == 0 {
		return nil
	}
	return []nb.Unit{policy.GuardUnit}
}

func (w *World) nodePolicyUnits() []nb.Unit {
	return feature.UnitsOf(w.Facts().Cluster.Nodes, policy.NodeUnit)
}

// Policy returns the policy of unit u.
func (w *World) Policy(u nb.Unit) (policy.Policy, bool) { return w.policies.Policy(u) }

// ShowPolicies lists the policies of the pod of unit u, and their rules.
func (w *World) ShowPolicies(u nb.Unit) (string, error) {
	k, _ := pod.KeyOf(u)
	text, ok := w.policies.Show(k)
	if !ok {
		return "", noPod(k)
	}
	return text, nil
}

func noPod(k pod.Key) error {
	return fmt.Errorf("%q is no pod that needs a port: write NAMESPACE/NAME of a scheduled pod outside the host's network", k)
}
