package master

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/watcher"
)

// While commands run a cluster, nobody followed claims of nodes: those of an earlier time are of hosts that were taken back
// since, with gateways that gateway-init has made. Before a master takes the cluster over, it removes them all. A host that
// runs the node role publishes its claim again.

// former are the Nodes with claims removed, and for each a version without them: an earlier one may arrive late.
type former map[string]uint64

// removeClaims removes the claims of all Nodes.
func removeClaims(ctx context.Context, l watcher.Links) (former, error) {
	all, err := l.Cluster.ListOn(ctx, kube.KindOf(&corev1.Node{}), "")
	if err != nil {
		return nil, err
	}
	removed := former{}
	g, working := errgroup.WithContext(ctx)
	g.SetLimit(patchers)
	for o := range all.Objects {
		if n, ok := o.(*corev1.Node); ok && claims(n) {
			removed[n.Name] = 0
			g.Go(func() error { return removeClaim(working, l, n) })
		}
	}
	if err := g.Wait(); err != nil || len(removed) == 0 {
		return nil, err
	}
	if all, err = l.Cluster.ListOn(ctx, kube.KindOf(&corev1.Node{}), ""); err != nil {
		return nil, err
	}
	for o := range all.Objects {
		if n, ok := o.(*corev1.Node); ok && removed.has(n) {
			removed[n.Name] = kube.Version(n.ResourceVersion)
		}
	}
	return removed, nil
}

func removeClaim(ctx context.Context, l watcher.Links, n *corev1.Node) error {
	if !l.Cluster.Leads() {
		return fmt.Errorf("removing the claim of Node %s: the Lease is not held", n.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	l.Log("master").Infof("Node %s: the claim of its host is of an earlier time: removed", n.Name)
	err := l.Cluster.AnnotateNode(ctx, n.Name, string(n.UID), map[string]string{names.ChassisAnnotation: "", names.GatewayAnnotation: ""})
	if errors.Is(err, kube.ErrGone) {
		return nil
	}
	return err
}

func claims(n *corev1.Node) bool {
	return n.Annotations[names.ChassisAnnotation] != "" || n.Annotations[names.GatewayAnnotation] != ""
}

func withoutClaim(n *corev1.Node) *corev1.Node {
	out := *n
	out.Annotations = maps.Clone(n.Annotations)
	delete(out.Annotations, names.ChassisAnnotation)
	delete(out.Annotations, names.GatewayAnnotation)
	return &out
}

func (f former) has(n *corev1.Node) bool {
	_, ok := f[n.Name]
	return ok
}

// node returns a Node, of an earlier version without its claim.
func (f former) node(n *corev1.Node) *corev1.Node {
	if kube.Version(n.ResourceVersion) < f[n.Name] {
		return withoutClaim(n)
	}
	return n
}

// all is node for all of a list.
func (f former) all(objects iter.Seq[any]) iter.Seq[any] { return each(objects, f.node) }

// each changes the Nodes of a list.
func each(objects iter.Seq[any], change func(*corev1.Node) *corev1.Node) iter.Seq[any] {
	return func(yield func(any) bool) {
		for o := range objects {
			if n, ok := o.(*corev1.Node); ok {
				o = change(n)
			}
			if !yield(o) {
				return
			}
		}
	}
}
