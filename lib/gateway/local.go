package gateway

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/localgateway"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/iptables"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
)

// followPacketFilter reconciles rules whenever another program changes some, until
// ctx ends. The resync finds changes that the kernel does not announce.
func (e *engine) followPacketFilter(ctx context.Context) {
	parts := append(slices.Collect(maps.Keys(e.firewall)), partLocal, partFirewall)
	_ = kube.Retry(ctx, func() error {
		return link.FollowPacketFilter(ctx, func() { e.touch(parts...) })
	}, func(err error) { e.log.Warnf("trying again: %v", err) })
}

// followForwarding does the same for sysctls and routing rules.
func (e *engine) followForwarding(ctx context.Context) {
	_ = kube.Retry(ctx, func() error {
		return link.FollowForwarding(ctx, func() { e.touch(partForwarding, partLocal) })
	}, func(err error) { e.log.Warnf("trying again: %v", err) })
}

// localLinks returns the links between this host and its local gateway: none without
// one.
func (e *engine) localLinks() ([]localgateway.Link, error) {
	ids := e.ports.local.ExternalIDs
	if ids == nil {
		return nil, nil
	}
	subnets, pods := e.config.LocalSubnets, e.config.ClusterSubnets
	if made, err := ipnet.ParseSubnets(ids[names.ClusterSubnets], 0); err == nil {
		pods = made
	}
	var routers []netip.Prefix
	for word := range strings.SplitSeq(ids[names.GatewayIPs], ",") {
		if p, err := netip.ParsePrefix(word); err == nil {
			routers = append(routers, p)
		}
	}
	if len(routers) > 0 {
		subnets = routers
	}
	if len(pods) == 0 {
		return nil, errPodsUnknown
	}
	return localgateway.Links(subnets, pods)
}

// syncLocal keeps this host's end of a local gateway in the state made by gateway-init,
// or removes the remains of a former one.
func (e *engine) syncLocal(ctx context.Context, links []localgateway.Link) error {
	if len(links) > 0 {
		if err := e.syncLink(links); err != nil {
			return err
		}
	} else if e.mayHaveLocal(ctx) {
		return nil
	}
	for _, part := range slices.Sorted(maps.Keys(e.firewall)) {
		f := e.firewall[part]
		if len(links) == 0 {
			if err := link.RemoveBypass(f.family, localgateway.Table); err != nil {
				return err
			}
		}
		var want []iptables.Chain
		for _, l := range links {
			if ipnet.SameFamily(l.Router.Addr(), f.family) {
				for _, c := range l.Chains(f.tool.RandomFully()) {
					want = append(want, iptables.Chain(c))
				}
			}
		}
		changes, err := f.tool.Sync(ctx, localgateway.ChainPrefix, want)
		if err != nil {
			return err
		}
		if len(changes) > 0 {
			e.log.Infof("local gateway: %d rules of IPv%d changed", len(changes), 4+2*(f.family.BitLen()/128))
		}
	}
	return nil
}

// mayHaveLocal reports whether Open vSwitch has a local gateway before its event reached the engine: it may already
// have rules. If the database cannot be read, it may; partPorts reports the error.
func (e *engine) mayHaveLocal(ctx context.Context) bool {
	reading, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	all, err := e.sw.Interfaces(reading)
	return err != nil || findPorts(all, e.helper.Bridge, e.helper.Interface).local.Name != ""
}

// syncLink reconciles the interface of a local gateway, and the routing to it.
func (e *engine) syncLink(links []localgateway.Link) error {
	state := link.State{Interface: localgateway.Port, MTU: e.config.MTU, LooseReversePath: true}
	var err error
	if state.MAC, err = net.ParseMAC(ipnet.PodMAC(links[0].Host.Addr())); err != nil {
		return fmt.Errorf("making a MAC: %w", err)
	}
	for _, l := range links {
		state.Addresses = append(state.Addresses, l.Host)
	}
	changes, err := link.Plan(state)
	if err == nil && len(changes) > 0 {
		err = link.Ensure(state)
	}
	for _, l := range links {
		if err == nil {
			var more []link.Change
			more, err = link.EnsureBypass(link.Bypass{Interface: localgateway.Port, Via: l.Router.Addr(), Mark: localgateway.Mark, Table: localgateway.Table})
			changes = append(changes, more...)
		}
	}
	for _, c := range changes {
		e.log.Infof("local gateway: %s", c)
	}
	return err
}

// guardFirst creates the chains that protect pods before the host forwards packets. syncRules maintains them.
func (e *engine) guardFirst(ctx context.Context, v view) error {
	if e.guarded || len(v.host.Pods) == 0 {
		return nil
	}
	for _, f := range e.firewall {
		if err := guardPods(ctx, f, v); err != nil {
			return err
		}
	}
	e.guarded = true
	return nil
}

// syncForwarding enables IP forwarding for the families of pods on this host:
// NodePorts, hostPorts and local gateways need it.
func (e *engine) syncForwarding(ctx context.Context, v view, links []localgateway.Link) error {
	if err := e.guardFirst(ctx, v); err != nil {
		return err
	}
	families := map[bool]netip.Addr{}
	for _, p := range v.host.Pods {
		families[p.Addr().Is6()] = p.Addr()
	}
	for _, l := range links {
		families[l.Host.Addr().Is6()] = l.Host.Addr()
	}
	for _, is6 := range []bool{false, true} {
		family, ok := families[is6]
		if !ok {
			continue
		}
		changes, err := link.EnsureForwarding(family)
		for _, c := range changes {
			e.log.Info(c)
		}
		if err != nil {
			return fmt.Errorf("NodePorts, hostPorts and local gateways need IP forwarding: %w", err)
		}
	}
	return nil
}
