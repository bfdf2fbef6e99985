// Package localend is this host's end of a local gateway: interface, routing, rules, IP forwarding.
package localend

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/localgateway"
	"ovn-k8s/lib/firewall"
	"ovn-k8s/lib/gateway/declare"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
)

// An End keeps the host's end.
type End struct {
	Firewalls []*firewall.Firewall
	MTU       int
	Log       *logrus.Entry
	// MayHave reports whether Open vSwitch may have a local gateway before its event came: it may already have rules.
	MayHave func(context.Context) bool
}

// Links returns the links between this host and its local gateway, from external_ids of its port: none without one.
func Links(ids map[string]string, c config.Config) ([]localgateway.Link, error) {
	if ids == nil {
		return nil, nil
	}
	subnets, pods := c.LocalSubnets, c.ClusterSubnets
	if made, err := ipnet.ParseDisjoint(ids[names.ClusterSubnets], 0); err == nil {
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
		return nil, declare.ErrUnknown
	}
	return localgateway.Links(subnets, pods)
}

// Sync keeps this host's end of a local gateway in the state made by gateway-init,
// or removes the remains of a former one.
func (n *End) Sync(ctx context.Context, links []localgateway.Link) error {
	if len(links) > 0 {
		if err := n.syncLink(links); err != nil {
			return err
		}
	} else if n.MayHave(ctx) {
		return nil
	}
	for _, f := range n.Firewalls {
		if len(links) == 0 {
			if err := link.RemoveBypass(f.Family(), localgateway.Table); err != nil {
				return err
			}
		}
		var want firewall.Rules
		for _, l := range links {
			if ipnet.SameFamily(l.Router.Addr(), f.Family()) {
				want = l
			}
		}
		changes, err := f.Sync(ctx, firewall.Local, want)
		if err != nil {
			return err
		}
		if len(changes) > 0 {
			n.Log.Infof("local gateway: %d rules of IPv%d changed", len(changes), 4+2*(f.Family().BitLen()/128))
		}
	}
	return nil
}

// syncLink reconciles the interface of a local gateway, and the routing to it.
func (n *End) syncLink(links []localgateway.Link) error {
	state := link.State{Interface: localgateway.Port, MTU: n.MTU, LooseReversePath: true}
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
		n.Log.Infof("local gateway: %s", c)
	}
	return err
}

// EnsureForwarding enables IP forwarding for the families of the subnets of pods on this host, and of links: NodePorts,
// hostPorts and local gateways need it.
func EnsureForwarding(pods []netip.Prefix, links []localgateway.Link, log *logrus.Entry) error {
	families := map[bool]netip.Addr{}
	for _, p := range pods {
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
			log.Info(c)
		}
		if err != nil {
			return fmt.Errorf("NodePorts, hostPorts and local gateways need IP forwarding: %w", err)
		}
	}
	return nil
}
