package overlay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/overlay/boot"
	"ovn-k8s/lib/overlay/cnisetup"
	"ovn-k8s/lib/overlay/files"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A host is the desired state of this host.
type host struct {
	boot.Management
	guards  []firewall   // drop packets from outside with an address of this node's pods; see planGuards
	changes []string     // changes of these, for people
	files   []files.Edit // the CNI configuration is the last
	known   bool         // this host is the node already
	// accepted reports whether the cluster has accepted this host with these subnets before: then the host's own
	// part needs no database.
	accepted bool
}

// planHost computes this host's desired state and checks it. For a bad request it plans nothing, but reports all
// problems of the host.
func (s *session) planHost(ctx context.Context, r request, minion, good bool) (*host, error) {
	if err := needRoot(); err != nil {
		return nil, err
	}
	err := s.openHost(ctx)
	if s.sw == nil {
		return nil, err
	}
	if err == nil && len(s.config.NB) == 0 {
		err = config.ErrNoNB
	}
	var setup cnisetup.Setup
	if minion {
		var missing error
		setup, missing = cnisetup.Find(s.config)
		err = errors.Join(err, missing)
	}
	if !good || err != nil {
		return nil, err
	}
	if err := r.fits(s.config); err != nil {
		return nil, err
	}
	if err := s.checkTunnels(); err != nil {
		return nil, err
	}
	h := &host{}
	if err := h.planPort(ctx, s, r); err != nil {
		return nil, err
	}
	h.planGuards(ctx, s)
	var warnings []string
	h.files, warnings, err = boot.Persist(h.Management)
	s.WarnAll(warnings)
	if err != nil || !minion {
		return h, err
	}
	more, warnings, err := setup.Configure()
	s.WarnAll(warnings)
	h.files = append(h.files, more...)
	return h, err
}

// checkTunnels warns of an MTU too large for tunnels.
func (s *session) checkTunnels() error {
	var failed error
	for _, t := range s.config.Tunnels(func(a netip.Addr) (name string, mtu int) {
		name, mtu, err := link.NICWith(a)
		failed = errors.Join(failed, err)
		return name, mtu
	}) {
		if err := t.Check(s.config.MTU); err != nil && failed == nil {
			s.Warn("%v", err)
		}
	}
	return failed
}

// planPort plans the management port and its interface.
func (h *host) planPort(ctx context.Context, s *session, r request) error {
	name, known, err := s.managementInterface(ctx, r.node)
	if err != nil {
		return err
	}
	h.known = known
	m := topology.ManagementPort(r.subnets)
	h.Port = vswitch.InternalPort{
		Bridge: names.IntegrationBridge, Name: name, MAC: m.MAC, MTU: s.config.MTU,
		ExternalIDs: map[string]string{names.IfaceID: names.ManagementPort(r.node), names.NodeSubnets: r.record()},
	}
	if h.accepted, err = s.accepted(ctx, name, r); err != nil {
		return err
	}
	h.State = link.State{Interface: name, MTU: s.config.MTU, Addresses: m.IPs}
	// Gateways connect to this host from addresses in the join subnets.
	for _, to := range slices.Concat(r.clusters, s.config.JoinSubnets, s.config.ServiceCIDRs) {
		i := slices.IndexFunc(m.Routers, func(a netip.Addr) bool { return ipnet.SameFamily(a, to.Addr()) })
		// The kernel itself makes the route to the node's own subnet.
		if i >= 0 && !slices.Contains(r.subnets, to) {
			h.State.Routes = append(h.State.Routes, link.Route{To: to, Via: m.Routers[i]})
		}
	}
	return errors.Join(h.clash(s, r), h.compare(ctx, s))
}

// record is the value of names.NodeSubnets.
func (r request) record() string { return ipnet.Join(r.subnets) + " in " + ipnet.Join(r.clusters) }

// accepted reports whether this host's management port has the record of r.
func (s *session) accepted(ctx context.Context, name string, r request) (bool, error) {
	all, err := s.sw.Interfaces(ctx)
	return slices.ContainsFunc(all, func(i vswitch.Interface) bool {
		return i.Name == name && i.ExternalIDs[names.IfaceID] == names.ManagementPort(r.node) && i.ExternalIDs[names.NodeSubnets] == r.record()
	}), err
}

// clash is an error if other routes of the host overlap the cluster's subnets, and the host would lose one of them
// or could not reach its own pods.
func (h *host) clash(s *session, r request) error {
	taken, err := link.Overlapping(slices.Concat(r.clusters, s.config.JoinSubnets, s.config.ServiceCIDRs), names.ManagementPort(""))
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range taken {
		replaced := slices.ContainsFunc(h.State.Routes, func(want link.Route) bool { return want.To == t.To })
		inside := t.Connected && slices.ContainsFunc(r.subnets, t.To.Overlaps)
		if replaced || inside {
			errs = append(errs, fmt.Errorf("this host has a route %s already: delete it, or choose another subnet for pods", t))
			continue
		}
		s.Warn("this host has a route %s: what it sends to pods or services there goes another way", t)
	}
	return errors.Join(errs...)
}

// compare computes the changes. It finds conflicts, such as a port of this name in another bridge, before anything
// is changed.
func (h *host) compare(ctx context.Context, s *session) error {
	var err error
	if h.changes, err = s.sw.PlanInternalPort(ctx, h.Port); err != nil {
		return fmt.Errorf("planning port %s: %w", h.Port.Name, err)
	}
	changes, err := link.Plan(h.State)
	for _, c := range changes {
		h.changes = append(h.changes, c.String())
	}
	return err
}

// managementInterface chooses the name of the management port's interface: the present one, else the usual one, or
// the unique one if another node has the usual one. known reports whether this host has the port already.
func (s *session) managementInterface(ctx context.Context, node string) (name string, known bool, err error) {
	all, err := s.sw.Interfaces(ctx)
	if err != nil {
		return "", false, err
	}
	usual, unique, want := names.ManagementInterface(node), names.UniqueManagementInterface(node), names.ManagementPort(node)
	ids := map[string]string{}
	for _, i := range all {
		id := i.ExternalIDs[names.IfaceID]
		ids[i.Name] = id
		if other, ok := strings.CutPrefix(id, names.ManagementPort("")); ok && id != want && strings.HasPrefix(i.Name, names.ManagementPort("")) {
			s.Warn("this host also has %s, the management port of node %s: if the host is not that node any more, run node-remove --node-name=%s", i.Name, other, other)
		}
	}
	name = usual
	if ids[unique] == want || strings.HasPrefix(ids[usual], names.ManagementPort("")) && ids[usual] != want {
		name = unique
	}
	if id, ours := ids[name]; ours {
		return name, id == want, nil
	}
	there, err := link.Exists(name)
	if err == nil && there {
		err = fmt.Errorf("there is an interface %s that Open vSwitch has not made: rename or delete it", name)
	}
	return name, false, err
}

// ensure brings this host to the state h.
func (h *host) ensure(ctx context.Context, s *session) error {
	err := s.Stage(ctx, "waiting for ovs-vswitchd to make "+h.Port.Name, func(ctx context.Context) error {
		if _, err := s.sw.EnsureInternalPort(ctx, h.Port); err != nil {
			return err
		}
		return s.spareConnections(ctx)
	})
	if err != nil {
		return err
	}
	if err := h.checkMAC(); err != nil {
		return err
	}
	var unguarded error
	if len(h.guards) > 0 { // before there are routes to pods
		unguarded = syncFirewalls(ctx, nodeport.ClaimedChain, h.guards)
	}
	if err := link.Ensure(h.State); err != nil {
		return fmt.Errorf("configuring %s: %w", h.Port.Name, err)
	}
	if err := sweep(s.config); err != nil {
		return err
	}
	return errors.Join(unguarded, files.Apply(h.files))
}

// sweep removes the temporary files of killed runs.
func sweep(c config.Config) error {
	return files.Sweep(append(boot.Dirs(), c.CNIConfDir, c.CNIBinDir)...)
}

// spareConnections configures Open vSwitch to keep connections alive during restarts of OVN's and Open vSwitch's
// daemons.
func (s *session) spareConnections(ctx context.Context) error {
	_, err1 := s.sw.AvoidZeroSNAT(ctx)
	_, err2 := s.sw.KeepFlows(ctx)
	return errors.Join(err1, err2)
}

// checkMAC compares the interface's MAC with the logical port's. If they differ, no packet passes.
func (h *host) checkMAC() error {
	is, err := link.MAC(h.Port.Name)
	if err != nil {
		return err
	}
	want, err := net.ParseMAC(h.Port.MAC)
	if err == nil && is != want.String() {
		err = fmt.Errorf("interface %s has MAC %s, but OVN expects %s: ovs-vswitchd did not take it from the database, see its log", h.Port.Name, is, h.Port.MAC)
	}
	return err
}

// preview prints the changes of ensure.
func (h *host) preview(s *session) {
	lines := h.changes
	for _, e := range h.files {
		lines = append(lines, e.String())
	}
	s.Section("this host", lines)
}
