package managers

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/platform"
)

// A layout is the input of network configurations for a bridge. The bridge itself is in Open vSwitch's database and
// comes up with ovs-vswitchd; only its addresses, routes and settings are configured.
type layout struct {
	Bridge
	addresses    []ifstate.Record // with infinite lifetimes
	dhcp4, dhcp6 bool             // there are others from DHCP
	ra           bool             // router advertisements are accepted
	ways         []ifstate.Way
	dns          resolver
}

func (b Bridge) layout() layout {
	l := layout{Bridge: b, ra: b.Settings[ifstate.AcceptRA] == "2", dns: readResolver(resolvers)}
	for _, r := range b.Records {
		switch {
		case r.Kind == ifstate.Route && r.Is6() && r.Dynamic():
			l.ra = true
		case r.Kind != ifstate.Address || r.Automatic():
		case r.Lasts():
			l.addresses = append(l.addresses, r)
		case !r.Is6():
			l.dhcp4 = true
		case r.Prefix().IsSingleIP():
			l.dhcp6, l.ra = true, true
		default:
			l.ra = true
		}
	}
	for _, r := range b.Records {
		if w, ok := r.Way(); ok && !(l.dhcp4 && r.Default() && !r.Is6()) { // DHCP brings its default route
			l.ways = append(l.ways, w)
		}
	}
	if l.dhcp4 || l.dhcp6 {
		l.dns = resolver{} // DHCP brings DNS servers
	}
	return l
}

// A resolver is the content of a resolv.conf(5).
type resolver struct {
	servers []netip.Addr
	search  []string
}

// resolvers are files of that format. The second belongs to systemd-resolved; the first then names only its local
// address.
var resolvers = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// readResolver reads the first file naming a server on another host.
func readResolver(files []string) resolver {
	for _, file := range files {
		text, _ := os.ReadFile(file) // a missing file has no servers
		var r resolver
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			switch {
			case len(words) < 2:
			case words[0] == "nameserver":
				if a, err := netip.ParseAddr(words[1]); err == nil && !a.IsLoopback() {
					r.servers = append(r.servers, a)
				}
			case words[0] == "search":
				r.search = words[1:]
			}
		}
		if len(r.servers) > 0 {
			return r
		}
	}
	return resolver{}
}

// family returns the servers of one family.
func (r resolver) family(is6 bool) []string {
	var all []string
	for _, a := range r.servers {
		if a.Is6() == is6 {
			all = append(all, a.String())
		}
	}
	return all
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
func (l layout) sysctls() string { return "/etc/sysctl.d/90-" + l.Name + ".conf" }

// arguments formats the arguments of ip route for the bridge.
func (l layout) arguments(w ifstate.Way) string {
	out := w.To.String()
	if len(w.Via) == 1 {
		out += " via " + w.Via[0].String()
	}
	if w.Metric != 0 {
		out += fmt.Sprint(" metric ", w.Metric)
	}
	if w.Table != ifstate.Main {
		out += fmt.Sprint(" table ", w.Table)
	}
	if len(w.Via) < 2 {
		return out + " dev " + l.Name
	}
	for _, via := range w.Via {
		out += fmt.Sprintf(" nexthop via %s dev %s", via, l.Name)
	}
	return out
}

// ifupdownText is for interfaces(5). The bridge is "auto" because "allow-ovs" is never brought up, and has no
// ovs_type because ifdown would then delete the bridge and OVN's ports.
func ifupdownText(l layout) []string {
	method := "manual"
	if l.dhcp4 {
		method = "dhcp"
	}
	lines := []string{"auto " + l.Name, "iface " + l.Name + " inet " + method,
		"    pre-up systemctl start ovs-vswitchd", "    pre-up " + l.create(), "    pre-up sysctl -qw " + strings.Join(l.mute(), " "), "    pre-up ip link set " + l.NIC + " up"}
	if l.ra {
		lines = append(lines, "    pre-up sysctl -qw net/ipv6/conf/"+l.Name+"/accept_ra="+max(l.Settings[ifstate.AcceptRA], "1"))
	}
	if !l.dhcp4 {
		lines = append(lines, "    up ip link set "+l.Name+" up")
	}
	for _, a := range l.addresses {
		line := fmt.Sprintf("    up ip address replace %s dev %s", a.Prefix(), l.Name)
		if a.Is6() {
			line += " nodad" // the routes need the address at once
		}
		lines = append(lines, line)
	}
	for _, w := range l.ways {
		lines = append(lines, "    up ip route replace "+l.arguments(w))
	}
	if len(l.dns.servers) > 0 {
		lines = append(lines, "    dns-nameservers "+strings.Join(slices.Concat(l.dns.family(false), l.dns.family(true)), " "))
	}
	if len(l.dns.search) > 0 {
		lines = append(lines, "    dns-search "+strings.Join(l.dns.search, " "))
	}
	if l.dhcp6 {
		lines = append(lines, "iface "+l.Name+" inet6 dhcp")
	}
	return append(lines, "iface "+l.NIC+" inet manual")
}

// extra formats settings of the bridge for ovs-vsctl.
func (l layout) extra() string {
	out := fmt.Sprintf(`set bridge %s fail_mode=standalone other_config:hwaddr=\"%s\" external-ids:bridge-id=%s`, l.Name, l.MAC, l.Name)
	if l.Datapath != "" {
		out += " datapath_type=" + l.Datapath
	}
	return out
}

// scriptsText is for Red Hat's scripts, see README.RHEL.rst of Open vSwitch.
func scriptsText(l layout) []string {
	lines := []string{"# ifcfg-" + l.NIC, "DEVICE=" + l.NIC, "ONBOOT=yes", "DEVICETYPE=ovs", "TYPE=OVSPort", "OVS_BRIDGE=" + l.Name, "BOOTPROTO=none", "NM_CONTROLLED=no",
		"# ifcfg-" + l.Name, "DEVICE=" + l.Name, "ONBOOT=yes", "DEVICETYPE=ovs", "TYPE=OVSBridge", "NM_CONTROLLED=no", `OVS_EXTRA="` + l.extra() + `"`}
	if l.dhcp4 {
		lines = append(lines, "OVSBOOTPROTO=dhcp", "OVSDHCPINTERFACES="+l.NIC)
	} else {
		lines = append(lines, "BOOTPROTO=static")
	}
	n4, n6 := "", "IPV6ADDR="
	count := 0
	for _, a := range l.addresses {
		p := a.Prefix()
		if p.Addr().Is6() {
			lines = append(lines, "IPV6INIT=yes", n6+p.String())
			n6 = "IPV6ADDR_SECONDARIES="
			continue
		}
		lines = append(lines, "IPADDR"+n4+"="+p.Addr().String(), "NETMASK"+n4+"="+net.IP(net.CIDRMask(p.Bits(), 32)).String())
		count++
		n4 = fmt.Sprint(count)
	}
	for n, a := range l.dns.servers {
		lines = append(lines, fmt.Sprintf("DNS%d=%s", n+1, a))
	}
	if len(l.dns.search) > 0 {
		lines = append(lines, `DOMAIN="`+strings.Join(l.dns.search, " ")+`"`)
	}
	if l.ra {
		lines = append(lines, "IPV6INIT=yes", "IPV6_AUTOCONF=yes")
	}
	for _, version := range []struct {
		file string
		is6  bool
	}{{"route-", false}, {"route6-", true}} {
		lines = append(lines, "# "+version.file+l.Name)
		for _, w := range l.ways {
			if w.To.Addr().Is6() == version.is6 {
				lines = append(lines, l.arguments(w))
			}
		}
	}
	return lines
}

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

// nmcliText is for nmcli(1). The bridge is declared as an existing interface: NetworkManager's plugin for Open
// vSwitch, missing from some distributions, would create another one.
func nmcliText(l layout) []string {
	kind := "generic"
	if l.Datapath == names.UserspaceDatapath {
		kind = "tun mode tap"
	}
	last := fmt.Sprintf("nmcli connection add save yes autoconnect yes type %s con-name interface-%s ifname %[2]s", kind, l.Name)
	for _, family := range []struct {
		name string
		auto bool
		is6  bool
	}{{"ipv4", l.dhcp4, false}, {"ipv6", l.dhcp6 || l.ra, true}} {
		last += l.nmcliFamily(family.name, family.auto, family.is6)
	}
	dropIns, units := "/etc/systemd/system/"+platform.NetworkManager.Unit+".d", strings.Join(platform.Units(platform.OpenVSwitch), " ")
	return []string{
		"printf '[keyfile]\\nunmanaged-devices=interface-name:" + l.NIC + "\\n[device-" + l.Name + "]\\nmatch-device=interface-name:" + l.Name +
			"\\nmanaged=1\\n' > " + platform.NetworkManager.Config + "/conf.d/90-" + l.Name + ".conf",
		"mkdir -p " + dropIns,
		"printf '[Unit]\\nWants=" + units + "\\nAfter=" + units + "\\n[Service]\\nExecStartPre=-/sbin/ip link set " + l.NIC + " up\\n' > " + dropIns + "/" + l.Name + ".conf",
		"printf '%s\\n' " + strings.Join(l.mute(), " ") + " > " + l.sysctls(),
		"systemctl daemon-reload",
		last,
	}
}

// nmcliFamily formats the arguments for one family.
func (l layout) nmcliFamily(name string, auto, is6 bool) string {
	var addresses, routes []string
	for _, a := range l.addresses {
		if a.Is6() == is6 {
			addresses = append(addresses, a.Prefix().String())
		}
	}
	for _, w := range l.ways {
		if w.To.Addr().Is6() == is6 {
			routes = append(routes, nmcliRoutes(w)...)
		}
	}
	method := "disabled"
	switch {
	case auto:
		method = "auto"
	case len(addresses) > 0:
		method = "manual"
	}
	out := fmt.Sprintf(` %s.method %s %s.addresses "%s" %s.routes "%s"`, name, method, name, strings.Join(addresses, ","), name, strings.Join(routes, ","))
	if servers := l.dns.family(is6); len(servers) > 0 && method != "disabled" {
		out += fmt.Sprintf(` %s.dns "%s" %s.dns-search "%s"`, name, strings.Join(servers, ","), name, strings.Join(l.dns.search, ","))
	}
	return out
}

// nmcliRoutes returns an entry for each next hop: NetworkManager joins entries with a weight.
func nmcliRoutes(w ifstate.Way) []string {
	rest := ""
	if w.Metric != 0 {
		rest = fmt.Sprint(" ", w.Metric)
	}
	if w.Table != ifstate.Main {
		rest += fmt.Sprint(" table=", w.Table)
	}
	if len(w.Via) > 1 && !w.To.Addr().Is6() {
		rest += " weight=1"
	}
	if len(w.Via) == 0 {
		return []string{w.To.String() + rest}
	}
	var all []string
	for _, via := range w.Via {
		all = append(all, w.To.String()+" "+via.String()+rest)
	}
	return all
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
