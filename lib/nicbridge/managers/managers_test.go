package managers

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ovn-k8s/lib/link/ifstate"
)

// address is the record of an address; lifetime is in seconds.
func address(text string, lifetime uint32) ifstate.Record {
	p := netip.MustParsePrefix(text)
	family, raw := byte(unix.AF_INET), p.Addr().AsSlice()
	if p.Addr().Is6() {
		family = unix.AF_INET6
	}
	is := byte(lifetime)
	info := []byte{is, is, is, is, is, is, is, is, 0, 0, 0, 0, 0, 0, 0, 0}
	return ifstate.Record{Kind: ifstate.Address, Header: []byte{family, byte(p.Bits()), 0, 0, 0, 0, 0, 0},
		Attrs: []ifstate.Attr{{Type: unix.IFA_ADDRESS, Value: raw}, {Type: unix.IFA_CACHEINFO, Value: info}}}
}

const forever = 0xff

// on returns the layout of a bridge for a NIC of a kind.
func on(nic, kind string, mtu int) layout {
	b := Bridge{Name: "br" + nic, NIC: nic, Kind: kind, MAC: "0a:00:00:00:00:01", MTU: mtu, Datapath: "system", Records: []ifstate.Record{address("192.0.2.5/32", forever)},
		PortSettings: ifstate.Settings{ifstate.ReversePath: "1", ifstate.IgnoreARP: "8", ifstate.DisableIPv6: "1"}}
	l := b.layout(host{connection: "5f3a"})
	l.ways = []ifstate.Way{{
		To: netip.MustParsePrefix("0.0.0.0/0"), Via: []netip.Addr{netip.MustParseAddr("198.51.100.1")}, OnLink: true,
		Source: netip.MustParseAddr("192.0.2.5"), MTU: 1400, Table: ifstate.Main,
	}}
	return l
}

// A row has parts of the texts for a NIC, and what they must not contain.
type row struct {
	nic, kind string
	mtu       int
	has, not  []string
}

func check(t *testing.T, text func(layout) []string, rows []row) {
	t.Helper()
	for _, r := range rows {
		out := strings.Join(text(on(r.nic, r.kind, r.mtu)), "\n") + "\n"
		for _, want := range r.has {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in:\n%s", r.nic, want, out)
			}
		}
		for _, bad := range r.not {
			if strings.Contains(out, bad) {
				t.Errorf("%s: %q in:\n%s", r.nic, bad, out)
			}
		}
	}
}

// A bond or VLAN is brought up first, and its stanza keeps its own lines.
func TestIfupdown(t *testing.T) {
	const route = "    up ip route replace 0.0.0.0/0 via 198.51.100.1 src 192.0.2.5 mtu 1400 dev br"
	check(t, ifupdownText, []row{
		{"eth0", "device", 1500, []string{route + "eth0 onlink\n", "    pre-up ip link set eth0 up\n", "\niface eth0 inet manual\n"}, []string{"ifup eth0", "mtu 1500", "# Keep"}},
		{"eth0", "veth", 9000, []string{"    pre-up ip link set eth0 up\n    pre-up ip link set eth0 mtu 9000 || true\n"}, []string{"ifup eth0"}},
		{"bond0", "bond", 9000, []string{
			"    pre-up systemctl start ovs-vswitchd\n    pre-up ifup bond0\n    pre-up ovs-vsctl --may-exist add-br brbond0 ", "    pre-up ip link set bond0 mtu 9000 || true\n",
			"# Keep what makes bond0 in its stanza, such as bond-slaves and bond-mode, and no addresses and routes:\niface bond0 inet manual\n",
		}, nil},
		{"eth0.100", "vlan", 1500, []string{"    pre-up ifup eth0.100\n", "such as vlan-raw-device, ", "net/ipv4/conf/eth0.100/arp_ignore=8"}, []string{"mtu 1500"}},
	})
}

func TestNetworkScripts(t *testing.T) {
	check(t, scriptsText, []row{
		{"eth0", "device", 1500, []string{"0.0.0.0/0 via 198.51.100.1 src 192.0.2.5 mtu 1400 dev breth0 onlink\n"}, []string{"MTU=", "# and the lines"}},
		{"bond0", "bond", 9000, []string{"NM_CONTROLLED=no\nMTU=9000\n# and the lines that make bond0, such as BONDING_OPTS\n# ifcfg-brbond0\n"}, nil},
		{"eth0.100", "vlan", 1500, []string{"# and the lines that make eth0.100, such as VLAN and PHYSDEV\n"}, nil},
	})
}

// The definition of the NIC stays in its section, with its own keys.
func TestNetplan(t *testing.T) {
	const off = ": {dhcp4: false, dhcp6: false, accept-ra: false, link-local: [], optional: true"
	check(t, netplanText, []row{
		{"eth0", "device", 1500, []string{
			"# Keep what makes or matches eth0 in its definition, such as match and set-name, and no ", "  ethernets:\n    eth0" + off + "}\n    breth0:\n",
			`        - {to: "0.0.0.0/0", via: "198.51.100.1", on-link: true, from: "192.0.2.5", mtu: 1400}`,
		}, nil},
		{"eth0", "device", 9000, []string{"    eth0" + off + ", mtu: 9000}\n"}, nil},
		{"bond0", "bond", 9000, []string{"such as interfaces and parameters, ", "  bonds:\n    bond0" + off + ", mtu: 9000}\n  ethernets:\n    brbond0:\n"}, nil},
		{"eth0.100", "vlan", 1500, []string{"such as id and link, ", "  vlans:\n    eth0.100" + off + "}\n  ethernets:\n    breth0.100:\n"}, nil},
	})
}

// A definition by match may be that of other interfaces: files with precedence over netplan's are for this one alone.
func TestNetplanByMatch(t *testing.T) {
	check(t, func(l layout) []string {
		l.file = "/run/systemd/network/10-netplan-all-en.network"
		l.text = "[Match]\nName=en*\n[Link]\nMTUBytes=9000\n[Network]\nDHCP=ipv4\nVLAN=ens3.7\n"
		return netplanText(l)
	}, []row{{"ens3", "device", 9000, []string{
		"# Leave the definition all-en in /etc/netplan, which may be that of other interfaces, too. These files have precedence over it:\n# /etc/systemd/network/05-ens3.network\n",
		"[Match]\nName=ens3\n[Link]\nRequiredForOnline=no\nMTUBytes=9000\n[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nVLAN=ens3.7\n# /etc/systemd/network/05-brens3.network\n",
	}, []string{"network:\n", "DHCP="}}})
}

// The connection of the NIC stays, and NetworkManager goes on to manage it, with the VLANs on top of it.
func TestNetworkManager(t *testing.T) {
	const off = `%s.method disabled %s.addresses "" %s.gateway "" %s.routes "" %s.dns "" %s.dns-search ""`
	modify := "nmcli connection modify 5f3a " + strings.ReplaceAll(off, "%s", "ipv4") + " " + strings.ReplaceAll(off, "%s", "ipv6")
	check(t, nmcliText, []row{
		{"eth0", "device", 1500, []string{modify + "\n", `ipv4.routes "0.0.0.0/0 198.51.100.1 src=192.0.2.5 mtu=1400 onlink=true"`}, []string{"unmanaged"}},
		{"bond0", "bond", 9000, []string{modify + " 802-3-ethernet.mtu 9000\n", "conf.d/90-brbond0.conf\n"}, []string{"unmanaged"}},
		{"eth0.100", "vlan", 1500, []string{modify + "\n", "nmcli connection show 5f3a\n"}, []string{"unmanaged"}},
	})
}

// The file of the NIC keeps the lines of the former one that are about the link itself.
func TestNetworkd(t *testing.T) {
	const route = "[Route]\nDestination=0.0.0.0/0\nGateway=198.51.100.1\nGatewayOnLink=yes\nPreferredSource=192.0.2.5\nMTUBytes=1400\n"
	check(t, networkdText, []row{
		{"eth0", "device", 1500, []string{route, "05-eth0.network\n[Match]\nName=eth0\n[Link]\nRequiredForOnline=no\n[Network]\n"}, []string{"# Keep", "# This"}},
		{"bond0", "bond", 9000, []string{"05-bond0.network\n# Keep the .netdev file of bond0, and the .network files of interfaces below it.\n", "RequiredForOnline=no\nMTUBytes=9000\n[Network]\n"}, nil},
		{"eth0.100", "vlan", 1500, []string{"Name=eth0.100\n", "# Keep the .netdev file of eth0.100, "}, []string{"[Link]\nRequiredForOnline=no\nMTUBytes"}},
	})
	for file, want := range map[string]string{
		"20-wired.network":   "# /etc/systemd/network/05-eth0.network\n# This has precedence over /etc/systemd/network/20-wired.network, ",
		"00-wired.network":   "# /etc/systemd/network/0-eth0.network\n# This has precedence over ",
		"05-eth0.network":    "# /etc/systemd/network/05-eth0.network\n[Match]\n",
		"eth0.network":       "# /etc/systemd/network/05-eth0.network\n# This has precedence over ",
		"03-a space.network": "# /etc/systemd/network/0-eth0.network\n# This has precedence over ",
	} {
		check(t, func(l layout) []string {
			l.file = "/etc/systemd/network/" + file
			l.text = "# a comment\n[Match]\nName=e*\n\n[Link]\nMACAddress=0a:00:00:00:00:01\nRequiredForOnline=yes\nMTUBytes = 9000\n[Network]\nDHCP=yes\nAddress=192.0.2.5/32\n" +
				"VLAN=eth0.7 \\\n eth0.8\n[Address]\nAddress=192.0.2.6/32\n[RoutingPolicyRule]\n; another\nFrom=192.0.2.5\nTable=77\n[Route]\nGateway=192.0.2.1\n[Network]\nMACVLAN=mv0\n"
			return l.networkdPort()
		}, []row{{"eth0", "device", 9000, []string{
			want, "[Link]\nRequiredForOnline=no\nMTUBytes=9000\nMACAddress=0a:00:00:00:00:01\n[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n" +
				"VLAN=eth0.7   eth0.8\nMACVLAN=mv0\n[RoutingPolicyRule]\nFrom=192.0.2.5\nTable=77\n",
		}, []string{"DHCP", "Address=1", "Gateway", "comment", "another"}}})
	}
}

// Gateways of the other family are left to managers with a word for them.
func TestGatewaysOfTheOtherFamily(t *testing.T) {
	l := on("eth0", "device", 1500)
	l.ways = []ifstate.Way{{To: netip.MustParsePrefix("10.0.0.0/8"), Via: []netip.Addr{netip.MustParseAddr("fe80::1")}, Table: ifstate.Main}}
	for want, text := range map[string]func(layout) []string{
		"ip route replace 10.0.0.0/8 via inet6 fe80::1 dev breth0\n":            ifupdownText,
		"nexthops.conf, since netplan has no ":                                  netplanText,
		"Destination=10.0.0.0/8\nGateway=fe80::1\n":                             networkdText,
		`ipv4.method manual ipv4.addresses "192.0.2.5/32" ipv4.routes "" ipv6.`: nmcliText,
	} {
		if out := strings.Join(text(l), "\n") + "\n"; !strings.Contains(out, want) || strings.Contains(out, `via: "fe80`) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}

// The address of a lease is no source of routes, since the next one may be for another address.
func TestSourcesOfLeases(t *testing.T) {
	main := []byte{unix.AF_INET, 8, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, 0, unix.RTN_UNICAST, 0, 0, 0, 0}
	route := ifstate.Record{Kind: ifstate.Route, Text: "10.0.0.0/8", Header: main, Attrs: []ifstate.Attr{
		{Type: unix.RTA_DST, Value: []byte{10, 0, 0, 0}}, {Type: unix.RTA_OIF, Value: []byte{0, 0, 0, 0}}, {Type: unix.RTA_PREFSRC, Value: []byte{192, 0, 2, 5}},
	}}
	for lifetime, want := range map[uint32]bool{forever: true, 1: false} {
		l := Bridge{Records: []ifstate.Record{address("192.0.2.5/32", lifetime), route}}.layout(host{})
		if len(l.ways) != 1 || l.ways[0].Source.IsValid() != want || l.dhcp4 == want {
			t.Errorf("lifetime %d: %+v", lifetime, l)
		}
	}
}

// Files of cloud-init are known by their name or header. A comment of the operator is none.
func TestStopCloudInit(t *testing.T) {
	const headed = "# This file is generated from information provided by the datasource.  Changes\n# to it will not persist across an instance reboot.  To disable cloud-init's\n# network configuration capabilities, "
	for _, c := range []struct {
		name, text string
		want       bool
	}{
		{"interfaces", headed, true},
		{"50-cloud-init.yaml", "network:\n", true}, // written by netplan's library
		{"ifcfg-eth0", "# Created by cloud-init automatically, do not edit.\n#\nDEVICE=eth0\n", true},
		{"cloud-init-eth0.nmconnection", "[connection]\n", true}, // NetworkManager drops the header
		{"eth0.nmconnection", "# Generated by cloud-init. Changes will be lost.\n\n[connection]\n", true},
		{"interfaces.mine", "# not generated by the datasource\n# this was created by cloud-init once\niface eth0 inet dhcp\n", false},
		{"01.yaml", "network:\n", false},
	} {
		file := filepath.Join(t.TempDir(), c.name)
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := stopCloudInit([]string{"/missing", file}); strings.Contains(out, "# cloud-init has written "+file+", ") != c.want {
			t.Errorf("%s: %q", c.name, out)
		}
	}
}
