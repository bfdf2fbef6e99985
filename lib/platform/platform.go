// Package platform has the differences between distributions of Linux and of Kubernetes: packages, units, network managers,
// directories. docs/distributions.md has the same tables.
package platform

import (
	"slices"
	"strings"
)

// A Part is software from the distribution.
type Part int

// The parts.
const (
	OpenVSwitch Part = iota
	OVNHost          // OVN on each host
	OVNCentral       // OVN's databases and ovn-northd
	NFTables
	IPTables
	Loopback // the CNI plugin loopback
)

// A Distribution is a distribution of Linux, or a family of them.
type Distribution struct {
	// Name is as people write it. IDs are values of ID in os-release(5).
	Name string
	IDs  []string
	// Install installs packages, if followed by their names.
	Install  string
	Packages map[Part]string
	// Units has the units of the parts with services. The first one starts the others.
	Units map[Part][]string
	// PluginDir is the directory of the package with the CNI plugin loopback.
	PluginDir string
	// Managers are network managers in use there, the usual one first.
	Managers []Manager
	// Firewall is the usual firewall, Security the usual security module, with their state after an installation.
	Firewall, Security string
}

// debianPackages are the same on Ubuntu.
var debianPackages = map[Part]string{
	OpenVSwitch: "openvswitch-switch", OVNHost: "ovn-host", OVNCentral: "ovn-central", NFTables: "nftables", IPTables: "iptables",
	Loopback: "containernetworking-plugins",
}

var debianUnits = map[Part][]string{
	OpenVSwitch: {"openvswitch-switch.service", "ovsdb-server.service", "ovs-vswitchd.service"},
	OVNHost:     {"ovn-host.service", "ovn-controller.service"},
	OVNCentral:  {"ovn-central.service", "ovn-northd.service", "ovn-ovsdb-server-nb.service", "ovn-ovsdb-server-sb.service"},
}

var redHatUnits = map[Part][]string{
	OpenVSwitch: {"openvswitch.service", "ovsdb-server.service", "ovs-vswitchd.service"},
	OVNHost:     {"ovn-controller.service"},
	OVNCentral:  {"ovn-northd.service"},
}

var distributions = []Distribution{
	{
		Name: "Debian", IDs: []string{"debian"}, Install: "apt-get install", Packages: debianPackages, Units: debianUnits, PluginDir: "/usr/lib/cni",
		Managers: []Manager{Ifupdown, NetworkManager, Networkd, Netplan}, Firewall: "none", Security: "AppArmor",
	},
	{
		Name: "Ubuntu", IDs: []string{"ubuntu"}, Install: "apt-get install", Packages: debianPackages, Units: debianUnits, PluginDir: "/usr/lib/cni",
		Managers: []Manager{Netplan, NetworkManager, Networkd}, Firewall: "ufw, off", Security: "AppArmor",
	},
	{
		Name: "RHEL, CentOS Stream, Rocky, Alma", IDs: []string{"rhel", "centos", "rocky", "almalinux"}, Install: "dnf install",
		Packages: map[Part]string{
			OpenVSwitch: "openvswitch3.3", OVNHost: "ovn24.03-host", OVNCentral: "ovn24.03-central", NFTables: "nftables", IPTables: "iptables-nft",
			Loopback: "containernetworking-plugins",
		},
		Units: redHatUnits, PluginDir: "/usr/libexec/cni", Managers: []Manager{NetworkManager, NetworkScripts}, Firewall: "firewalld, on", Security: "SELinux, enforcing",
	},
	{
		Name: "Fedora", IDs: []string{"fedora"}, Install: "dnf install",
		Packages: map[Part]string{
			OpenVSwitch: "openvswitch", OVNHost: "ovn-host", OVNCentral: "ovn-central", NFTables: "nftables", IPTables: "iptables-nft",
			Loopback: "containernetworking-plugins",
		},
		Units: redHatUnits, PluginDir: "/usr/libexec/cni", Managers: []Manager{NetworkManager}, Firewall: "firewalld, on", Security: "SELinux, enforcing",
	},
}

// Distributions lists the distributions of the table.
func Distributions() []Distribution { return slices.Clone(distributions) }

// Units lists the first unit of a part on each distribution.
func Units(p Part) []string {
	var all []string
	for _, d := range distributions {
		if unit := d.Units[p][0]; !slices.Contains(all, unit) {
			all = append(all, unit)
		}
	}
	return all
}

// Host returns the distribution of a host by its os-release(5). read is os.ReadFile.
func Host(read func(path string) ([]byte, error)) Distribution {
	for _, path := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if text, err := read(path); err == nil {
			return Of(string(text))
		}
	}
	return Of("")
}

// Of returns the distribution with the ID of an os-release(5), else the first one known in ID_LIKE. Others have Debian's
// names of packages, as most do.
func Of(osRelease string) Distribution {
	for _, id := range append([]string{value(osRelease, "ID")}, strings.Fields(value(osRelease, "ID_LIKE"))...) {
		for _, d := range distributions {
			if slices.Contains(d.IDs, id) {
				return d
			}
		}
	}
	return distributions[0]
}

// Remedy tells a person to install a part.
func (d Distribution) Remedy(p Part) string { return "install the package " + d.Packages[p] }

// value returns the value of a variable in an os-release(5), the last one if there are several. The file is in a subset of
// the shell's language.
func value(osRelease, name string) string {
	found := ""
	for line := range strings.Lines(osRelease) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			found = unquoted(text)
		}
	}
	return found
}

// unquoted removes quotation marks, and backslashes before characters of the shell.
func unquoted(text string) string {
	if n := len(text); n > 1 && text[0] == text[n-1] && (text[0] == '"' || text[0] == '\'') {
		text = text[1 : n-1]
	}
	return strings.NewReplacer(`\"`, `"`, `\'`, `'`, `\$`, `$`, "\\`", "`", `\\`, `\`).Replace(text)
}
