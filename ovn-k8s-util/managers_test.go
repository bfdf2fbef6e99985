package main

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"ovn-k8s/test/host"
)

// A manager is a network manager as its machine has it: how it is installed, how it is
// told of eth0, and how what ovn-k8s-util prints is carried out.
type manager struct {
	packages, units []string
	static          func(m *machine)
	apply           func(m *machine, text string)
}

// section cuts what ovn-k8s-util has printed for a manager.
func section(out string) string {
	_, text, _ := strings.Cut(out, " at boot, have there instead:\n")
	text, _, _ = strings.Cut(text, "# Its DHCP client")
	text, _, _ = strings.Cut(text, "breth0 has what eth0 had")
	return text
}

// writeFiles writes the files of a text in which comments name them.
func (m *machine) writeFiles(text string) {
	m.t.Helper()
	path, body := "", ""
	flush := func() {
		if path != "" {
			m.must(m.Write(path, body))
		}
		body = ""
	}
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "# /etc/"); ok {
			flush()
			path, _, _ = strings.Cut(strings.TrimSpace("/etc/"+name), ",")
			continue
		}
		body += line
	}
	flush()
}

func (m *machine) v4() string { return m.Port.Addresses[0].String() }
func (m *machine) v6() string { return m.Port.Addresses[1].String() }

var managers = map[string]manager{
	"ifupdown": {
		packages: []string{"ifupdown", "isc-dhcp-client"}, units: []string{"networking"},
		static: func(m *machine) {
			m.must(m.Write("/etc/network/interfaces", "auto eth0\niface eth0 inet static\n    address "+m.v4()+"\n    gateway 198.18.0.1\n"+
				"    up ip route add 172.32.0.0/16 nexthop via 198.18.0.1 dev eth0 nexthop via 198.18.0.2 dev eth0\n"+
				"iface eth0 inet6 static\n    address "+m.v6()+"\n    gateway fd00:198:18::1\n    dad-attempts 0\n"))
		},
		apply: func(m *machine, text string) { m.must(m.Write("/etc/network/interfaces", text)) },
	},
	"systemd-networkd": {
		units: []string{"systemd-networkd"},
		static: func(m *machine) {
			m.must(m.Write("/etc/systemd/network/20-eth0.network", "[Match]\nName=eth0\n[Network]\nAddress="+m.v4()+"\nAddress="+m.v6()+"\nGateway=198.18.0.1\nGateway=fd00:198:18::1\n"+
				"[Route]\nDestination=172.32.0.0/16\nMultiPathRoute=198.18.0.1@eth0\nMultiPathRoute=198.18.0.2@eth0\n"))
		},
		apply: (*machine).writeFiles,
	},
	"netplan": {
		packages: []string{"netplan.io"}, units: []string{"systemd-networkd"},
		static: func(m *machine) {
			m.must(m.Write("/etc/netplan/01.yaml", "network:\n  version: 2\n  ethernets:\n    eth0:\n      addresses: ["+m.v4()+", \""+m.v6()+"\"]\n"+
				"      routes: [{to: 0.0.0.0/0, via: 198.18.0.1}, {to: \"::/0\", via: \"fd00:198:18::1\"}]\n"))
			m.must(m.Write("/etc/systemd/network/10-netplan-eth0.network.d/hops.conf", "[Route]\nDestination=172.32.0.0/16\nMultiPathRoute=198.18.0.1@eth0\nMultiPathRoute=198.18.0.2@eth0\n"))
		},
		apply: func(m *machine, text string) { m.writeFiles("# /etc/netplan/01.yaml\n" + text) },
	},
	"NetworkManager": {
		packages: []string{"network-manager"}, units: []string{"NetworkManager"},
		static: func(m *machine) {
			m.must(m.Write("/etc/NetworkManager/system-connections/eth0.nmconnection", "[connection]\nid=eth0\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=manual\naddress1="+m.v4()+
				",198.18.0.1\nroute1=172.32.0.0/16,198.18.0.1,0\nroute1_options=weight=1\nroute2=172.32.0.0/16,198.18.0.2,0\nroute2_options=weight=1\n[ipv6]\nmethod=manual\naddress1="+m.v6()+",fd00:198:18::1\n"))
		},
		apply: func(m *machine, text string) { m.script("set -e\n" + text) },
	},
}

// withManager boots a machine whose eth0 a manager configures.
func withManager(t *testing.T, name string) (*machine, manager) {
	t.Helper()
	g := managers[name]
	m := newMachine(t, g.packages...)
	m.must(m.Enable(g.units...))
	// without udev, networkd asks nobody whether links are ready only if /sys cannot be written
	m.must(m.Write("/etc/systemd/system/systemd-networkd.service.d/sys.conf", "[Service]\nReadOnlyPaths=/sys\n"))
	m.must(m.Write("/etc/NetworkManager/conf.d/10-test.conf", "[main]\nplugins=keyfile\n[keyfile]\nunmanaged-devices=none\n[device]\nmatch-device=*\nmanaged=1\n"))
	g.static(m)
	m.start(m.Boot)
	if name == "NetworkManager" {
		m.script("chmod 600 /etc/NetworkManager/system-connections/* && nmcli connection reload && nmcli connection up eth0")
	}
	m.await("ip route show default", "dev eth0")
	m.reaches(host.FabricIPv4())
	return m, g
}

// H2, H18: what is printed for a network manager brings the host's network back after
// reboots, with all next hops, and bridges-to-nic goes back afterwards.
func TestPrintedConfigurationsBoot(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("OVNK8S_TEST_BOOT_ROUNDS"))
	if err != nil {
		rounds = 1
	}
	for name := range managers {
		if err != nil && name != "ifupdown" {
			continue // half a minute each: for make test-boot
		}
		t.Run(name+"/static", func(t *testing.T) {
			m, g := withManager(t, name)
			m.await("ip -6 route show default", "dev eth0")
			text := section(m.script("ovn-k8s-util nics-to-bridge eth0"))
			t.Log(text)
			g.apply(m, text)
			for range rounds {
				m.start(m.PowerCycle)
				m.reaches(host.FabricIPv4())
				m.reaches(host.FabricIPv6())
				m.await("ip route show default", "dev breth0")
				m.await("ip -6 route show default", "dev breth0")
				m.await("ip route show 172.32.0.0/16", "nexthop via 198.18.0.2 dev breth0")
				m.await("ip route show 172.32.0.0/16", "nexthop via 198.18.0.1 dev breth0")
				if out := m.script("ip -o address show dev eth0 scope global"); out != "" {
					t.Errorf("eth0 has addresses: %s", out)
				}
			}
			m.script("ovn-k8s-util bridges-to-nic breth0")
			m.reaches(host.FabricIPv4())
			has(t, m.script("ip route show default"), "dev eth0")
		})
	}
}
