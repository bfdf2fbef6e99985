package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/firewall"
	"ovn-k8s/lib/flow"
	"ovn-k8s/lib/flowsync"
	"ovn-k8s/lib/gateway/declare"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ofctl"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
)

// syncFlows reconciles the flows of the shared bridge. Without the NIC or the patch
// port, the bridge serves the host alone. A new bridge gets its patch port after its
// flows, so that they apply to the router's first packets.
func (e *engine) syncFlows(ctx context.Context, p ports, v view) error {
	b, nic, patch, err := e.flows.find(ctx, e.bridge, e.helper.Interface, p, v.bridge)
	if err != nil {
		return err
	}
	known := nic && patch
	e.shared.Lock()
	e.view.bridge, e.view.known = b, known
	e.shared.Unlock()
	mods, err := e.flows.sync(ctx, e.bridge, b, known, v)
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
	case !nic:
		return fmt.Errorf("interface %s is not in bridge %s: the bridge is the host's alone until it is", e.helper.Interface, e.helper.Bridge)
	case !patch && e.reconnect(ctx):
		return nil // an event of the database follows
	case !patch:
		return fmt.Errorf("bridge %s has no port %s, which \"ovn-k8s-overlay gateway-init\" or ovnkube makes: the bridge is the host's alone until it is there", e.helper.Bridge, names.PatchToIntegration(e.helper.Bridge))
	}
	return nil
}

// reconnect creates the missing patch port of the bridge, unless there is no gateway, and
// reports whether it did.
func (e *engine) reconnect(ctx context.Context) bool {
	reading, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	all, err := e.sw.Interfaces(reading)
	p := findPorts(all, e.helper.Bridge, e.helper.Interface)
	// Without the inner end, no gateway would use it.
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

func count(mods []flow.Mod) (added, deleted int) {
	for _, m := range mods {
		if m.Delete {
			deleted++
		}
	}
	return len(mods) - deleted, deleted
}

// syncRules reconciles the host's rules of one family.
func (e *engine) syncRules(ctx context.Context, f *firewall.Firewall, v view) error {
	if text := f.Choice(); text != "" && !e.chosen[text] {
		e.chosen[text] = true
		e.log.Info(text)
	}
	if !v.synced {
		return f.SyncEarly(ctx, v.host)
	}
	// The rule that guards 127.0.0.1 exists before packets to it are accepted.
	guarded := f.Family().Is4() && nodeport.Loopback(v.outside, v.pods)
	if f.Family().Is4() && !guarded {
		if err := allowLoopback(v, false); err != nil {
			return err
		}
	}
	changes, refused := f.Sync(ctx, firewall.Services, e.tables[f.Family()].Rules(v.host, f.Family(), v.frontends, v.pods))
	if refused != nil && !errors.Is(refused, firewall.ErrRefused) {
		return refused
	}
	if guarded {
		if err := allowLoopback(v, true); err != nil {
			return err
		}
	}
	if len(changes) > 0 {
		e.log.Infof("%v: %d rules changed", f, len(changes))
	}
	for _, c := range changes {
		e.log.Debug(c)
	}
	err := e.tracked[f.Family()].Forget(nodeport.NewTracked(v.host, f.Family(), v.frontends, v.pods), changes)
	if err != nil && refused != nil {
		return fmt.Errorf("%w; %w", refused, err)
	}
	return cmp.Or(refused, err)
}

// holdNAT keeps established connections while another program flushes all rules, until release.
func (e *engine) holdNAT() (release func()) {
	var all []func()
	for part, f := range e.firewall {
		release, err := f.HoldNAT()
		if err != nil {
			e.log.Debugf("%s: connections may break when another program flushes all rules: %v", part, err)
			continue
		}
		all = append(all, release)
	}
	return func() {
		for _, release := range all {
			release()
		}
	}
}

// guardFirst creates the chains that protect pods before the host forwards packets. syncRules maintains them.
func (e *engine) guardFirst(ctx context.Context, v view) error {
	if e.guarded || len(v.host.Pods) == 0 {
		return nil
	}
	for _, f := range e.firewall {
		if err := f.Guard(ctx, v.host); err != nil {
			return err
		}
	}
	e.guarded = true
	return nil
}

// rulesOf returns the desired rules of one family.
func rulesOf(v view, f *firewall.Firewall) nodeport.Rules {
	return nodeport.NewRules(v.host, f.Family(), v.frontends, v.pods)
}

// mayHaveLocal reports whether Open vSwitch has a local gateway before its event reached the engine: it may already
// have rules. If the database cannot be read, it may; partPorts reports the error.
func (e *engine) mayHaveLocal(ctx context.Context) bool {
	reading, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	all, err := e.sw.Interfaces(reading)
	return err != nil || findPorts(all, e.helper.Bridge, e.helper.Interface).local.Name != ""
}

// dropFlows deletes our flows of a bridge, and returns their number.
func dropFlows(ctx context.Context, bridge ofctl.Bridge) (int, error) {
	mods, err := flowsync.Sync(ctx, bridge, nil, func(f flow.Flow) bool { return f.Cookie == bridgeflows.Cookie })
	return len(mods), err
}

// leaveBridges deletes the flows of a former helper in other bridges, except in those
// still shared with a gateway: there the flows serve without a helper.
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
		case errors.Is(err, ofctl.ErrDown): // its flows are gone as well
		case err != nil:
			h.log("gateway").Warnf("bridge %s may have flows of a helper before: %v", i.Name, err)
		case n > 0:
			h.log("gateway").Infof("flows of %s: %d deleted, its gateway is gone", i.Name, n)
		}
	}
}

// Remove deletes the flows of the bridge, unused patch ports, the helper's reports in ovn-cms-options, and the rules and
// routes of the host, except the guards of its pods: node-remove deletes those. It must not run beside
// a helper, which would create them again.
func (h *Helper) Remove(ctx context.Context) error {
	if err := link.NeedRoot(); err != nil {
		return err
	}
	rundir, err := settings.RunDir(h.Flags)
	if err != nil {
		return err
	}
	var errs []error
	if h.Bridge != "" {
		_, err := dropFlows(ctx, ofctl.Bridge{RunDir: rundir, Name: h.Bridge})
		errs = append(errs, err)
	}
	node, setting, err := h.leaveSwitch(ctx)
	errs = append(errs, err)
	for _, f := range newFirewalls(setting) {
		_, err := f.Sync(ctx, firewall.Services, nodeport.Guards{Host: node, Family: f.Family()})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// leaveSwitch deletes patch ports used only by the helper, and its reports, and reverts the helper's changes
// of the management port: routes, and packets with addresses of 127.0.0.0/8. It returns the
// part of the node that guards depend on, and the setting of the packet filter.
func (h *Helper) leaveSwitch(ctx context.Context) (node nodeport.Host, filter string, err error) {
	filter = config.AnyFirewall
	sw, err := h.runtime().ConnectSwitch(ctx)
	if err != nil {
		return node, filter, err
	}
	defer sw.Close()
	if cfg, err := settings.Load(ctx, h.Flags, sw); err == nil {
		filter = cfg.Firewall
	}
	if h.Bridge != "" {
		if err := sw.RemovePatch(ctx, h.Bridge); err != nil {
			return node, filter, err
		}
	}
	if err := forgetReports(ctx, sw, h.Bridge); err != nil {
		return node, filter, err
	}
	all, err := sw.Interfaces(ctx)
	if err != nil {
		return node, filter, err
	}
	node.Management = findPorts(all, h.Bridge, h.Interface).management
	if node.Management == "" {
		return node, filter, nil
	}
	addrs, err := link.Addresses()
	node.Pods = subnetsOf(addrs[node.Management])
	_, err2 := link.EnsureRoutes(link.Routes{Interface: node.Management, Protocol: link.ServiceProtocol, Metric: link.ServiceMetric})
	return node, filter, errors.Join(err, err2, allowLoopback(view{host: node}, false))
}

// forgetReports deletes the helper's reports in ovn-cms-options: a watcher would go on to warn of a host without them. A
// gateway still connected to the bridge without its flows is declared down.
func forgetReports(ctx context.Context, sw *vswitch.Switch, bridge string) error {
	for _, option := range []string{names.MTUOption, names.PodMTUOption, names.FirewallOption} {
		if _, err := sw.Controller().SetCMSOption(ctx, option, ""); err != nil {
			return err
		}
	}
	return declare.Leave(ctx, sw, bridge)
}
