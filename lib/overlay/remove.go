package overlay

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/overlay/cnisetup"
	"ovn-k8s/lib/overlay/node"
)

// A Removal is node-remove. It takes a node out of the cluster. On the node itself, recognized by its management port,
// it also undoes the work of an Init on the host: first the CNI configuration, so that no pod is added, and last the
// port, so that a repeated command recognizes the host. If the node is another host by now, only that is undone. A node
// with pods is refused, unless forced. A missing node is not an error.
type Removal struct {
	NodeName string
	// Force removes a node with pods.
	Force bool
}

func (r Removal) run(ctx context.Context, s *session) error {
	name := names.NodeSwitch(r.NodeName)
	problem := errEmpty
	if strings.TrimSpace(name) != "" {
		problem = topology.CheckNodeName(name)
	}
	if problem != nil {
		return errors.Join(problem, link.NeedRoot())
	}
	if err := s.openWithNB(ctx); err != nil {
		return err
	}
	cni, _ := cnisetup.Find(s.host.Config) // good for removal without a plugin, too
	d, err := node.Leave(ctx, s.host, name, &cni)
	if err != nil {
		return err
	}
	if err := s.openStore(ctx, ""); err != nil {
		return err
	}
	before, err := s.store.Topology(ctx)
	if err != nil {
		return err
	}
	if d.Port != "" && s.stays("node "+name, before.Chassis[name]) {
		return r.leave(ctx, s, d, name)
	}
	change := membership.Leave(name, d.Pods, r.Force)
	if s.dryRun {
		if err := s.store.Preview(ctx, topology.NodeUnit(name), change); err != nil {
			return err
		}
		d.Preview()
		s.Continue()
		return nil
	}
	// Refuse before the host is changed.
	if _, err := s.store.Plan(ctx, topology.NodeUnit(name), change); err != nil {
		return err
	}
	s.Continue()
	if err := d.Begin(); err != nil {
		return err
	}
	changes, err := s.store.Change(ctx, topology.NodeUnit(name), change)
	if err != nil {
		return err
	}
	if err := d.Finish(ctx); err != nil {
		return err
	}
	if len(changes) == 0 && d.Port == "" {
		s.Result("Node %s was not there.", name)
		return nil
	}
	s.Result("Node %s removed.", name)
	return nil
}

// leave takes the node back from this host, and leaves it in the cluster. Of its pods only those that run here count: the
// database of a clone has those of the other host.
func (r Removal) leave(ctx context.Context, s *session, d node.Departure, name string) error {
	plugged, err := node.Plugged(ctx, s.host)
	if err != nil {
		return err
	}
	if err := membership.RefusePods(name, slices.Sorted(maps.Keys(plugged)), r.Force); err != nil {
		return err
	}
	s.Continue()
	if s.dryRun {
		d.Preview()
		return nil
	}
	if err := d.Begin(); err != nil {
		return err
	}
	if err := d.Finish(ctx); err != nil {
		return err
	}
	s.Result("Node %s removed from this host.", name)
	return nil
}
