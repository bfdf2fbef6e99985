// Package localend is this host's end of a local gateway: interface, routing, rules, IP forwarding.
package localend

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/localgateway"
	"ovn-k8s/lib/firewall"
	"ovn-k8s/lib/gateway/declare"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/link/tracking"
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
		rules := rulesOf(links, f)
		changes, err := f.Sync(ctx, firewall.Local, rules)
		if err != nil && !(rules == nil && f.Absent(err)) {
			return err
		}
		if len(changes) > 0 {
			n.Log.Infof("local gateway: %d rules of IPv%d changed", len(changes), 4+2*(f.Family().BitLen()/128))
		}
	}
	return nil
}

// rulesOf are the rules for the link of a packet filter's family, nil without one.
func rulesOf(links []localgateway.Link, f *firewall.Firewall) (rules firewall.Rules) {
	for _, l := range links {
		if ipnet.SameFamily(l.Router.Addr(), f.Family()) {
			rules = l
		}
	}
	return rules
}

// Plan lists the changes of Sync.
func (n *End) Plan(ctx context.Context, links []localgateway.Link) (lines []string, err error) {
	var changes []link.Change
	if len(links) > 0 {
		state, err := n.state(links)
		if err != nil {
			return nil, err
		}
		if changes, err = link.Plan(state); err != nil {
			return nil, err
		}
	}
	for _, f := range n.Firewalls {
		more, err := planBypass(links, f)
		if err != nil {
			return nil, err
		}
		changes = append(changes, more...)
	}
	lines = texts(changes)
	for _, f := range n.Firewalls {
		rules := rulesOf(links, f)
		more, err := f.Plan(ctx, firewall.Local, rules)
		if err != nil && !(rules == nil && f.Absent(err)) {
			return nil, err
		}
		for _, c := range more {
			lines = append(lines, fmt.Sprintf("%v: %s", f, c))
		}
	}
	return lines, nil
}

// planBypass lists the changes of the routing to the link of a family. Without any link, none is wanted.
func planBypass(links []localgateway.Link, f *firewall.Firewall) ([]link.Change, error) {
	if len(links) == 0 {
		return link.PlanNoBypass(f.Family(), localgateway.Table)
	}
	i := slices.IndexFunc(links, func(l localgateway.Link) bool { return ipnet.SameFamily(l.Router.Addr(), f.Family()) })
	if i < 0 {
		return nil, nil
	}
	return link.PlanBypass(bypass(links[i]))
}

func bypass(l localgateway.Link) link.Bypass {
	return link.Bypass{Interface: localgateway.Port, Via: l.Router.Addr(), To: l.Pods, Mark: localgateway.Mark, Table: localgateway.Table}
}

func texts(changes []link.Change) (lines []string) {
	for _, c := range changes {
		lines = append(lines, c.String())
	}
	return lines
}

// state is that of the interface of a local gateway.
func (n *End) state(links []localgateway.Link) (s link.State, err error) {
	s = link.State{Interface: localgateway.Port, MTU: n.MTU, LooseReversePath: true}
	if s.MAC, err = net.ParseMAC(ipnet.PodMAC(links[0].Host.Addr())); err != nil {
		return s, fmt.Errorf("making a MAC: %w", err)
	}
	for _, l := range links {
		s.Addresses = append(s.Addresses, l.Host)
	}
	return s, nil
}

// syncLink reconciles the interface of a local gateway, and the routing to it.
func (n *End) syncLink(links []localgateway.Link) error {
	state, err := n.state(links)
	if err != nil {
		return err
	}
	changes, err := link.Plan(state)
	if err == nil && len(changes) > 0 {
		err = link.Ensure(state)
	}
	for _, l := range links {
		if err == nil {
			var more []link.Change
			more, err = link.EnsureBypass(bypass(l))
			changes = append(changes, more...)
		}
	}
	for _, c := range changes {
		n.Log.Infof("local gateway: %s", c)
	}
	return err
}

// EnsureForwarding enables IP forwarding for the families of the subnets of pods on this host, and of links: NodePorts,
// hostPorts and local gateways need it. It raises the limits of connection tracking, too.
func EnsureForwarding(pods []netip.Prefix, links []localgateway.Link, limits *tracking.Limits, log *logrus.Entry) error {
	for _, family := range families(pods, links) {
		changes, err := link.EnsureForwarding(family)
		for _, c := range changes {
			log.Info(c)
		}
		if err != nil {
			return fmt.Errorf("NodePorts, hostPorts and local gateways need IP forwarding: %w", err)
		}
	}
	raised, failed := limits.Raise(tracking.Dir)
	for _, c := range raised {
		log.Info(c)
	}
	for _, err := range failed {
		log.Warn(err) // packets are forwarded with less, too
	}
	return nil
}

// PlanForwarding lists the changes of EnsureForwarding.
func PlanForwarding(pods []netip.Prefix, links []localgateway.Link) (lines []string, err error) {
	for _, family := range families(pods, links) {
		changes, err := link.PlanForwarding(family)
		if err != nil {
			return nil, err
		}
		lines = append(lines, texts(changes)...)
	}
	return lines, nil
}

// families returns an address of each family of subnets and links, IPv4 first.
func families(pods []netip.Prefix, links []localgateway.Link) (all []netip.Addr) {
	found := map[bool]netip.Addr{}
	for _, p := range pods {
		found[p.Addr().Is6()] = p.Addr()
	}
	for _, l := range links {
		found[l.Host.Addr().Is6()] = l.Host.Addr()
	}
	for _, is6 := range []bool{false, true} {
		if family, ok := found[is6]; ok {
			all = append(all, family)
		}
	}
	return all
}
