package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/hostgateway"
	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/nicbridge"
	overlayhost "ovn-k8s/lib/overlay/host"
	"ovn-k8s/lib/overlay/uplink"
	"ovn-k8s/lib/ovnkube/options"
)

// modes are those of the topology, by those of the options.
func modes() map[string]string {
	return map[string]string{options.Shared: topology.Bridge, options.Spare: topology.Physical, options.Local: topology.Local}
}

// instead is what to do about a NIC that the host needs.
const instead = "give another gateway-interface, or gateway-mode shared"

// gateway brings the host's part of the gateway to the desired state, and returns the claim to it: nil without a gateway.
func (p *pass) gateway(ctx context.Context, h *overlayhost.Host, node *corev1.Node, subnets []netip.Prefix) (*topology.Gateway, error) {
	if p.options.Gateway.Mode == "" {
		return nil, p.leaveGateway(ctx, h)
	}
	d, err := p.decide(ctx, h, node, subnets)
	if err != nil {
		return nil, err
	}
	r := uplink.Request{Formers: p.formers, Gateway: membership.Gateway{Name: p.name(), Gateway: d.Gateway}, Helped: true, Instead: instead}
	r.Subnets = p.ranges()
	u, err := uplink.New(ctx, h, r)
	if err == nil {
		err = u.Guard()
	}
	h.Report.Continue()
	if err != nil {
		return nil, err
	}
	changes, err := u.Changes(ctx)
	if err != nil {
		return nil, err
	}
	handover{p}.leave(u.Gateway.Interface)
	if err := p.apply(changes, func() error { return u.Ensure(ctx) }); err != nil {
		return nil, err
	}
	g := u.Gateway
	g.Rampout = hostgateway.Egress(g, subnets)
	g.Closed = !p.options.Gateway.NodePort
	return &g, nil
}

// leaveGateway takes a gateway of former options back.
func (p *pass) leaveGateway(ctx context.Context, h *overlayhost.Host) error {
	u, err := uplink.Find(ctx, h, p.name())
	if err != nil || !u.Changed() {
		return err
	}
	handover{p}.leave("")
	change := fmt.Sprintf("gateway %s: no gateway-mode is given any more, it is taken back", p.name())
	return p.apply([]string{change}, func() error { return u.Disconnect(ctx) })
}

// decide computes the gateway, and moves its NIC to a bridge if necessary.
func (p *pass) decide(ctx context.Context, h *overlayhost.Host, node *corev1.Node, subnets []netip.Prefix) (d hostgateway.Decision, err error) {
	o, err := p.gatewayOptions()
	if err != nil {
		return d, err
	}
	for range 2 { // the second time after a move
		view, err := uplink.Look(ctx, p.sw, p.options.Gateway.NIC)
		if err != nil {
			return d, err
		}
		view.Pods, view.Node = subnets, hostgateway.NodeAddresses(node, corev1.NodeInternalIP, corev1.NodeExternalIP)
		if view.Present, err = uplink.Present(ctx, p.sw, p.name(), annotations(node)); err != nil {
			return d, err
		}
		released, err := handover{p}.release(ctx, h, o, &view)
		switch {
		case err != nil:
		case released:
			return p.decide(ctx, h, node, subnets)
		case o.Mode == topology.Physical:
			err = p.addFormer(ctx, h, &o, &view)
		case o.Mode == topology.Bridge && o.Interface == "":
			// A default route of another NIC, and a lost address or route of the present one, move nothing.
			o.Interface, err = uplink.SharedBridge(ctx, p.sw, p.name())
		}
		if err != nil {
			return d, err
		}
		d, err = hostgateway.Decide(o, view)
		for _, text := range d.LeftOut {
			p.warn(text)
		}
		if err != nil || d.Move == "" {
			return d, err
		}
		if err := p.moveNIC(ctx, d.Move, d.Interface); err != nil {
			return d, err
		}
	}
	return d, fmt.Errorf("%s was moved to %s, but has addresses again: does another program configure it?", d.Move, d.Interface)
}

// A handover is the change of the gateway's NIC, from a pass.
type handover struct{ *pass }

// release takes the NIC of the options back from a gateway of another mode, if it will do as what the host then has there. It
// reports whether it did.
func (p handover) release(ctx context.Context, h *overlayhost.Host, o hostgateway.Options, view *hostgateway.Host) (done bool, err error) {
	bridge, there, err := p.releases(ctx, h, o, view)
	if err != nil || !there {
		return false, err
	}
	o.Mode = topology.Physical // decides without a move
	if _, err := hostgateway.Decide(o, *view); err != nil {
		return false, err
	}
	u, err := uplink.Find(ctx, h, p.name())
	if err != nil {
		return false, err
	}
	change := fmt.Sprintf("gateway %s: %s is taken back, for gateway-mode %s", p.name(), o.Interface, p.options.Gateway.Mode)
	err = p.apply([]string{change}, func() error {
		if err := u.Disconnect(ctx); err != nil || bridge == "" {
			return err
		}
		p.bridges = nil
		move := p.move()
		move.Names = []string{bridge}
		return nicbridge.Move(ctx, nicbridge.ToNIC, move)
	})
	if err == nil && p.found != nil {
		err = waiting("what follows depends on that")
	}
	return err == nil, err
}

// releases reports whether a gateway of another mode has the NIC of the options: in br-int, or in a bridge, which is returned.
// Then view becomes that of the host without it.
func (p handover) releases(ctx context.Context, h *overlayhost.Host, o hostgateway.Options, view *hostgateway.Host) (bridge string, there bool, err error) {
	switch o.Mode {
	case topology.Bridge:
		formers, err := uplink.Formers(ctx, h, p.name())
		i := slices.IndexFunc(formers, func(f uplink.Former) bool { return f.NIC == o.Interface })
		if err != nil || i < 0 {
			return "", false, err
		}
		view.Release(o.Interface, formers[i].Addresses, formers[i].NextHops)
		return "", true, nil
	case topology.Physical:
		for _, b := range p.bridges {
			if b.Moved && slices.Contains(b.NICs, o.Interface) {
				view.Unmove(o.Interface, b.Name)
				return b.Name, true, uplink.Needed(h.Config, o.Interface, b.Name, instead)
			}
		}
	}
	return "", false, nil
}

func annotations(node *corev1.Node) map[string]string {
	if node == nil {
		return nil
	}
	return node.Annotations
}

// gatewayOptions returns the options of the gateway, with the kernel's name of its interface.
func (p *pass) gatewayOptions() (hostgateway.Options, error) {
	g := p.options.Gateway
	o := hostgateway.Options{Mode: modes()[g.Mode], Interface: g.NIC, NextHops: g.NextHops, VLAN: g.VLAN}
	if g.NIC == "" {
		return o, nil
	}
	var err error
	o.Interface, err = link.KernelName(g.NIC)
	return o, err
}

// addFormer adds what the host had on a NIC before it was given to the gateway. If another program took the NIC out of Open
// vSwitch, that is as this role saw it last.
func (p *pass) addFormer(ctx context.Context, h *overlayhost.Host, o *hostgateway.Options, view *hostgateway.Host) error {
	formers, err := uplink.Formers(ctx, h, p.name())
	if err != nil {
		return err
	}
	if len(formers) > 0 {
		p.formers = formers
	}
	p.formers = slices.DeleteFunc(p.formers, func(f uplink.Former) bool { // NICs given back by hand
		i := view.Interfaces[f.NIC]
		return i.Bridge == "" && len(i.Addresses) > 0
	})
	for _, f := range p.formers {
		if o.Interface == "" {
			o.Interface = f.NIC
		}
		if _, ok := view.Interfaces[f.NIC]; ok {
			view.Release(f.NIC, f.Addresses, f.NextHops)
		}
	}
	return nil
}

// returnNIC moves NICs to their bridges again, as after a reboot, and reports DHCP leases of the bridges that nobody renews. The
// NIC of a former gateway moves, too: the host's own configuration gives it the addresses, and nothing passes there. None of this
// needs the Node or an API server, because the host may reach none without its NIC.
func (p *pass) returnNIC(ctx context.Context) error {
	if err := p.recoverMoves(ctx); err != nil {
		return err
	}
	var err error
	if p.bridges, err = uplink.HostBridges(ctx, p.sw, p.name()); err != nil {
		return err
	}
	view, err := uplink.Look(ctx, p.sw, p.options.Gateway.NIC)
	if err != nil {
		return err
	}
	for _, b := range p.bridges {
		if nic := view.Displaced(b.Name); nic != "" {
			if err := p.moveNIC(ctx, nic, b.Name); err != nil {
				return err
			}
			continue
		}
		warn := func(text string) {
			p.tell("LeaseNotRenewed", text)
			p.warn(text)
		}
		if err := p.leases.Check(b.Name, b.NICs, warn, func(text string) { p.log.Info(text) }); err != nil {
			p.warn(fmt.Sprintf("bridge %s: its DHCP leases are not watched: %v", b.Name, err)) // the gateway needs none of this
		}
	}
	return nil
}

// leave warns if the gateway with an interface leaves a bridge with the host's addresses.
func (p handover) leave(now string) {
	for _, b := range p.bridges {
		if b.Moved && b.Shared && b.Name != now {
			p.warn(fmt.Sprintf("bridge %s keeps what the host had on its NIC, also after a reboot, but the gateway does not use it any more: \"ovn-k8s-util bridges-to-nic %[1]s\" gives it back", b.Name))
		}
	}
}
