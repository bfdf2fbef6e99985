package managers

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"ovn-k8s/lib/link/ifstate"
)

// ifupdownText is for interfaces(5). The bridge is "auto" because "allow-ovs" is never brought up, and has no
// ovs_type because ifdown would then delete the bridge and OVN's ports.
func ifupdownText(l layout) []string {
	method := "manual"
	if l.dhcp4 {
		method = "dhcp"
	}
	lines := []string{"auto " + l.Name, "iface " + l.Name + " inet " + method, "    pre-up systemctl start ovs-vswitchd"}
	if m := l.metrics[false]; l.dhcp4 && m != 0 {
		lines = append(lines, fmt.Sprint("    metric ", m))
	}
	if l.made() {
		lines = append(lines, "    pre-up ifup "+l.NIC) // no error if it is up
	}
	lines = append(lines, "    pre-up "+l.create(), "    pre-up sysctl -qw "+strings.Join(l.mute(), " "), "    pre-up ip link set "+l.NIC+" up")
	if l.jumbo() {
		lines = append(lines, fmt.Sprintf("    pre-up ip link set %s mtu %d || true", l.NIC, l.MTU)) // a smaller one is better than no network
	}
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
	if l.made() {
		lines = append(lines, fmt.Sprintf("# Keep what makes %s in its stanza, such as %s, and no addresses and routes:", l.NIC, l.recipe().ifupdown))
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
	lines := []string{"# ifcfg-" + l.NIC, "DEVICE=" + l.NIC, "ONBOOT=yes", "DEVICETYPE=ovs", "TYPE=OVSPort", "OVS_BRIDGE=" + l.Name, "BOOTPROTO=none", "NM_CONTROLLED=no"}
	if l.jumbo() {
		lines = append(lines, fmt.Sprint("MTU=", l.MTU))
	}
	if l.made() {
		lines = append(lines, fmt.Sprintf("# and the lines that make %s, such as %s", l.NIC, l.recipe().scripts))
	}
	lines = append(lines,
		"# ifcfg-"+l.Name, "DEVICE="+l.Name, "ONBOOT=yes", "DEVICETYPE=ovs", "TYPE=OVSBridge", "NM_CONTROLLED=no", `OVS_EXTRA="`+l.extra()+`"`)
	if l.dhcp4 {
		lines = append(lines, "OVSBOOTPROTO=dhcp", "OVSDHCPINTERFACES="+l.NIC)
		if m := l.metrics[false]; m != 0 {
			lines = append(lines, fmt.Sprint("METRIC=", m))
		}
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
