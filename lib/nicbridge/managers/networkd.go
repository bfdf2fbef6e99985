package managers

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/platform"
)

// netplanText is for netplan(5). The bridge is declared as an existing interface: bridges created by netplan in Open
// vSwitch have no datapath_type.
func netplanText(l layout) []string {
	if id := l.definition(); id != l.NIC {
		return append([]string{fmt.Sprintf("# Leave the definition %s in %s, which may be that of other interfaces, too. These files have precedence over it:", id, platform.Netplan.Config)}, networkdText(l)...)
	}
	lines := []string{fmt.Sprintf("# Keep what makes or matches %s in its definition, such as %s, and no addresses, routes, name servers and DHCP:", l.NIC, l.recipe().keys), "network:", "  version: 2", "  renderer: networkd"}
	port := "    " + l.NIC + ": {dhcp4: false, dhcp6: false, accept-ra: false, link-local: [], optional: true"
	if l.jumbo() {
		port += fmt.Sprint(", mtu: ", l.MTU)
	}
	if section := l.recipe().section; section != "ethernets" {
		lines = append(lines, "  "+section+":", port+"}", "  ethernets:")
	} else {
		lines = append(lines, "  ethernets:", port+"}")
	}
	lines = append(lines, "    "+l.Name+":", fmt.Sprintf("      dhcp4: %v", l.dhcp4), fmt.Sprintf("      dhcp6: %v", l.dhcp6), fmt.Sprintf("      accept-ra: %v", l.ra))
	client, rest := l.netplanClient()
	lines = append(lines, client...)
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
		if len(w.Via) > 1 || w.Mixed() {
			several = append(several, l.networkdRoute(w)...)
			continue
		}
		route := fmt.Sprintf("        - {to: %q", w.To)
		if len(w.Via) > 0 {
			route += fmt.Sprintf(", via: %q", w.Via[0])
		} else {
			route += ", scope: link"
		}
		if w.OnLink {
			route += ", on-link: true"
		}
		if w.Source.IsValid() {
			route += fmt.Sprintf(", from: %q", w.Source)
		}
		if w.MTU != 0 {
			route += fmt.Sprint(", mtu: ", w.MTU)
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
	dropIns := "# " + netplanDropIns(l.Name) + "/"
	if len(rest) > 0 {
		lines = append(append(lines, dropIns+"client.conf, since netplan has no words for these:"), sectionsOf(rest)...)
	}
	if len(several) > 0 {
		lines = append(lines, dropIns+"nexthops.conf, since netplan has no routes with several next hops, or with those of the other family:")
		lines = append(lines, several...)
	}
	return append(append(lines, "# "+sysctls(l.Name)), l.mute()...)
}

// netplanDropIns is the directory with the bridge's settings that netplan has no words for.
func netplanDropIns(bridge string) string {
	return platform.Networkd.Config + "/10-netplan-" + bridge + ".network.d"
}

// networkdFile is the .network file of the bridge.
func networkdFile(bridge string) string {
	return platform.Networkd.Config + "/05-" + bridge + ".network"
}

// networkdText is for systemd.network(5).
func networkdText(l layout) []string {
	lines := l.networkdPort()
	lines = append(lines, "# "+networkdFile(l.Name), "[Match]", "Name="+l.Name, "[Network]")
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
	lines = append(lines, sectionsOf(l.clientSettings())...)
	return append(append(lines, "# "+sysctls(l.Name)), l.mute()...)
}

// networkdPort is the .network file of the NIC. It repeats lines of the former one and outranks it.
func (l layout) networkdPort() []string {
	former := filepath.Base(l.file)
	file := "05-" + l.NIC + ".network"
	if l.file != "" && former < file {
		file = "0-" + l.NIC + ".network" // comes before all that begin with two digits
	}
	lines := []string{"# " + platform.Networkd.Config + "/" + file}
	if l.file != "" && former != file {
		lines = append(lines, fmt.Sprintf("# This has precedence over %s, with lines from there that are about the link itself.", l.file))
	}
	if l.made() {
		lines = append(lines, fmt.Sprintf("# Keep the .netdev file of %s, and the .network files of interfaces below it.", l.NIC))
	}
	link, network, sections := kept(l.text)
	lines = append(lines, "[Match]", "Name="+l.NIC, "[Link]", "RequiredForOnline=no")
	if l.jumbo() {
		lines = append(lines, fmt.Sprint("MTUBytes=", l.MTU))
	}
	lines = append(append(lines, link...), "[Network]", "LinkLocalAddressing=no", "IPv6AcceptRA=no")
	return append(append(lines, network...), sections...)
}

// Of a .network file, these lines are kept for a port: those of the section Link except ownKeys, those of the section
// Network about interfaces on top of it and its carrier, and sections that need no address.
var (
	ownKeys      = []string{"RequiredForOnline=", "RequiredFamilyForOnline=", "MTUBytes=", "Unmanaged="}
	networkKeys  = []string{"VLAN=", "MACVLAN=", "MACVTAP=", "IPVLAN=", "IPVTAP=", "VXLAN=", "MACsec=", "Tunnel=", "Xfrm=", "BindCarrier=", "ConfigureWithoutCarrier=", "IgnoreCarrierLoss="}
	keptSections = []string{"[RoutingPolicyRule]", "[SR-IOV]"}
)

// kept returns these lines of a .network file with its drop-ins.
func kept(text string) (link, network, sections []string) {
	for _, s := range settings(text) {
		switch {
		case slices.Contains(keptSections, s.section):
			sections = append(sections, s.line)
		case s.key == "":
		case s.section == "[Link]" && !slices.Contains(ownKeys, s.key):
			link = append(link, s.line)
		case s.section == "[Network]" && slices.Contains(networkKeys, s.key):
			network = append(network, s.line)
		}
	}
	return link, network, sections
}

// definition is the ID of the NIC's definition in netplan's files.
func (l layout) definition() string {
	if id, ok := strings.CutPrefix(l.file, netplanFiles); ok {
		return strings.TrimSuffix(id, ".network")
	}
	return l.NIC
}

// netplanFiles is the beginning of the names of netplan's files for systemd-networkd.
const netplanFiles = "/run/systemd/network/10-netplan-"

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
	if w.OnLink && len(w.Via) == 1 {
		lines = append(lines, "GatewayOnLink=yes")
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
	if w.Source.IsValid() {
		lines = append(lines, "PreferredSource="+w.Source.String())
	}
	if w.MTU != 0 {
		lines = append(lines, fmt.Sprint("MTUBytes=", w.MTU))
	}
	return lines
}
