package managers

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ovn-k8s/lib/link/ifstate"
)

// leased returns the layout of a bridge with an address from DHCP, with a .network file and a client identifier of the NIC.
func leased(text, client string) func(layout) layout {
	return func(l layout) layout {
		l.addresses, l.ways, l.dhcp4 = nil, nil, true
		l.file, l.text, l.client = "/etc/systemd/network/20-eth0.network", text, client
		return l
	}
}

// The DHCP server sees the client of the NIC on the bridge: its identifier is that of the lease, or follows from the NIC's settings.
func TestClientIdentity(t *testing.T) {
	const (
		duid    = "ff1c9c1b4200020000ab11f940faf4409ebba0"
		mac     = "010a0000000001"
		own     = "[Match]\nName=eth0\n[Network]\nDHCP=ipv4\n"
		bridge  = "DHCP=ipv4\nIPv6AcceptRA=false\n"
		sysctls = "# /etc/sysctl.d/90-breth0.conf\n"
	)
	for name, c := range map[string]struct{ text, client, networkd, netplan, dropIn string }{
		"no lease":       {own, "", "", "", ""},
		"DUID":           {own, duid, "[DHCPv4]\nIAID=479992642\n", "", "[DHCPv4]\nIAID=479992642\n"},
		"MAC":            {own, mac, "[DHCPv4]\nClientIdentifier=mac\n", "      dhcp-identifier: mac\n", ""},
		"no lease, MAC":  {own + "[DHCP]\nClientIdentifier = mac\n", "", "[DHCP]\nClientIdentifier=mac\n", "      dhcp-identifier: mac\n", ""},
		"another kind":   {own, "0061626364", "", "", ""},
		"no hexadecimal": {own, "nonsense", "", "", ""},
		"cut":            {own, "ff1c", "", "", ""},
		"a former IAID, and a DUID": {
			own + "[DHCPv4]\nIAID=7\n# a comment\nDUIDType=link-layer\n", duid,
			"[DHCPv4]\nDUIDType=link-layer\nIAID=479992642\n", "", "[DHCPv4]\nDUIDType=link-layer\nIAID=479992642\n",
		},
		"a DUID without IAID": {own + "[DHCPv4]\nClientIdentifier=duid-only\n", "ff00020000ab11f940faf4409ebba0", "[DHCPv4]\nClientIdentifier=duid-only\n", "", "[DHCPv4]\nClientIdentifier=duid-only\n"},
		"other settings": {
			own + "[DHCP]\nUseMTU=true\nHostname=minion\n[IPv6AcceptRA]\nUseDNS=no\n[DHCPv6]\nRapidCommit=no\n[DHCPv4]\nUseDNS=no\nUseMTU=false\nSendOption=60:string:x\n", mac,
			"[DHCP]\nUseMTU=true\nHostname=minion\n[DHCPv6]\nRapidCommit=no\n[DHCPv4]\nUseDNS=no\nUseMTU=false\nSendOption=60:string:x\nClientIdentifier=mac\n",
			"      dhcp-identifier: mac\n      dhcp4-overrides: {hostname: minion, use-dns: no, use-mtu: false}\n", "[DHCPv6]\nRapidCommit=no\n[DHCPv4]\nSendOption=60:string:x\n",
		},
	} {
		l := leased(c.text, c.client)(on("eth0", "device", 1500))
		if out := strings.Join(networkdText(l), "\n") + "\n"; !strings.Contains(out, bridge+c.networkd+sysctls) {
			t.Errorf("%s: no %q in:\n%s", name, c.networkd, out)
		}
		if c.dropIn != "" {
			c.dropIn = "# /etc/systemd/network/10-netplan-breth0.network.d/client.conf, since netplan has no words for these:\n" + c.dropIn
		}
		l.file = netplanFiles + "eth0.network"
		if out := strings.Join(netplanText(l), "\n") + "\n"; !strings.Contains(out, "      accept-ra: false\n"+c.netplan+c.dropIn+sysctls) {
			t.Errorf("%s: no %q and %q in:\n%s", name, c.netplan, c.dropIn, out)
		}
	}
}

// The settings for router advertisements are for a bridge that accepts some, those for DHCP for one with an address from there.
func TestSettingsOfOtherProtocols(t *testing.T) {
	for want, protocols := range map[string]layout{
		"IPv6AcceptRA=true\n[IPv6AcceptRA]\nUseDNS=no\n#":                                      {ra: true},
		"IPv6AcceptRA=true\n[DHCP]\nUseMTU=no\n[IPv6AcceptRA]\nUseDNS=no\n#":                   {ra: true, dhcp6: true},
		"DHCP=yes\nIPv6AcceptRA=false\n[DHCP]\nUseMTU=no\n[DHCPv4]\nClientIdentifier=mac\n# /": {dhcp4: true, dhcp6: true},
	} {
		l := leased("[DHCP]\nUseMTU=no\n[IPv6AcceptRA]\nUseDNS=no\n", "010a0000000001")(on("eth0", "device", 1500))
		l.dhcp4, l.dhcp6, l.ra = protocols.dhcp4, protocols.dhcp6, protocols.ra
		if out := strings.Join(networkdText(l), "\n") + "\n"; !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
		if out := strings.Join(netplanText(l), "\n"); strings.Contains(out, "dhcp6-overrides: {use-mtu: no}") != l.dhcp6 || strings.Contains(out, "dhcp4-overrides: {use-mtu: no}") != l.dhcp4 {
			t.Errorf("equal overrides for each protocol of DHCP are missing in:\n%s", out)
		}
	}
}

// defaultRoute is the record of a default route.
func defaultRoute(family, protocol byte, metric uint32) ifstate.Record {
	return ifstate.Record{Kind: ifstate.Route, Header: []byte{family, 0, 0, 0, unix.RT_TABLE_MAIN, protocol, 0, unix.RTN_UNICAST, 0, 0, 0, 0}, Attrs: []ifstate.Attr{
		{Type: unix.RTA_OIF, Value: []byte{0, 0, 0, 0}}, {Type: unix.RTA_PRIORITY, Value: binary.NativeEndian.AppendUint32(nil, metric)},
	}}
}

// The default routes from DHCP and router advertisements keep their metrics, or a host with several NICs would use another one.
func TestMetricsOfLearnedRoutes(t *testing.T) {
	const v4, v6 = unix.AF_INET, unix.AF_INET6
	for name, c := range map[string]struct {
		records                                        []ifstate.Record
		text                                           string
		networkd, netplan, nmcli4, nmcli6, eni, ifcfgs string
	}{
		"DHCP and an advertisement": {
			[]ifstate.Record{defaultRoute(v4, unix.RTPROT_DHCP, 77), defaultRoute(v4, unix.RTPROT_DHCP, 99), defaultRoute(v6, unix.RTPROT_RA, 88)}, "[DHCP]\nRouteMetric=5\n",
			"[DHCPv4]\nRouteMetric=77\n[IPv6AcceptRA]\nRouteMetric=88\n# /etc/sysctl", "      dhcp4-overrides: {route-metric: 77}\n# /etc/systemd/network/10-netplan-breth0.network.d/client.conf, since netplan has no words for these:\n[IPv6AcceptRA]\nRouteMetric=88\n",
			" ipv4.route-metric 77", " ipv6.route-metric 88", "    metric 77\n", "METRIC=77\n",
		},
		"dhclient, which does not mark its route": {
			[]ifstate.Record{defaultRoute(v4, unix.RTPROT_BOOT, 77), defaultRoute(v4, unix.RTPROT_BOOT, 99)}, "",
			"[DHCPv4]\nRouteMetric=77\n# /etc/sysctl", "{route-metric: 77}\n", " ipv4.route-metric 77", "", "    metric 77\n", "METRIC=77\n",
		},
		"none":                       {nil, "[DHCP]\nRouteMetric=5\n", "[DHCP]\nRouteMetric=5\n# /etc/sysctl", "{route-metric: 5}\n", "", "", "", ""},
		"several, by preference":     {[]ifstate.Record{defaultRoute(v6, unix.RTPROT_RA, 1)}, "[IPv6AcceptRA]\nRouteMetric=1:2:3\n", "=true\n[IPv6AcceptRA]\nRouteMetric=1:2:3\n# /etc/sysctl", "RouteMetric=1:2:3\n", "", " ipv6.route-metric 1", "", ""},
		"metric 0":                   {[]ifstate.Record{defaultRoute(v4, unix.RTPROT_DHCP, 0)}, "", "[DHCPv4]\nRouteMetric=0\n", "{route-metric: 0}\n", " ipv4.route-metric 0", "", "", ""},
		"NetworkManager without Web": {[]ifstate.Record{defaultRoute(v4, unix.RTPROT_DHCP, 20100)}, "", "", "", " ipv4.route-metric 100", "", "    metric 20100\n", "METRIC=20100\n"},
	} {
		l := Bridge{Name: "breth0", NIC: "eth0", Kind: "device", MTU: 1500, Records: append([]ifstate.Record{address("192.0.2.5/24", 1)}, c.records...)}.layout(host{
			connection: "5f3a", nmClient: "01:0a:00:00:00:00:01", text: c.text,
		})
		if len(l.ways) > 0 {
			t.Errorf("%s: routes %+v are printed", name, l.ways)
		}
		nmcli := `ipv4.method auto ipv4.addresses "" ipv4.routes ""` + c.nmcli4 + " ipv4.dhcp-client-id 01:0a:00:00:00:00:01"
		for _, p := range []string{"never-default", "ignore-auto-routes", "ignore-auto-dns"} {
			nmcli += fmt.Sprintf(" ipv4.%s $(nmcli -g ipv4.%[1]s connection show 5f3a)", p)
		}
		nmcli += " ipv6.method "
		if l.ra {
			nmcli += `auto ipv6.addresses "" ipv6.routes ""` + c.nmcli6 + " ipv6.never-default $("
		}
		for want, text := range map[string]func(layout) []string{c.networkd: networkdText, c.netplan: netplanText, nmcli: nmcliText, c.eni: ifupdownText, c.ifcfgs: scriptsText} {
			out := strings.Join(text(l), "\n") + "\n"
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in:\n%s", name, want, out)
			}
		}
	}
}
