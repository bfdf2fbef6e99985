package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/flow"
	"ovn-k8s/lib/flowsync"
	"ovn-k8s/lib/iptables"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ofctl"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
)

// syncFlows makes the flows of the shared bridge what they should be. Without the
// NIC or the patch port the bridge is the host's alone. A bridge that was made
// anew gets its patch port after its flows, so that the router's packets meet
// them.
func (e *engine) syncFlows(ctx context.Context, p ports, v view) error {
	found, err := e.bridge.Ports(ctx)
	if err != nil {
		return err
	}
	b := v.bridge
	if found.LocalMAC() == "" {
		return fmt.Errorf("bridge %s has no MAC yet", e.helper.Bridge)
	}
	nic, ok := found.Find(e.helper.Interface, p.nic.Ofport)
	patch, ok2 := found.Find(names.PatchToIntegration(e.helper.Bridge), p.outside.Ofport)
	b.Physical, b.Overlay, b.MAC = nic, patch, found.LocalMAC()
	known := ok && ok2
	e.shared.Lock()
	e.view.bridge, e.view.known = b, known
	e.shared.Unlock()
	mods, err := flowsync.Sync(ctx, e.bridge, wantedFlows(b, known, v), ours(b, v))
	if err != nil {
		return err
	}
	if len(mods) > 0 {
		added, deleted := count(mods)
		e.log.Infof("flows of %s: %d added or changed, %d deleted (NIC is port %v, overlay %v)", e.helper.Bridge, added, deleted, b.Physical, b.Overlay)
		for _, m := range mods {
			e.log.Debug(m)
		}
	}
	switch {
	case !ok:
		return fmt.Errorf("interface %s is not in bridge %s: the bridge is the host's alone until it is", e.helper.Interface, e.helper.Bridge)
	case !ok2 && e.reconnect(ctx):
		return nil // the database tells of it
	case !ok2:
		return fmt.Errorf("bridge %s has no port %s: run \"ovn-k8s-overlay gateway-init\" on this node", e.helper.Bridge, names.PatchToIntegration(e.helper.Bridge))
	}
	return nil
}

// reconnect makes the patch port again that the bridge should have, and reports
// whether it should.
func (e *engine) reconnect(ctx context.Context) bool {
	reading, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	all, err := e.sw.Interfaces(reading)
	p := findPorts(all, e.helper.Bridge, e.helper.Interface)
	// Without the inner end there is no gateway anymore that would use it.
	if err != nil || !p.bridge || p.inside.Name == "" {
		return false
	}
	if err := e.sw.EnsurePatch(ctx, e.helper.Bridge); err != nil {
		e.log.Warn(err)
		return false
	}
	e.log.Infof("connected %s with br-int again", e.helper.Bridge)
	return true
}

// wantedFlows are those that a bridge should have.
func wantedFlows(b nodeport.Bridge, known bool, v view) []flow.Flow {
	switch {
	case !known:
		return nodeport.HostFlows(b.MAC)
	case !v.synced:
		return nodeport.BaseFlows(b)
	}
	return nodeport.Flows(b, v.frontends, v.pods)
}

// ours tells which flows may be deleted. As long as Services are not known,
// their flows stay as they are.
func ours(b nodeport.Bridge, v view) func(flow.Flow) bool {
	if v.synced {
		return b.Ours
	}
	return nodeport.IsBase
}

func count(mods []flow.Mod) (added, deleted int) {
	for _, m := range mods {
		if m.Delete {
			deleted++
		}
	}
	return len(mods) - deleted, deleted
}

// syncRules makes the host's rules of one family what they should be. As long as
// Services are not known they stay as they are, but for those that a helper of a
// shared NIC has left on a host that shares none. The guard of pods
// does not depend on Services.
func (e *engine) syncRules(ctx context.Context, f firewall, v view) error {
	if !v.synced {
		if err := guardPods(ctx, f, v); err != nil {
			return err
		}
		if v.host.Shared != "" {
			return nil
		}
		_, err := f.tool.Sync(ctx, nodeport.StrayChain, nil)
		return err
	}
	// What guards 127.0.0.1 is there whenever packets for it are let in.
	guarded := f.family.Is4() && nodeport.Loopback(v.frontends, v.pods)
	if f.family.Is4() && !guarded {
		if err := allowLoopback(v, false); err != nil {
			return err
		}
	}
	changes, err := f.tool.Sync(ctx, nodeport.ChainPrefix, chains(v, f))
	if err == nil && guarded {
		err = allowLoopback(v, true)
	}
	if err != nil || len(changes) == 0 {
		return err
	}
	e.log.Infof("iptables, IPv%d: %d rules changed", 4+2*(f.family.BitLen()/128), len(changes))
	for _, c := range changes {
		e.log.Debug(c)
	}
	if !nodeport.MayBeStale(v.frontends, changes) {
		return nil
	}
	return e.forget(v, f.family)
}

// guardPods creates the chain nodeport.ClaimedChain.
func guardPods(ctx context.Context, f firewall, v view) error {
	var want []iptables.Chain
	for _, c := range nodeport.Claimed(v.host, f.family) {
		want = append(want, iptables.Chain(c))
	}
	if len(want) == 0 { // the management port may not be known yet
		return nil
	}
	_, err := f.tool.Sync(ctx, nodeport.ClaimedChain, want)
	return err
}

// forget lets the host forget the UDP connections that lead where they should
// not any more.
func (e *engine) forget(v view, family netip.Addr) error {
	stale := nodeport.Stale(v.host, family, v.frontends, v.pods)
	n, err := link.ForgetUDP(family, func(c link.Connection) bool { return stale(c.To, c.Answers) })
	if n > 0 {
		e.log.Infof("forgot %d UDP connections to endpoints that are gone", n)
	}
	return err
}

func chains(v view, f firewall) []iptables.Chain {
	var out []iptables.Chain
	host := v.host
	host.RandomFully = f.tool.RandomFully()
	for _, c := range nodeport.Chains(host, f.family, v.frontends, v.pods) {
		out = append(out, iptables.Chain(c))
	}
	return out
}

// dropFlows takes away our flows of a bridge, and returns how many there were.
func dropFlows(ctx context.Context, bridge ofctl.Bridge) (int, error) {
	mods, err := flowsync.Sync(ctx, bridge, nil, func(f flow.Flow) bool { return f.Cookie == nodeport.Cookie })
	return len(mods), err
}

// leaveBridges takes away the flows that a former helper left in bridges that are
// not this one's. Where a gateway still shares such a bridge they stay: they
// serve without a helper.
func (h *Helper) leaveBridges(ctx context.Context, rundir string, sw *vswitch.Switch) {
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	all, err := sw.Interfaces(ctx)
	if err != nil {
		h.log("gateway").Warnf("looking for flows of a helper before: %v", err)
	}
	for _, i := range all {
		if i.Name != i.Bridge || i.Name == h.Bridge || i.Name == names.IntegrationBridge || findPorts(all, i.Name, "").inside.Name != "" {
			continue
		}
		n, err := dropFlows(ctx, ofctl.Bridge{RunDir: rundir, Name: i.Name})
		switch {
		case errors.Is(err, ofctl.ErrDown): // whose flows went with it
		case err != nil:
			h.log("gateway").Warnf("bridge %s may have flows of a helper before: %v", i.Name, err)
		case n > 0:
			h.log("gateway").Infof("flows of %s: %d deleted, its gateway is gone", i.Name, n)
		}
	}
}

// Remove takes away the flows of the bridge, the patch ports that no gateway has, and the rules
// and routes of the host. It must not run beside a helper, which would bring them back.
func (h *Helper) Remove(ctx context.Context) error {
	rundir, err := settings.RunDir(h.Flags)
	if err != nil {
		return err
	}
	var errs []error
	if h.Bridge != "" {
		_, err := dropFlows(ctx, ofctl.Bridge{RunDir: rundir, Name: h.Bridge})
		errs = append(errs, err)
	}
	errs = append(errs, h.leaveSwitch(ctx))
	firewalls, err := newFirewalls()
	errs = append(errs, err)
	for _, f := range firewalls {
		_, err := f.tool.Sync(ctx, nodeport.ChainPrefix, nil)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// leaveSwitch removes patch ports that only a helper needs, and takes back what the management
// port has from it: routes, and that packets with addresses of 127.0.0.0/8 come in there.
func (h *Helper) leaveSwitch(ctx context.Context) error {
	sw, err := h.openvswitch(ctx)
	if err != nil {
		return err
	}
	defer sw.Close()
	if h.Bridge != "" {
		if err := sw.RemovePatch(ctx, h.Bridge); err != nil {
			return err
		}
	}
	all, err := sw.Interfaces(ctx)
	if err != nil {
		return err
	}
	port := findPorts(all, h.Bridge, h.Interface).management
	if port == "" {
		return nil
	}
	_, err = link.EnsureRoutes(link.Routes{Interface: port, Protocol: link.ServiceProtocol, Metric: link.ServiceMetric})
	return errors.Join(err, allowLoopback(view{host: nodeport.Host{Management: port}}, false))
}
