package managers

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/link/ifstate"
)

// A layout is the input of network configurations for a bridge. The bridge itself is in Open vSwitch's database and
// comes up with ovs-vswitchd; only its addresses, routes and settings are configured.
type layout struct {
	Bridge
	addresses    []ifstate.Record // with infinite lifetimes
	dhcp4, dhcp6 bool             // there are others from DHCP
	ra           bool             // router advertisements are accepted
	metrics      map[bool]uint32  // of the default routes that DHCP for IPv4 (false) and router advertisements (true) bring
	ways         []ifstate.Way
	notes        []string // about routes and rules that are not, or not wholly, configured
	host
}

// layout is the layout of b on a host.
func (b Bridge) layout(h host) layout {
	l := layout{Bridge: b, ra: b.Settings[ifstate.AcceptRA] == "2", metrics: map[bool]uint32{}, host: h}
	leased := map[netip.Addr]bool{}
	for _, r := range b.Records {
		switch {
		case r.Kind == ifstate.Route && r.Is6() && r.Dynamic():
			l.ra = true
		case r.Kind != ifstate.Address || r.Automatic():
		case r.Lasts():
			l.addresses = append(l.addresses, r)
		default:
			leased[r.Prefix().Addr()] = true
			l.dhcp4 = l.dhcp4 || !r.Is6()
			l.dhcp6 = l.dhcp6 || r.Is6() && r.Prefix().IsSingleIP()
			l.ra = l.ra || r.Is6()
		}
	}
	var left []ifstate.Way
	for _, r := range b.Records {
		if r.Kind == ifstate.Rule && r.Mentions(b.NIC) {
			l.notes = append(l.notes, fmt.Sprintf("Keep your rule %s, with %s in place of %s.", r.Text, b.Name, b.NIC))
		}
		if r.Default() && r.Dynamic() && r.Mentions("") {
			if _, known := l.metrics[r.Is6()]; !known { // the first one is used
				l.metrics[r.Is6()] = r.Metric()
			}
		}
		w, ok := r.Way()
		if ok && l.dhcp4 && r.Default() && !r.Is6() {
			left = append(left, w)
		}
		if !ok || l.dhcp4 && r.Default() && !r.Is6() { // DHCP brings its default route
			continue
		}
		if leased[w.Source] {
			w.Source = netip.Addr{} // the next lease may be for another address
		}
		if !w.Whole || w.OnLink && len(w.Via) > 1 {
			l.notes = append(l.notes, fmt.Sprintf("Route %s has attributes that are missing above: add them.", r.Text))
		}
		l.ways = append(l.ways, w)
	}
	if _, known := l.metrics[false]; !known && len(left) > 0 { // dhclient does not mark its route
		l.metrics[false] = left[0].Metric
	}
	if slices.ContainsFunc(l.ways, func(w ifstate.Way) bool { return w.Table != ifstate.Main }) {
		l.notes = append(l.notes, "Keep your rules (ip rule) that lead to other tables.")
	}
	if l.dhcp4 || l.dhcp6 {
		l.dns = resolver{} // DHCP brings DNS servers
	}
	return l
}

// create is the command that creates the bridge if it is missing, as after the loss of the database.
func (l layout) create() string {
	out := "ovs-vsctl --may-exist add-br " + l.Name + " -- set Bridge " + l.Name
	if l.Datapath != "" {
		out += " datapath_type=" + l.Datapath
	}
	return out + fmt.Sprintf(` fail_mode=standalone other_config:hwaddr=\"%s\" external_ids:bridge-id=%s -- set Interface %s mtu_request=%d -- --may-exist add-port %s %s`,
		l.MAC, l.Name, l.Name, l.MTU, l.Name, l.NIC)
}

// mute lists sysctls that keep the kernel from answering on the NIC, with "/" for ".".
func (l layout) mute() []string {
	var all []string
	for _, name := range []string{ifstate.ReversePath, ifstate.IgnoreARP, ifstate.DisableIPv6} {
		all = append(all, "net/"+strings.Replace(name, "%", l.NIC, 1)+"="+l.PortSettings[name])
	}
	return all
}

// sysctls is the file for setting mute at boot.
func sysctls(bridge string) string { return "/etc/sysctl.d/90-" + bridge + ".conf" }

// arguments formats the arguments of ip route for the bridge.
func (l layout) arguments(w ifstate.Way) string {
	hop := func(via netip.Addr) string {
		if w.Mixed() {
			return " via inet6 " + via.String()
		}
		return " via " + via.String()
	}
	out := w.To.String()
	if len(w.Via) == 1 {
		out += hop(w.Via[0])
	}
	if w.Metric != 0 {
		out += fmt.Sprint(" metric ", w.Metric)
	}
	if w.Table != ifstate.Main {
		out += fmt.Sprint(" table ", w.Table)
	}
	if w.Source.IsValid() {
		out += " src " + w.Source.String()
	}
	if w.MTU != 0 {
		out += fmt.Sprint(" mtu ", w.MTU)
	}
	end := " dev " + l.Name
	if w.OnLink {
		end += " onlink"
	}
	if len(w.Via) < 2 {
		return out + end
	}
	for _, via := range w.Via {
		out += " nexthop" + hop(via) + end
	}
	return out
}

// usualMTU is the MTU of Ethernet, and of a NIC without configuration.
const usualMTU = 1500

// jumbo reports whether the MTU of the NIC has to be configured. Open vSwitch's database has only that of the bridge.
func (l layout) jumbo() bool { return l.MTU != usualMTU }

// made reports whether the host's configuration makes the NIC, as a bond or a VLAN, and does not find it.
func (l layout) made() bool {
	return !slices.Contains([]string{"", "device", "veth", "tuntap"}, l.Kind)
}

// A recipe names words of the configuration of a kind of interface.
type recipe struct{ ifupdown, scripts, section, keys string }

// recipe returns the words for the kind of the NIC.
func (l layout) recipe() recipe {
	switch l.Kind {
	case "bond":
		return recipe{"bond-slaves and bond-mode", "BONDING_OPTS", "bonds", "interfaces and parameters"}
	case "bridge":
		return recipe{"bridge_ports", "HWADDR", "bridges", "interfaces and parameters"}
	case "vlan":
		return recipe{"vlan-raw-device", "VLAN and PHYSDEV", "vlans", "id and link"}
	}
	return recipe{"pre-up", "HWADDR", "ethernets", "match and set-name"}
}
