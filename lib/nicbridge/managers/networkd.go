package managers

import (
	"fmt"
	"strings"

	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/platform"
)

// netplanText is for netplan(5). The bridge is declared as an existing interface: bridges created by netplan in Open
// vSwitch have no datapath_type.
func netplanText(l layout) []string {
	lines := []string{"network:", "  version: 2", "  renderer: networkd", "  ethernets:", "    " + l.NIC + ": {dhcp4: false, dhcp6: false, accept-ra: false, link-local: [], optional: true}",
		"    " + l.Name + ":", fmt.Sprintf("      dhcp4: %v", l.dhcp4), fmt.Sprintf("      dhcp6: %v", l.dhcp6), fmt.Sprintf("      accept-ra: %v", l.ra)}
	if len(l.addresses) > 0 {
		lines = append(lines, "      addresses:")
	}
	for _, a := range l.addresses {
		lines = append(lines, fmt.Sprintf("        - %q", a.Prefix()))
	}
	if len(l.dns.servers) > 0 {
		quoted := fmt.Sprintf("%q", append(l.dns.family(false), l.dns.family(true)...))
		lines = append(lines, fmt.Sprintf("      nameservers: {addresses: %s, search: [%s]}", strings.ReplaceAll(quoted, " ", ", "), strings.Join(l.dns.search, ", ")))
	}
	var routes, several []string
	for _, w := range l.ways {
		if len(w.Via) > 1 {
			several = append(several, l.networkdRoute(w)...)
			continue
		}
		route := fmt.Sprintf("        - {to: %q", w.To)
		if len(w.Via) > 0 {
			route += fmt.Sprintf(", via: %q", w.Via[0])
		} else {
			route += ", scope: link"
		}
		if w.Metric != 0 {
			route += fmt.Sprintf(", metric: %d", w.Metric)
		}
		if w.Table != ifstate.Main {
			route += fmt.Sprintf(", table: %d", w.Table)
		}
		routes = append(routes, route+"}")
	}
	if len(routes) > 0 {
		lines = append(append(lines, "      routes:"), routes...)
	}
	if len(several) > 0 {
		lines = append(lines, "# "+platform.Networkd.Config+"/10-netplan-"+l.Name+".network.d/nexthops.conf, since netplan has no routes with several next hops:")
		lines = append(lines, several...)
	}
	return append(append(lines, "# "+l.sysctls()), l.mute()...)
}

// networkdText is for systemd.network(5).
func networkdText(l layout) []string {
	lines := []string{"# " + platform.Networkd.Config + "/05-" + l.NIC + ".network", "[Match]", "Name=" + l.NIC, "[Link]", "RequiredForOnline=no", "[Network]", "LinkLocalAddressing=no", "IPv6AcceptRA=no",
		"# " + platform.Networkd.Config + "/05-" + l.Name + ".network", "[Match]", "Name=" + l.Name, "[Network]"}
	switch {
	case l.dhcp4 && l.dhcp6:
		lines = append(lines, "DHCP=yes")
	case l.dhcp4:
		lines = append(lines, "DHCP=ipv4")
	case l.dhcp6:
		lines = append(lines, "DHCP=ipv6")
	}
	lines = append(lines, fmt.Sprintf("IPv6AcceptRA=%v", l.ra))
	for _, a := range l.addresses {
		lines = append(lines, "Address="+a.Prefix().String())
	}
	for _, a := range l.dns.servers {
		lines = append(lines, "DNS="+a.String())
	}
	if len(l.dns.search) > 0 {
		lines = append(lines, "Domains="+strings.Join(l.dns.search, " "))
	}
	for _, w := range l.ways {
		lines = append(lines, l.networkdRoute(w)...)
	}
	return append(append(lines, "# "+l.sysctls()), l.mute()...)
}

// networkdRoute is the section for a route.
func (l layout) networkdRoute(w ifstate.Way) []string {
	lines := []string{"[Route]", "Destination=" + w.To.String()}
	for _, via := range w.Via {
		if len(w.Via) > 1 {
			lines = append(lines, "MultiPathRoute="+via.String()+"@"+l.Name)
		} else {
			lines = append(lines, "Gateway="+via.String())
		}
	}
	if len(w.Via) == 0 && w.To.Addr().Is4() {
		lines = append(lines, "Scope=link")
	}
	if w.Metric != 0 {
		lines = append(lines, fmt.Sprint("Metric=", w.Metric))
	}
	if w.Table != ifstate.Main {
		lines = append(lines, fmt.Sprint("Table=", w.Table))
	}
	return lines
}
