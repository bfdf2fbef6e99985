package facts

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/kind"
	"ovn-k8s/lib/nb"
)

// Kinds are the kinds of objects that facts are derived from. changed lets features look at other facts, and returns the
// units to compute again.
func (x *Index) Kinds(changed func(Change) []nb.Unit) []kind.Kind {
	return []kind.Kind{
		kind.Together(
			func(nodes []*corev1.Node, gone []types.NamespacedName) []nb.Unit {
				return changed(x.PutNodes(nodes, gone))
			},
			func() []types.NamespacedName { return kind.ClusterWide(maps.Keys(x.now.Nodes)) },
		),
		kind.OneByOne(
			func(o *networkingv1.ServiceCIDR) []nb.Unit { return changed(x.PutServiceCIDR(o)) },
			func(name types.NamespacedName) []nb.Unit { return changed(x.RemoveServiceCIDR(name.Name)) },
			func() []types.NamespacedName { return kind.ClusterWide(maps.Keys(x.now.CIDRs)) },
		),
		input(x.PutNamespace, changed),
		input(x.PutCluster, changed),
		input(x.PutSilent, changed),
		input(x.PutRegistered, changed),
		input(x.PutDeclared, changed),
		input(x.PutProtected, changed),
		input(x.PutTunnels, changed),
		input(x.PutRanges, changed),
	}
}

func input[O any](put func(O) Change, changed func(Change) []nb.Unit) kind.Kind {
	return kind.Input(func(o O) []nb.Unit { return changed(put(o)) })
}
