package overlay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/overlay/boot"
	"ovn-k8s/lib/overlay/cnisetup"
	"ovn-k8s/lib/overlay/files"
)

// A Removal is the input of node-remove.
type Removal struct {
	Command
	// Force removes a node with pods.
	Force bool
}

// NodeRemove takes a node out of the cluster. On the node itself, recognized by its management port, it also undoes
// the work of MinionInit on the host: first the CNI configuration, so that no pod is added, and last the port, so
// that a repeated command recognizes the host. A node with pods is refused, unless forced. A missing node is not an
// error.
func NodeRemove(ctx context.Context, r Removal) error {
	s := newSession(r.Command)
	defer s.close()
	node := names.NodeSwitch(r.NodeName)
	d, err := s.planLeave(ctx, node)
	if err != nil {
		return err
	}
	if err := s.openNB(ctx); err != nil {
		return err
	}
	change := leave(node, d.pods, r.Force)
	if s.DryRun {
		if err := s.previewCluster(ctx, topology.NodeUnit(node), change); err != nil {
			return err
		}
		d.preview(s)
		s.Continue()
		return nil
	}
	// Refuse before the host is changed.
	if _, err := s.planCluster(ctx, topology.NodeUnit(node), change); err != nil {
		return err
	}
	s.Continue()
	if err := files.Apply(d.before); err != nil {
		return err
	}
	changes, err := s.changeCluster(ctx, topology.NodeUnit(node), change)
	if err != nil {
		return err
	}
	if err := d.finish(ctx, s); err != nil {
		return err
	}
	if len(changes) == 0 && d.port == "" {
		s.Result("Node %s was not there.", node)
		return nil
	}
	s.Result("Node %s removed.", node)
	return nil
}

// leave returns the change to remove a node.
func leave(node string, plugged []string, force bool) clusterChange {
	return func(w world) (c topology.Cluster, err error) {
		for _, sw := range w.switches {
			if sw.Name == node && sw.ExternalIDs[names.Owner] == "" && sw.ExternalIDs[names.GatewayIP] != "" {
				return c, fmt.Errorf("switch %s was made by an older release: run minion-init for it first, which takes it over", node)
			}
		}
		if w.router == nil {
			return c, nil // all rows of the node go
		}
		if !w.recorded() {
			return c, fmt.Errorf("cluster router %s was made by an older release: run master-init first, which takes it over", w.router.Name)
		}
		c, err = w.record()
		if pods := w.pods(node, plugged); err == nil && len(pods) > 0 && !force {
			err = fmt.Errorf("node %s has pods: %s: drain it first, or give --force", node, enumerate(pods))
		}
		c, _ = c.WithoutNode(node)
		return c, err
	}
}

// pods lists the pods with a logical port on the node's switch, and the pods of the logical ports plugged in.
func (w world) pods(node string, plugged []string) []string {
	found := map[string]bool{}
	for _, port := range plugged {
		found[port] = true
	}
	for _, sw := range w.switches {
		if sw.Name != node {
			continue
		}
		for _, p := range w.ports {
			if p.ExternalIDs[names.Pod] == "true" && slices.Contains(sw.Ports, p.UUID) {
				found[p.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// enumerate names at most ten pods by their logical ports.
func enumerate(ports []string) string {
	const most = 10
	var pods []string
	for _, p := range ports[:min(most, len(ports))] {
		pods = append(pods, strings.Replace(p, "_", "/", 1)) // names.PodPort; names in Kubernetes have no "_"
	}
	if len(ports) > most {
		pods = append(pods, fmt.Sprintf("%d more", len(ports)-most))
	}
	return strings.Join(pods, ", ")
}

// A departure has the changes to undo on the node's own host. It is empty on others.
type departure struct {
	port          string       // the management port, or empty
	pods          []string     // logical ports of pods that are plugged in
	before, after []files.Edit // before and after the database is changed
	rules         []string     // commands that remove the guards of pods
}

// planLeave computes the edits to undo on this host, and reports all problems.
func (s *session) planLeave(ctx context.Context, node string) (departure, error) {
	var d departure
	problem := errEmpty
	if strings.TrimSpace(node) != "" {
		problem = topology.CheckNodeName(node)
	}
	if err := errors.Join(problem, needRoot()); err != nil {
		return d, err
	}
	err := s.openHost(ctx)
	if err == nil && len(s.config.NB) == 0 {
		err = config.ErrNoNB
	}
	if err != nil {
		return d, err
	}
	all, err := s.sw.Interfaces(ctx)
	if err != nil {
		return d, err
	}
	for _, i := range all {
		switch id := i.ExternalIDs[names.IfaceID]; {
		case id == names.ManagementPort(node) && i.Bridge == names.IntegrationBridge:
			d.port = i.Name
		case i.ExternalIDs[names.Sandbox] != "":
			d.pods = append(d.pods, id)
		}
	}
	if d.port == "" {
		return departure{}, nil
	}
	if d.rules, err = planFirewalls(ctx, nodeport.ClaimedChain, nil); err != nil {
		s.Warn("%v", err)
	}
	setup, _ := cnisetup.Find(s.config)
	if d.before, err = setup.Disable(); err != nil {
		return d, err
	}
	if d.after, err = boot.Forget(d.port); err != nil || len(d.pods) > 0 {
		return d, err // the remaining pods need the plugin for DEL
	}
	programs, err := setup.Remove()
	d.after = append(d.after, programs...)
	return d, err
}

// finish undoes the rest.
func (d departure) finish(ctx context.Context, s *session) error {
	if d.port == "" {
		return nil
	}
	if err := sweep(s.config); err != nil {
		return err
	}
	if err := files.Apply(d.after); err != nil {
		return err
	}
	if len(d.rules) > 0 {
		if err := syncFirewalls(ctx, nodeport.ClaimedChain, nil); err != nil {
			return err
		}
	}
	return s.Stage(ctx, "waiting for ovs-vswitchd to delete "+d.port, func(ctx context.Context) error {
		_, err := s.sw.DeletePort(ctx, names.IntegrationBridge, d.port)
		return err
	})
}

// preview prints the edits and the port to delete.
func (d departure) preview(s *session) {
	if d.port == "" {
		return
	}
	var lines []string
	for _, e := range slices.Concat(d.before, d.after) {
		lines = append(lines, e.String())
	}
	s.Section("this host", append(append(lines, d.rules...), fmt.Sprintf("delete port %s from bridge %s", d.port, names.IntegrationBridge)))
}
