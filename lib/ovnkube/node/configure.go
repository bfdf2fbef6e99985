package node

import (
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/hostgateway"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/overlay/cnisetup"
	"ovn-k8s/lib/overlay/uplink"
	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/ovsdb/vswitch/ovncontroller"
)

// configure writes the settings of ovn-controller, and returns the address for tunnels, "" if it is not known yet.
func (p *pass) configure(ctx context.Context, node *corev1.Node) (tunnel string, err error) {
	view, err := uplink.Look(ctx, p.sw, p.options.Gateway.NIC)
	if err != nil {
		return "", err
	}
	if tunnel = p.options.TunnelIP; tunnel == "" {
		tunnel = p.findTunnel(ctx, view, node)
	}
	want := externalIDs(p.options, p.name(), tunnel)
	if p.Server != nil {
		want[cnisetup.ConfDirID] = p.session.Config.CNIConfDir
		setup, _ := cnisetup.FindShim(p.session.Config)
		want[names.CNIFiles] = setup.Record(p.sw.ExternalIDs())
	}
	// ovn-controller connects with these files, so they come first.
	controller := p.sw.Controller()
	if err := own(ctx, p, tls(p.options), controller.PlanTLS, controller.OwnTLS); err != nil {
		return "", err
	}
	return tunnel, own(ctx, p, want, controller.PlanOwn, controller.Own)
}

// own brings settings in Open vSwitch's database to wanted values.
func own[T any](ctx context.Context, p *pass, want T, plan, do func(context.Context, T) ([]string, error)) error {
	changes, err := plan(ctx, want)
	if err != nil {
		return err
	}
	return p.apply(changes, func() error {
		_, err := do(ctx, want)
		return err
	})
}

// externalIDs are the wanted keys of a node. Addresses of unix sockets are left to the operator.
func externalIDs(o options.Options, node, tunnel string) map[string]string {
	want := map[string]string{
		"hostname":                    node,
		"ovn-encap-type":              o.EncapType,
		"ovn-remote-probe-interval":   strconv.Itoa(o.InactivityProbe),
		"ovn-openflow-probe-interval": strconv.Itoa(o.OpenflowProbe),
	}
	if tunnel != "" {
		want["ovn-encap-ip"] = tunnel
	}
	for key, remotes := range map[string][]string{"ovn-nb": o.NB, "ovn-remote": o.SB} {
		if len(remotes) > 0 && !slices.ContainsFunc(remotes, func(r string) bool { return strings.HasPrefix(r, "unix:") }) {
			want[key] = strings.Join(remotes, ",")
		}
	}
	return want
}

// tls are the files for an ssl: Southbound database, or nil. A missing CA is written by the first connection.
func tls(o options.Options) *ovncontroller.TLS {
	if !slices.ContainsFunc(o.SB, func(r string) bool { return strings.HasPrefix(r, "ssl:") }) {
		return nil
	}
	_, err := os.Stat(o.SBCACert)
	return &ovncontroller.TLS{PrivateKey: o.SBPrivateKey, Certificate: o.SBCertificate, CA: o.SBCACert, Bootstrap: os.IsNotExist(err)}
}

// lookupTimeout bounds the question for the node's name.
const lookupTimeout = 2 * time.Second

// findTunnel returns the host's address for tunnels: that of the Node, or that of the node's name. Once found, it stays
// while the host has it, and also while nothing better is known: "" if there is none.
func (p *pass) findTunnel(ctx context.Context, view hostgateway.Host, node *corev1.Node) string {
	before, _ := netip.ParseAddr(p.session.Config.EncapIP)
	if a, ok := hostgateway.TunnelAddress([]netip.Addr{before}, view); ok {
		return a.String()
	}
	if a, ok := hostgateway.TunnelAddress(internalIPs(node), view); ok {
		return a.String()
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", p.name()) // a name without an address is usual
	for i := range found {
		found[i] = found[i].Unmap()
	}
	if a, ok := hostgateway.TunnelAddress(found, view); ok {
		return a.String()
	}
	return p.session.Config.EncapIP
}

func internalIPs(node *corev1.Node) []netip.Addr {
	return hostgateway.NodeAddresses(node, corev1.NodeInternalIP)
}
