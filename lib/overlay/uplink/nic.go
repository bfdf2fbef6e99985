package uplink

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/hostgateway"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/link/aged"
	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/overlay/host"
	"ovn-k8s/lib/overlay/progress"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A former is the configuration of a NIC before it became a gateway's.
type former struct {
	Records []ifstate.Record `json:"records,omitempty"`
	NoIPv6  bool             `json:"no_ipv6,omitempty"` // IPv6 was off
	// ReversePath was its rp_filter. Earlier releases did not note it.
	ReversePath string `json:"rp_filter,omitempty"`
	// Addresses are in the place of Records if an earlier release wrote this.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
}

// claim is the part of f outside of Records.
func (f former) claim(nic string) link.Claim {
	return link.Claim{Interface: nic, NoIPv6: f.NoIPv6, ReversePath: f.ReversePath, Addresses: f.Addresses}
}

// formerOf returns the present configuration of a NIC, as JSON.
func formerOf(nic string, is *link.NIC) (text string, err error) {
	f := former{NoIPv6: is.NoIPv6, ReversePath: is.ReversePath}
	i, err := ifstate.Find(nic)
	if err == nil {
		f.Records, err = ifstate.Lasting(i)
	}
	if err != nil {
		return "", err
	}
	return f.text(nic)
}

// text is the configuration of a NIC as JSON.
func (f former) text(nic string) (string, error) {
	b, err := json.Marshal(f)
	if err != nil {
		return "", fmt.Errorf("noting what %s has: %w", nic, err)
	}
	return string(b), nil
}

// findFormer finds the NICs of the gateway and their former configuration.
func findFormer(ctx context.Context, sw *vswitch.Switch, gateway string) (map[string]former, error) {
	found := map[string]former{}
	all, err := sw.Interfaces(ctx)
	for _, i := range all {
		if i.ExternalIDs[names.GatewayTag] != gateway || i.Type != "" {
			continue
		}
		var f former
		if text := i.ExternalIDs[names.FormerNIC]; text != "" {
			if err := json.Unmarshal([]byte(text), &f); err != nil {
				return nil, fmt.Errorf("reading external_ids:%s of Interface %s: %w: correct it, or remove the key to go on without what the NIC had", names.FormerNIC, i.Name, err)
			}
		}
		found[i.Name] = f
	}
	return found, err
}

// A Former is a NIC given to a gateway, with what the host had on it before.
type Former struct {
	NIC       string
	Addresses []hostgateway.Address // the oldest ones of each family first
	NextHops  []netip.Addr          // of default routes

	record former
}

// Formers returns the NICs that a gateway on this host has for itself.
func Formers(ctx context.Context, h *host.Host, gateway string) ([]Former, error) {
	found, err := findFormer(ctx, h.Switch, gateway)
	var all []Former
	for _, name := range slices.Sorted(maps.Keys(found)) {
		f := Former{NIC: name, record: found[name]}
		for _, a := range found[name].Addresses {
			f.Addresses = append(f.Addresses, hostgateway.Address{Prefix: a})
		}
		for _, r := range found[name].Records {
			switch {
			case r.Kind == ifstate.Address && r.Usable() && !r.Prefix().Addr().IsLinkLocalUnicast():
				f.Addresses = append(f.Addresses, aged.Address(r.Prefix(), ifstate.Flags(r)))
			case r.Default():
				f.NextHops = append(f.NextHops, r.Gateways()...)
			}
		}
		all = append(all, f)
	}
	return all, err
}

// restore gives a NIC its former configuration. A missing NIC is no error.
func (f former) restore(nic string) error {
	if err := link.Reclaim(f.claim(nic)); err != nil {
		return err
	}
	i, err := ifstate.Find(nic)
	if errors.Is(err, ifstate.ErrNone) {
		return nil
	}
	return errors.Join(err, ifstate.Restore(f.Records, i))
}

// plan lists the changes of restore.
func (f former) plan(nic string) ([]string, error) {
	changes, err := link.PlanReclaim(f.claim(nic))
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, c := range changes {
		lines = append(lines, c.String())
	}
	i, err := ifstate.Find(nic)
	if errors.Is(err, ifstate.ErrNone) {
		return nil, nil
	}
	lost, err2 := ifstate.Lost(f.Records, i)
	for _, r := range lost {
		lines = append(lines, fmt.Sprintf("add %s %s to %s", r.Kind, r.Text, nic))
	}
	return lines, errors.Join(err, err2)
}

// dadTimeout bounds the wait for duplicate address detection: the kernel takes one or two seconds.
const dadTimeout = 5 * time.Second

// inspect returns the state of an interface after duplicate address detection. A missing interface and the loopback
// interface are errors.
func inspect(ctx context.Context, report *progress.Reporter, name string) (*link.NIC, error) {
	err := report.Stage(ctx, "waiting for duplicate address detection on "+name, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, dadTimeout)
		defer cancel()
		return link.AwaitDAD(ctx, name)
	})
	if err != nil {
		return nil, err
	}
	nic, err := link.Inspect(name)
	switch {
	case err != nil:
		return nil, err
	case nic == nil:
		return nil, fmt.Errorf("interface %s not found: list interfaces with ip link", name)
	case nic.Loopback:
		return nil, fmt.Errorf("%s is the loopback interface: give one that leads outside", name)
	}
	return nic, nil
}

// formerOf returns the configuration of the gateway's NIC before, as JSON: the known one, or else the present one.
func (u *Uplink) formerOf(nic *link.NIC, known []Former) (string, error) {
	for _, f := range known {
		if f.NIC == u.Gateway.Interface {
			return f.record.text(f.NIC)
		}
	}
	return formerOf(u.Gateway.Interface, nic)
}

// planNIC plans a NIC for OVN alone.
func (u *Uplink) planNIC(ctx context.Context, known []Former) error {
	g := &u.Gateway
	nic, err := inspect(ctx, u.host.Report, g.Interface)
	if err != nil {
		return err
	}
	if nic.Master != "" && nic.Master != "ovs-system" {
		return fmt.Errorf("%s is a port of %s: give that, or take the NIC out of it", g.Interface, nic.Master)
	}
	all, err := u.host.Switch.Interfaces(ctx)
	if err != nil {
		return err
	}
	for _, i := range all {
		if i.Name == g.Interface && i.Bridge != names.IntegrationBridge {
			return fmt.Errorf("%s is a port of bridge %s already: %s", g.Interface, i.Bridge, cmp.Or(u.instead, "give --bridge-interface="+i.Bridge+" to share it"))
		}
	}
	if g.MAC, err = link.MAC(g.Interface); err != nil {
		return err
	}
	u.port.NIC = g.Interface
	if _, again := u.former[g.Interface]; again {
		return nil
	}
	if u.port.Former, err = u.formerOf(nic, known); err != nil {
		return err
	}
	return u.hasAddresses(nic)
}

// Guard refuses to take a NIC needed by the host itself.
func (u *Uplink) Guard() error {
	if u.port.NIC == "" {
		return nil
	}
	if _, again := u.former[u.port.NIC]; again {
		return nil
	}
	err := Needed(u.host.Config, u.port.NIC, u.port.NIC, cmp.Or(u.instead, "give another NIC, share this one by --bridge-interface, or give --force"))
	if err == nil || !u.force {
		return err
	}
	u.host.Report.Warn("%v", err)
	return nil
}

// Needed is an error if the host needs a NIC for itself. Its addresses are those of an interface: the NIC's own, or its bridge's.
func Needed(c config.Config, nic, name, instead string) error {
	var needed []string
	i, err := link.Inspect(name)
	if err != nil {
		return err
	}
	if i != nil && i.Default {
		needed = append(needed, "the host's default route")
	}
	for _, what := range peers(c) {
		carries, err := link.Carries(name, what.addr)
		if err != nil {
			return err
		}
		if carries && !slices.Contains(needed, what.name) {
			needed = append(needed, what.name)
		}
	}
	if len(needed) == 0 {
		return nil
	}
	return fmt.Errorf("%s carries %s, and would lose all its addresses: %s", nic, strings.Join(needed, " and "), instead)
}

// A peer is an address needed by this host.
type peer struct {
	name string
	addr netip.Addr
}

// peers lists the addresses that OVN on this host needs.
func peers(c config.Config) []peer {
	var all []peer
	add := func(name, text string) {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, peer{name, a})
		}
	}
	for _, a := range c.TunnelIPs() {
		add("tunnels (ovn-encap-ip "+a.String()+")", a.String())
	}
	south, _ := config.ParseRemotes(c.OVNRemote) // ovn-controller reports a bad one
	for _, r := range slices.Concat(c.NB, south) {
		_, rest, _ := strings.Cut(r, ":")
		if host, _, err := net.SplitHostPort(rest); err == nil {
			add("the connection to OVN's databases", host)
		}
	}
	return all
}
