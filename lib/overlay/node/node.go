// Package node is the host of a node: the management port with its addresses and routes, the guards of pods, the host's
// own network configuration, and CNI. It needs no Northbound database.
package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/firewall"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/overlay/boot"
	"ovn-k8s/lib/overlay/cnisetup"
	"ovn-k8s/lib/overlay/files"
	"ovn-k8s/lib/overlay/host"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A Plan is the desired state of a node's host, and how far the host differs. After New, it needs Complete.
type Plan struct {
	// Accepted means that the cluster has accepted this host with these subnets before: then the host's own part needs
	// no database.
	Accepted bool

	boot.Management
	host    *host.Host
	node    membership.Node
	parts   Parts
	noted   []netip.Prefix         // join subnets on the management port, of the last Ensure
	join    []netip.Prefix         // the cluster's, of the node's families
	guards  []firewall.FamilyRules // drop packets from outside with an address of this node's pods; see planGuards
	changes []string               // changes of these, for people
	edits   []files.Edit           // the CNI configuration is the last
}

// Parts are parts of a host beside the management port.
type Parts struct {
	// Guards drop packets from outside with an address of this node's pods.
	Guards bool
	// Boot has the host's own network configuration restore the management port at boot.
	Boot bool
	// CNI is the plugin and its configuration; nil leaves CNI as it is.
	CNI *cnisetup.Setup
}

// New checks the request and finds the node's management port.
func New(ctx context.Context, h *host.Host, n membership.Node, parts Parts) (*Plan, error) {
	if err := errors.Join(n.Fits(h.Config), host.NeedIPv6(n.Pods)); err != nil {
		return nil, err
	}
	p := &Plan{host: h, node: n, parts: parts}
	return p, p.findPort(ctx)
}

// Complete computes the desired state of the management port and of the other parts, and checks it. It changes nothing.
// join are the cluster's join subnets; nil: those of the last Ensure, else the configured ones.
func (p *Plan) Complete(ctx context.Context, join []netip.Prefix) error {
	p.changes, p.edits, p.guards = nil, nil, nil
	if join == nil {
		join = slices.Concat(p.noted, p.host.Config.JoinSubnets)
	}
	if err := p.planPort(ctx, join); err != nil {
		return err
	}
	if p.parts.Guards {
		p.planGuards(ctx)
	}
	return p.planFiles()
}

// planFiles plans the edits of files.
func (p *Plan) planFiles() error {
	if p.parts.Boot {
		if err := p.planEdits(boot.Persist(p.Management)); err != nil {
			return err
		}
	}
	if p.parts.CNI == nil {
		return nil
	}
	return p.planEdits(p.parts.CNI.Configure())
}

func (p *Plan) planEdits(edits []files.Edit, warnings []string, err error) error {
	p.edits = append(p.edits, edits...)
	p.host.Report.WarnAll(warnings)
	return err
}

// Changes lists the changes of Ensure, one a line.
func (p *Plan) Changes() []string {
	return slices.Concat(p.changes, files.Describe(p.edits))
}

// findPort finds the management port, and what it says about the cluster.
func (p *Plan) findPort(ctx context.Context) (err error) {
	if p.Port.Name, err = p.managementInterface(ctx, p.node.Name); err != nil {
		return err
	}
	all, err := p.host.Switch.Interfaces(ctx)
	for _, i := range all {
		if i.Name != p.Port.Name || i.ExternalIDs[names.IfaceID] != names.ManagementPort(p.node.Name) {
			continue
		}
		p.Accepted = i.ExternalIDs[names.NodeSubnets] == record(p.node)
		p.noted, _ = ipnet.ParseSubnets(i.ExternalIDs[names.JoinSubnets], 0) // Ensure replaces a bad note
	}
	return err
}

// planPort plans the management port and its interface. Of join, it takes the first of each family.
func (p *Plan) planPort(ctx context.Context, join []netip.Prefix) error {
	m := topology.ManagementPort(p.node.Pods)
	p.join = nil
	for _, r := range m.Routers {
		if of := ipnet.OfFamily(join, ipnet.Family(r)); len(of) > 0 {
			p.join = append(p.join, of[0])
		}
	}
	if a, b, overlap := ipnet.Overlap(p.join, p.host.Config.ServiceCIDRs); overlap {
		return fmt.Errorf("join subnet %s overlaps the subnet of services %s: set ovn-k8s-join-subnet", a, b)
	}
	name := p.Port.Name
	p.Port = vswitch.InternalPort{
		Bridge: names.IntegrationBridge, Name: name, MAC: m.MAC, MTU: p.host.Config.MTU,
		ExternalIDs: map[string]string{names.IfaceID: names.ManagementPort(p.node.Name), names.NodeSubnets: record(p.node), names.JoinSubnets: ipnet.Join(p.join)},
	}
	p.State = link.State{Interface: name, MTU: p.host.Config.MTU, Addresses: m.IPs}
	// Gateways connect to this host from addresses in the join subnets.
	for _, to := range p.routed() {
		i := slices.IndexFunc(m.Routers, func(a netip.Addr) bool { return ipnet.SameFamily(a, to.Addr()) })
		// The kernel itself makes the route to the node's own subnet.
		if i >= 0 && !slices.Contains(p.node.Pods, to) {
			p.State.Routes = append(p.State.Routes, link.Route{To: to, Via: m.Routers[i]})
		}
	}
	return errors.Join(p.clash(), p.compare(ctx))
}

// record is the value of names.NodeSubnets.
func record(n membership.Node) string { return ipnet.Join(n.Pods) + " in " + ipnet.Join(n.Subnets) }

// routed are the subnets behind the management port.
func (p *Plan) routed() []netip.Prefix {
	return slices.Concat(p.node.Subnets, p.join, p.host.Config.ServiceCIDRs)
}

// clash is an error if other routes of the host overlap the cluster's subnets, and the host would lose one of them
// or could not reach its own pods.
func (p *Plan) clash() error {
	taken, err := link.Overlapping(p.routed(), names.ManagementPort(""))
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range taken {
		replaced := slices.ContainsFunc(p.State.Routes, func(want link.Route) bool { return want.To == t.To })
		inside := t.Connected && slices.ContainsFunc(p.node.Pods, t.To.Overlaps)
		if replaced || inside {
			errs = append(errs, fmt.Errorf("this host has a route %s already: delete it, or choose another subnet for pods", t))
			continue
		}
		p.host.Report.Warn("this host has a route %s: what it sends to pods or services there goes another way", t)
	}
	return errors.Join(errs...)
}

// compare computes the changes. It finds conflicts, such as a port of this name in another bridge, before anything
// is changed.
func (p *Plan) compare(ctx context.Context) error {
	var err error
	if p.changes, err = p.host.Switch.PlanInternalPort(ctx, p.Port); err != nil {
		return fmt.Errorf("planning port %s: %w", p.Port.Name, err)
	}
	changes, err := link.Plan(p.State)
	for _, c := range changes {
		p.changes = append(p.changes, c.String())
	}
	return err
}

// managementInterface chooses the name of the management port's interface: the present one, else the usual one, or
// the unique one if another node has the usual one.
func (p *Plan) managementInterface(ctx context.Context, node string) (name string, err error) {
	all, err := p.host.Switch.Interfaces(ctx)
	if err != nil {
		return "", err
	}
	usual, unique, want := names.ManagementInterface(node), names.UniqueManagementInterface(node), names.ManagementPort(node)
	ids := map[string]string{}
	for _, i := range all {
		id := i.ExternalIDs[names.IfaceID]
		ids[i.Name] = id
		if other, ok := strings.CutPrefix(id, names.ManagementPort("")); ok && id != want && strings.HasPrefix(i.Name, names.ManagementPort("")) {
			p.host.Report.Warn("this host also has %s, the management port of node %s: if the host is not that node any more, run node-remove --node-name=%[2]s, or ovnkube --cleanup-node=%[2]s", i.Name, other)
		}
	}
	name = usual
	if ids[unique] == want || strings.HasPrefix(ids[usual], names.ManagementPort("")) && ids[usual] != want {
		name = unique
	}
	if _, ours := ids[name]; ours {
		return name, nil
	}
	there, err := link.Exists(name)
	if err == nil && there {
		err = fmt.Errorf("there is an interface %s that Open vSwitch has not made: rename or delete it", name)
	}
	return name, err
}

// Ensure brings this host to the desired state.
func (p *Plan) Ensure(ctx context.Context) error {
	err := p.host.Report.Stage(ctx, "waiting for ovs-vswitchd to make "+p.Port.Name, func(ctx context.Context) error {
		if _, err := p.host.Switch.EnsureInternalPort(ctx, p.Port); err != nil {
			return err
		}
		return p.host.SpareConnections(ctx)
	})
	if err != nil {
		return err
	}
	if err := p.checkMAC(); err != nil {
		return err
	}
	var unguarded error
	if len(p.guards) > 0 { // before there are routes to pods
		unguarded = firewall.SyncFamilies(ctx, p.host.Config.Firewall, firewall.Claimed, p.guards)
	}
	if err := link.Ensure(p.State); err != nil {
		return fmt.Errorf("configuring %s: %w", p.Port.Name, err)
	}
	if err := sweep(p.host.Config); err != nil {
		return err
	}
	return errors.Join(unguarded, files.Apply(p.edits))
}

// sweep removes the temporary files of killed runs.
func sweep(c config.Config) error {
	return files.Sweep(append(boot.Dirs(), c.CNIConfDir, c.CNIBinDir)...)
}

// checkMAC compares the interface's MAC with the logical port's. If they differ, no packet passes.
func (p *Plan) checkMAC() error {
	is, err := link.MAC(p.Port.Name)
	if err != nil {
		return err
	}
	want, err := net.ParseMAC(p.Port.MAC)
	if err == nil && is != want.String() {
		err = fmt.Errorf("interface %s has MAC %s, but OVN expects %s: ovs-vswitchd did not take it from the database, see its log", p.Port.Name, is, p.Port.MAC)
	}
	return err
}

// Preview prints the changes of Ensure.
func (p *Plan) Preview() { p.host.Report.Section("this host", p.Changes()) }
