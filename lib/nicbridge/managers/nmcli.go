package managers

import (
	"fmt"
	"path/filepath"
	"strings"

	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/platform"
)

// nmcliText is for nmcli(1). The bridge is declared as an existing interface: NetworkManager's plugin for Open
// vSwitch, missing from some distributions, would create another one. The NIC keeps its connection, without addresses:
// this makes bonds and VLANs and sets the MTU, and VLANs on top of an unmanaged interface would be unmanaged, too.
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
	conf, dropIn := nmFiles(l.Name)
	units := strings.Join(platform.Units(platform.OpenVSwitch), " ")
	port := []string{"# The connection of " + l.NIC + " loses its addresses, routes and DHCP, and keeps all else. To see them: nmcli connection show " + l.connection, l.nmcliPort(l.connection)}
	if l.shared {
		port = []string{
			"# Other interfaces use the connection of " + l.NIC + ", too: it stays. A clone of it for " + l.NIC + " alone loses its addresses, routes and DHCP, and has precedence.",
			"nmcli connection clone " + l.connection + " " + l.clone(),
			l.nmcliPort(l.clone()) + " connection.interface-name " + l.NIC + " connection.multi-connect single connection.autoconnect yes connection.autoconnect-priority 999", // the highest
		}
	}
	return append(port,
		"printf '[device-"+l.Name+"]\\nmatch-device=interface-name:"+l.Name+"\\nmanaged=1\\n' > "+conf,
		"mkdir -p "+filepath.Dir(dropIn),
		"printf '[Unit]\\nWants="+units+"\\nAfter="+units+"\\n' > "+dropIn,
		"printf '%s\\n' "+strings.Join(l.mute(), " ")+" > "+sysctls(l.Name),
		"systemctl daemon-reload",
		last,
	)
}

// nmFiles are the bridge's part of NetworkManager's configuration, and a drop-in of its unit.
func nmFiles(bridge string) (conf, dropIn string) {
	return platform.NetworkManager.Config + "/conf.d/90-" + bridge + ".conf", "/etc/systemd/system/" + platform.NetworkManager.Unit + ".d/" + bridge + ".conf"
}

// clone is the name of the NIC's own connection, in place of a shared one.
func (l layout) clone() string { return l.NIC + "-port" }

// nmcliPort is the command to take the addresses from a connection of the NIC.
func (l layout) nmcliPort(connection string) string {
	out := "nmcli connection modify " + connection
	for _, family := range []string{"ipv4", "ipv6"} {
		out += fmt.Sprintf(` %s.method disabled`, family)
		for _, property := range []string{"addresses", "gateway", "routes", "dns", "dns-search"} {
			out += fmt.Sprintf(` %s.%s ""`, family, property)
		}
	}
	if l.jumbo() {
		out += fmt.Sprint(" 802-3-ethernet.mtu ", l.MTU)
	}
	return out
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
		if w.To.Addr().Is6() == is6 && !w.Mixed() { // these are unknown to NetworkManager
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
	if auto {
		out += l.nmcliAuto(name, is6)
	}
	return out
}

// penalty is what NetworkManager adds to a metric while it does not reach the Internet by the interface.
const penalty = 20000

// nmcliAuto formats the arguments for DHCP and router advertisements of one family: the metric of their default route, the client
// identifier of the lease, and what the connection of the NIC ignores.
func (l layout) nmcliAuto(name string, is6 bool) string {
	out := ""
	if m, ok := l.metrics[is6]; ok {
		if m >= penalty {
			m -= penalty
		}
		out = fmt.Sprintf(" %s.route-metric %d", name, m)
	}
	if l.nmClient != "" && !is6 {
		out += fmt.Sprintf(" %s.dhcp-client-id %s", name, l.nmClient)
	}
	for _, property := range []string{"never-default", "ignore-auto-routes", "ignore-auto-dns"} {
		out += fmt.Sprintf(" %s.%s $(nmcli -g %[1]s.%[2]s connection show %[3]s)", name, property, l.connection)
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
	if w.Source.IsValid() {
		rest += " src=" + w.Source.String()
	}
	if w.MTU != 0 {
		rest += fmt.Sprint(" mtu=", w.MTU)
	}
	if w.OnLink {
		rest += " onlink=true"
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
