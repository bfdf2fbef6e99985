package boot

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// A Manager is a network manager: its packages, its configuration of eth0, and the way to
// carry out the output of ovn-k8s-util for it.
type Manager struct {
	Name            string
	Packages, Units []string

	static, dynamic func(m *Machine) map[string]string
	apply           func(ctx context.Context, m *Machine, text string) error
	revert          string // a command that deletes what apply made beside the files of static
}

// Managers returns the network managers of Debian.
func Managers() []Manager {
	return []Manager{ifupdown(), networkd(), netplan(), networkManager()}
}

// Install configures eth0 of a machine that is off, from the next boot on: statically,
// with two next hops to 172.32.0.0/16, or by DHCP and router advertisements.
func (g Manager) Install(m *Machine, dynamic bool) error {
	files := g.static
	if dynamic {
		files = g.dynamic
	}
	all := files(m)
	// Without udev, networkd considers links ready only if /sys is read-only.
	all["/etc/systemd/system/systemd-networkd.service.d/sys.conf"] = "[Service]\nReadOnlyPaths=/sys\n"
	all["/etc/NetworkManager/conf.d/10-test.conf"] = "[main]\nplugins=keyfile\n[keyfile]\nunmanaged-devices=none\n[device]\nmatch-device=*\nmanaged=1\n"
	for path, text := range all {
		if err := m.Write(path, text); err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		switch {
		case strings.HasSuffix(path, ".nmconnection"): // NetworkManager ignores files readable by others
			mode = 0o600
		case strings.Contains(path, "/bin/"):
			mode = 0o755
		}
		if err := os.Chmod(m.disk(path), mode); err != nil {
			return err
		}
	}
	return m.Enable(g.Units...)
}

// Apply writes the files or runs the commands printed by "ovn-k8s-util nics-to-bridge eth0" for
// the manager and for DHCP clients.
func (g Manager) Apply(ctx context.Context, m *Machine, out string) error {
	before, text, found := strings.Cut(out, " at boot, have there instead:\n")
	if !found {
		return fmt.Errorf("nothing is printed for %s: %s", g.Name, out)
	}
	text, _, _ = strings.Cut(text, "breth0 has what eth0 had")
	text, then, _ := strings.Cut(text, "# Its DHCP client works on eth0")
	if err := g.apply(ctx, m, text); err != nil {
		return err
	}
	for _, told := range []string{before, then} {
		if _, commands, ok := strings.Cut(told, "un:\n"); ok { // Run, or "then run"
			if _, err := m.Script(ctx, "set -e\n"+commands); err != nil {
				return err
			}
		}
	}
	return nil
}

// Revert puts the static configuration of eth0 back, and runs the commands printed by "ovn-k8s-util bridges-to-nic breth0".
func (g Manager) Revert(ctx context.Context, m *Machine, out string) error {
	if err := g.Install(m, false); err != nil {
		return err
	}
	commands := "set -e\n" + g.revert + "\n"
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "rm ") {
			commands += line
		}
	}
	_, err := m.Script(ctx, commands)
	return err
}

// writeFiles writes the files in a text; comments in it name them.
func writeFiles(_ context.Context, m *Machine, text string) error {
	files, path := map[string]string{}, ""
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "# /etc/"); ok {
			path, _, _ = strings.Cut(strings.TrimSpace("/etc/"+name), ",")
			continue
		}
		files[path] += line
	}
	for path, text := range files {
		if err := m.Write(path, text); err != nil {
			return err
		}
	}
	return nil
}

func ifupdown() Manager {
	const file = "/etc/network/interfaces"
	return Manager{
		Name: "ifupdown", Packages: []string{"ifupdown", "isc-dhcp-client"}, Units: []string{"networking"},
		static: func(m *Machine) map[string]string {
			return map[string]string{file: fmt.Sprintf("auto eth0\niface eth0 inet static\n    address %v\n    gateway %v\n"+
				"    up ip route add 172.32.0.0/16 nexthop via 198.18.0.1 dev eth0 nexthop via 198.18.0.2 dev eth0\n"+
				"iface eth0 inet6 static\n    address %v\n    gateway %v\n    dad-attempts 0\n",
				m.Port.Addresses[0], m.Port.Gateways[0], m.Port.Addresses[1], m.Port.Gateways[1])}
		},
		dynamic: func(*Machine) map[string]string {
			return map[string]string{file: "auto eth0\niface eth0 inet dhcp\n"}
		},
		apply: func(_ context.Context, m *Machine, text string) error { return m.Write(file, text) },
	}
}

func networkd() Manager {
	const file = "/etc/systemd/network/20-eth0.network"
	return Manager{
		Name: "systemd-networkd", Units: []string{"systemd-networkd"},
		static: func(m *Machine) map[string]string {
			return map[string]string{file: fmt.Sprintf("[Match]\nName=eth0\n[Network]\nAddress=%v\nAddress=%v\nGateway=%v\nGateway=%v\nDNS=198.18.0.1\n"+
				"[Route]\nDestination=172.32.0.0/16\nMultiPathRoute=198.18.0.1@eth0\nMultiPathRoute=198.18.0.2@eth0\n",
				m.Port.Addresses[0], m.Port.Addresses[1], m.Port.Gateways[0], m.Port.Gateways[1])}
		},
		dynamic: func(*Machine) map[string]string {
			return map[string]string{file: "[Match]\nName=eth0\n[Network]\nDHCP=ipv4\nIPv6AcceptRA=yes\n"}
		},
		apply:  writeFiles,
		revert: "rm /etc/systemd/network/05-eth0.network",
	}
}

func netplan() Manager {
	const file = "/etc/netplan/01.yaml"
	return Manager{
		Name: "netplan", Packages: []string{"udev", "netplan.io"}, Units: []string{"systemd-networkd"},
		static: func(m *Machine) map[string]string {
			return map[string]string{
				file: fmt.Sprintf("network:\n  version: 2\n  ethernets:\n    eth0:\n      addresses: [\"%v\", \"%v\"]\n      nameservers: {addresses: [198.18.0.1]}\n"+
					"      routes: [{to: 0.0.0.0/0, via: \"%v\"}, {to: \"::/0\", via: \"%v\"}]\n",
					m.Port.Addresses[0], m.Port.Addresses[1], m.Port.Gateways[0], m.Port.Gateways[1]),
				"/etc/systemd/network/10-netplan-eth0.network.d/hops.conf": "[Route]\nDestination=172.32.0.0/16\nMultiPathRoute=198.18.0.1@eth0\nMultiPathRoute=198.18.0.2@eth0\n",
			}
		},
		dynamic: func(*Machine) map[string]string {
			return map[string]string{
				file: "network:\n  version: 2\n  ethernets:\n    eth0: {dhcp4: true, accept-ra: true}\n",
				// netplan apply makes udev look at all links, but udev is masked: see setup.sh.
				"/usr/local/bin/udevadm": "#!/bin/sh\n",
			}
		},
		apply: func(ctx context.Context, m *Machine, text string) error {
			return writeFiles(ctx, m, "# "+file+"\n"+text)
		},
	}
}

func networkManager() Manager {
	const file = "/etc/NetworkManager/system-connections/eth0.nmconnection"
	const head = "[connection]\nid=eth0\ntype=ethernet\ninterface-name=eth0\n"
	return Manager{
		Name: "NetworkManager", Packages: []string{"network-manager"}, Units: []string{"NetworkManager"},
		static: func(m *Machine) map[string]string {
			return map[string]string{file: head + fmt.Sprintf("[ipv4]\nmethod=manual\naddress1=%v,%v\ndns=198.18.0.1\n"+
				"route1=172.32.0.0/16,198.18.0.1,0\nroute1_options=weight=1\nroute2=172.32.0.0/16,198.18.0.2,0\nroute2_options=weight=1\n"+
				"[ipv6]\nmethod=manual\naddress1=%v,%v\n",
				m.Port.Addresses[0], m.Port.Gateways[0], m.Port.Addresses[1], m.Port.Gateways[1])}
		},
		dynamic: func(*Machine) map[string]string {
			return map[string]string{file: head + "[ipv4]\nmethod=auto\n[ipv6]\nmethod=auto\n"}
		},
		apply: func(ctx context.Context, m *Machine, text string) error {
			_, err := m.Script(ctx, "set -e\n"+text)
			return err
		},
		revert: "nmcli connection delete interface-breth0",
	}
}
