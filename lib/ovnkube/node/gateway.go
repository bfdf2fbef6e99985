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
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link"
	overlayhost "ovn-k8s/lib/overlay/host"
	"ovn-k8s/lib/overlay/uplink"
	"ovn-k8s/lib/ovnkube/options"
)

// modes are those of the topology, by those of the options.
func modes() map[string]string {
	return map[string]string{options.Shared: topology.Bridge, options.Spare: topology.Physical, options.Local: topology.Local}
}

// gateway brings the host's part of the gateway to the desired state, and returns the claim to it: nil without a gateway.
func (p *pass) gateway(ctx context.Context, h *overlayhost.Host, node *corev1.Node, subnets []netip.Prefix) (*topology.Gateway, error) {
	if p.options.Gateway.Mode == "" {
		return nil, p.leaveGateway(ctx, h)
	}
	d, err := p.decide(ctx, h, node, subnets)
	if err != nil {
		return nil, err
	}
	r := uplink.Request{Formers: p.formers, Gateway: membership.Gateway{Name: p.name(), Gateway: d.Gateway}, Helped: true, Instead: "give another gateway-interface, or gateway-mode shared"}
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
	p.leave(u.Gateway.Interface)
	if err := p.apply(changes, func() error { return u.Ensure(ctx) }); err != nil {
		return nil, err
	}
	g := u.Gateway
	g.Rampout = egress(g, subnets)
	g.Closed = !p.options.Gateway.NodePort
	return &g, nil
}

// egress returns the node's subnets of the gateway's families: the node's pods leave by their own gateway while it is up.
func egress(g topology.Gateway, subnets []netip.Prefix) (own []netip.Prefix) {
	for _, s := range subnets {
		if slices.ContainsFunc(g.IPs, func(ip netip.Prefix) bool { return ipnet.SameFamily(ip.Addr(), s.Addr()) }) {
			own = append(own, s)
		}
	}
	return own
}

// leaveGateway takes a gateway of former options back.
func (p *pass) leaveGateway(ctx context.Context, h *overlayhost.Host) error {
	u, err := uplink.Find(ctx, h, p.name())
	if err != nil || !u.Changed() {
		return err
	}
	p.leave("")
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
		switch {
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
		if err != nil || d.Move == "" {
			return d, err
		}
		if err := p.moveNIC(ctx, d.Move, d.Interface); err != nil {
			return d, err
		}
	}
	return d, fmt.Errorf("%s was moved to %s, but has addresses again: does another program configure it?", d.Move, d.Interface)
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
		if _, ok := view.Interfaces[f.NIC]; !ok {
			continue
		}
		view.Interfaces[f.NIC] = hostgateway.Interface{Addresses: f.Addresses}
		for _, via := range f.NextHops {
			view.Routes = append(view.Routes, hostgateway.Route{Interface: f.NIC, Via: via})
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
func (p *pass) leave(now string) {
	for _, b := range p.bridges {
		if b.Moved && b.Shared && b.Name != now {
			p.warn(fmt.Sprintf("bridge %s keeps what the host had on its NIC, also after a reboot, but the gateway does not use it any more: \"ovn-k8s-util bridges-to-nic %[1]s\" gives it back", b.Name))
		}
	}
}
