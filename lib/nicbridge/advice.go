package nicbridge

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"ovn-k8s/lib/link/record"
)

// A manager is something on the host that would configure the NIC again: at its
// next boot, or earlier.
type manager struct {
	name string
	// found reports whether it has the interface.
	found func(i record.Interface) bool
	// toBridge is what to write or run for the bridge.
	toBridge func(layout) []string
	// toNIC is how that is taken back.
	toNIC string
	// hasLease reports whether a DHCP client within it works on the interface;
	// nil if it has none. release is how that ends, once toBridge is done.
	hasLease func(i record.Interface, l layout) bool
	release  func(layout) string
}

// managers are those that are looked for. The first three configure at boot by
// files, the others also while the host runs.
var managers = []manager{
	{
		name: "ifupdown", found: inFiles("/etc/network/interfaces", `(?m)^\s*iface\s+%s\s`, "/etc/network/interfaces.d/*"), toBridge: ifupdownText,
		toNIC: "put the stanzas of the NIC in /etc/network/interfaces back",
	},
	{
		name: "network-scripts", found: inFiles("/etc/sysconfig/network-scripts/ifcfg-*", `(?m)^\s*DEVICE="?%s"?\s*$`), toBridge: scriptsText,
		toNIC: "put ifcfg-NIC in /etc/sysconfig/network-scripts back and delete that of the bridge",
	},
	{
		name: "netplan", found: inFiles("/etc/netplan/*.yaml", `(?m)^\s*"?%s"?\s*:`), toBridge: netplanText,
		toNIC: "put the NIC's part of /etc/netplan back, and run netplan generate",
	},
	{
		name: "NetworkManager", found: inRun("/run/NetworkManager/devices", "connection-uuid="), toBridge: nmcliText,
		toNIC:    "delete the connections of the bridge, and activate that of the NIC",
		hasLease: func(_ record.Interface, l layout) bool { return l.dhcp4 || l.dhcp6 },
		release:  func(l layout) string { return "nmcli device set " + l.NIC + " managed no" },
	},
	{
		name: "systemd-networkd", found: inRun("/run/systemd/netif/links", "NETWORK_FILE="), toBridge: networkdText,
		toNIC:    "put the NIC's .network file in /etc/systemd/network back, and run networkctl reload",
		hasLease: func(i record.Interface, _ layout) bool { return inRun("/run/systemd/netif/leases", "")(i) },
		release:  func(layout) string { return "networkctl reload" },
	},
}

// inFiles makes a detector that looks for an interface in files.
func inFiles(pattern, line string, more ...string) func(record.Interface) bool {
	return func(i record.Interface) bool {
		re := regexp.MustCompile(fmt.Sprintf(line, regexp.QuoteMeta(i.Name)))
		for _, p := range append([]string{pattern}, more...) {
			files, _ := filepath.Glob(p) // fails for a bad pattern only
			for _, f := range files {
				if text, err := os.ReadFile(f); err == nil && re.Match(text) {
					return true
				}
			}
		}
		return false
	}
}

// inRun makes a detector that looks into a daemon's file about an interface.
func inRun(dir, line string) func(record.Interface) bool {
	return func(i record.Interface) bool {
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i.Index)))
		return err == nil && bytes.Contains(text, []byte(line))
	}
}

// advise says what the host's own network configuration needs. Nothing of it is
// needed for the move itself.
func (s *session) advise(snap Snapshot, d Direction) {
	if lines := handOver(snap.source(d), snap.target(d)); len(lines) > 0 {
		fmt.Fprintf(s.Out, "# A DHCP client works on %s, and would give it the address again. Run:\n%s\n", snap.source(d), strings.Join(lines, "\n"))
	}
	nic, err := record.Find(snap.NIC)
	if err != nil {
		return
	}
	l := snap.layout()
	for _, m := range managers {
		switch {
		case !m.found(nic):
		case d == ToNIC:
			fmt.Fprintf(s.Out, "# %s configures %s. If you wrote the bridge into its files: %s.\n", m.name, snap.NIC, m.toNIC)
		default:
			fmt.Fprintf(s.Out, "# %s configures %s. For it to restore %s at boot, have there instead:\n%s\n", m.name, snap.NIC, snap.Bridge, strings.Join(m.toBridge(l), "\n"))
			if m.hasLease != nil && m.hasLease(nic, l) {
				fmt.Fprintf(s.Out, "# Its DHCP client works on %s, and would give it the address again. Then run:\n%s\n", snap.NIC, m.release(l))
			}
		}
	}
}

// A layout is what a network configuration says of a bridge.
type layout struct {
	Snapshot
	addresses    []record.Record // those that last
	dhcp4, dhcp6 bool            // there are others, too
	ways         []record.Way
}

func (s Snapshot) layout() layout {
	l := layout{Snapshot: s}
	for _, r := range s.Records {
		switch {
		case r.Kind == record.Address && r.Automatic():
		case r.Kind == record.Address && r.Lasts():
			l.addresses = append(l.addresses, r)
		case r.Kind == record.Address && r.Is6():
			l.dhcp6 = true
		case r.Kind == record.Address:
			l.dhcp4 = true
		}
		if w, ok := r.Way(); ok {
			l.ways = append(l.ways, w)
		}
	}
	return l
}

func (l layout) extra() string {
	return fmt.Sprintf(`set bridge %s fail_mode=standalone other_config:hwaddr=\"%s\" external-ids:bridge-id=%s`, l.Bridge, l.MAC, l.Bridge)
}

// arguments are those of ip route for the bridge.
func (l layout) arguments(w record.Way) string {
	out := w.To.String()
	if len(w.Via) == 1 {
		out += " via " + w.Via[0].String()
	}
	if w.Metric != 0 {
		out += fmt.Sprint(" metric ", w.Metric)
	}
	if w.Table != record.Main {
		out += fmt.Sprint(" table ", w.Table)
	}
	if len(w.Via) < 2 {
		return out + " dev " + l.Bridge
	}
	for _, via := range w.Via {
		out += fmt.Sprintf(" nexthop via %s dev %s", via, l.Bridge)
	}
	return out
}

// onlyFirst are comments that name the routes with several next hops, for those who
// cannot have any.
func (l layout) onlyFirst(who string) []string {
	var lines []string
	for _, w := range l.ways {
		if len(w.Via) > 1 {
			lines = append(lines, fmt.Sprintf("# %s has no routes with several next hops: %s has only the first of %v", who, w.To, w.Via))
		}
	}
	return lines
}

// ifupdownText is for interfaces(5), see README.Debian of openvswitch-switch.
func ifupdownText(l layout) []string {
	lines := []string{"allow-ovs " + l.Bridge, "iface " + l.Bridge + " inet manual", "    ovs_type OVSBridge", "    ovs_ports " + l.NIC,
		"    ovs_extra " + l.extra(), fmt.Sprintf("    ovs_mtu %d", l.MTU)}
	for _, a := range l.addresses {
		lines = append(lines, fmt.Sprintf("    up ip address replace %s dev %s", a.Prefix(), l.Bridge))
	}
	for _, w := range l.ways {
		lines = append(lines, "    up ip route replace "+l.arguments(w))
	}
	if l.dhcp4 {
		lines[1] = "iface " + l.Bridge + " inet dhcp"
	}
	return append(lines, "allow-"+l.Bridge+" "+l.NIC, "iface "+l.NIC+" inet manual", "    ovs_type OVSPort", "    ovs_bridge "+l.Bridge)
}

// scriptsText is for Red Hat's scripts, see README.RHEL.rst of Open vSwitch.
func scriptsText(l layout) []string {
	lines := []string{"# ifcfg-" + l.NIC, "DEVICE=" + l.NIC, "ONBOOT=yes", "DEVICETYPE=ovs", "TYPE=OVSPort", "OVS_BRIDGE=" + l.Bridge, "BOOTPROTO=none", "NM_CONTROLLED=no",
		"# ifcfg-" + l.Bridge, "DEVICE=" + l.Bridge, "ONBOOT=yes", "DEVICETYPE=ovs", "TYPE=OVSBridge", "NM_CONTROLLED=no", `OVS_EXTRA="` + l.extra() + `"`}
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
	for _, version := range []struct {
		file string
		is6  bool
	}{{"route-", false}, {"route6-", true}} {
		lines = append(lines, "# "+version.file+l.Bridge)
		for _, w := range l.ways {
			if w.To.Addr().Is6() == version.is6 {
				lines = append(lines, l.arguments(w))
			}
		}
	}
	return lines
}

// netplanText is for netplan(5), which makes the bridge in Open vSwitch itself.
func netplanText(l layout) []string {
	lines := []string{"network:", "  version: 2", "  ethernets:", "    " + l.NIC + ": {dhcp4: false, dhcp6: false, accept-ra: false, link-local: []}",
		"  bridges:", "    " + l.Bridge + ":", "      openvswitch: {fail-mode: standalone}", "      interfaces: [" + l.NIC + "]",
		`      macaddress: "` + l.MAC + `"`, fmt.Sprintf("      mtu: %d", l.MTU), fmt.Sprintf("      dhcp4: %v", l.dhcp4), fmt.Sprintf("      dhcp6: %v", l.dhcp6),
		"      addresses:"}
	for _, a := range l.addresses {
		lines = append(lines, fmt.Sprintf("        - %q", a.Prefix()))
	}
	lines = append(lines, "      routes:")
	for _, w := range l.ways {
		route := fmt.Sprintf("        - {to: %q, ", w.To)
		if len(w.Via) > 0 {
			route += fmt.Sprintf("via: %q, ", w.Via[0])
		} else {
			route += "scope: link, "
		}
		lines = append(lines, route+fmt.Sprintf("metric: %d, table: %d}", w.Metric, w.Table))
	}
	return append(lines, l.onlyFirst("netplan")...)
}

// nmcliText is for nmcli(1) with NetworkManager's plugin for Open vSwitch.
func nmcliText(l layout) []string {
	add := "nmcli connection add save yes autoconnect yes "
	lines := []string{
		add + fmt.Sprintf("type ovs-bridge con-name %[1]s ifname %[1]s ovs-bridge.fail-mode standalone", l.Bridge),
		add + fmt.Sprintf("type ovs-port con-name port-%[2]s ifname %[2]s master %[1]s", l.Bridge, l.NIC),
		add + fmt.Sprintf("type ethernet con-name slave-%[1]s ifname %[1]s master port-%[1]s", l.NIC),
		add + fmt.Sprintf("type ovs-port con-name port-%[1]s ifname %[1]s master %[1]s", l.Bridge),
	}
	last := add + fmt.Sprintf("type ovs-interface con-name interface-%[1]s ifname %[1]s master port-%[1]s 802-3-ethernet.cloned-mac-address %[2]s 802-3-ethernet.mtu %[3]d", l.Bridge, l.MAC, l.MTU)
	for _, family := range []struct {
		name string
		auto bool
		is6  bool
	}{{"ipv4", l.dhcp4, false}, {"ipv6", l.dhcp6, true}} {
		last += l.nmcliFamily(family.name, family.auto, family.is6)
	}
	return append(append(lines, last), l.onlyFirst("NetworkManager")...)
}

// nmcliFamily are the arguments for one family.
func (l layout) nmcliFamily(name string, auto, is6 bool) string {
	var addresses, routes []string
	for _, a := range l.addresses {
		if a.Is6() == is6 {
			addresses = append(addresses, a.Prefix().String())
		}
	}
	for _, w := range l.ways {
		if w.To.Addr().Is6() != is6 {
			continue
		}
		route := w.To.String()
		if len(w.Via) > 0 {
			route += " " + w.Via[0].String()
		}
		route += fmt.Sprint(" ", w.Metric)
		if w.Table != record.Main {
			route += fmt.Sprint(" table=", w.Table)
		}
		routes = append(routes, route)
	}
	method := "disabled"
	switch {
	case auto:
		method = "auto"
	case len(addresses) > 0:
		method = "manual"
	}
	return fmt.Sprintf(` %s.method %s %s.addresses "%s" %s.routes "%s"`, name, method, name, strings.Join(addresses, ","), name, strings.Join(routes, ","))
}

// networkdText is for systemd.network(5).
func networkdText(l layout) []string {
	lines := []string{"# /etc/systemd/network/05-" + l.NIC + ".network", "[Match]", "Name=" + l.NIC, "[Network]", "LinkLocalAddressing=no", "IPv6AcceptRA=no",
		"# /etc/systemd/network/05-" + l.Bridge + ".network", "[Match]", "Name=" + l.Bridge, "[Network]"}
	if l.dhcp4 {
		lines = append(lines, "DHCP=ipv4")
	}
	lines = append(lines, fmt.Sprintf("IPv6AcceptRA=%v", l.dhcp6))
	for _, a := range l.addresses {
		lines = append(lines, "Address="+a.Prefix().String())
	}
	for _, w := range l.ways {
		lines = append(lines, "[Route]", "Destination="+w.To.String())
		key := "Gateway="
		if len(w.Via) > 1 {
			key = "MultiPathRoute="
		}
		for _, via := range w.Via {
			lines = append(lines, key+via.String())
		}
		lines = append(lines, fmt.Sprint("Metric=", w.Metric), fmt.Sprint("Table=", w.Table))
	}
	return lines
}
