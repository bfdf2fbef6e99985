// Package managers writes configurations of a bridge for the network managers of a host, as text for its operator. It
// changes nothing.
package managers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/platform"
)

// A Bridge is a bridge of Open vSwitch with a NIC as its port.
type Bridge struct {
	Name, NIC string
	Kind      string // of the NIC, see ifstate.Device
	MAC       string
	MTU       int              // of both
	Datapath  string           // datapath_type
	Records   []ifstate.Record // to be configured on the bridge
	Settings  ifstate.Settings // of the bridge
	// PortSettings are the settings of the NIC as a port.
	PortSettings ifstate.Settings
}

// A manager is a network manager on the host. It would configure the NIC again at its next boot, or earlier.
type manager struct {
	platform.Manager
	// found reports whether it manages the interface; nil if that is so with files.
	found func(i ifstate.Interface) bool
	// files returns those of its files with the interface that toBridge changes; nil if it changes none.
	files func(i ifstate.Interface) []string
	// toBridge returns the configuration or commands for the bridge.
	toBridge func(layout) []string
	// toNIC says how to revert toBridge.
	toNIC string
	// hasLease reports whether the manager's own DHCP client has a lease for the interface; nil if there is no such
	// client. release is the command that ends it, after toBridge.
	hasLease func(i ifstate.Interface, l layout) bool
	release  func(layout) string
}

// managers lists the supported network managers. The first three configure at boot from files, the others also at run
// time.
var managers = []manager{
	{
		Manager: platform.Ifupdown, files: inFiles(platform.Ifupdown, `(?m)^\s*iface\s+%s\s`), toBridge: ifupdownText,
		toNIC: "put the stanzas of the NIC in " + platform.Ifupdown.Config + " back",
	},
	{
		Manager: platform.NetworkScripts, files: inFiles(platform.NetworkScripts, `(?m)^\s*DEVICE="?%s"?\s*$`), toBridge: scriptsText,
		toNIC: "put ifcfg-NIC in " + platform.NetworkScripts.Config + " back and delete that of the bridge",
	},
	{
		Manager: platform.Netplan, found: byNetplan, files: netplanDefinitions, toBridge: netplanText,
		toNIC:    "put the NIC's part of " + platform.Netplan.Config + " back, and run netplan generate",
		hasLease: func(i ifstate.Interface, _ layout) bool { return inRun(networkdLeases, "")(i) },
		release: func(l layout) string {
			if l.definition() != l.NIC {
				return "networkctl reload"
			}
			return "netplan apply"
		},
	},
	{
		Manager: platform.NetworkManager, found: inRun(platform.NetworkManager.Links, connectionKey), files: connectionFiles, toBridge: nmcliText,
		toNIC:    "delete the connection of the bridge, give that of the NIC its ipv4 and ipv6 settings back or delete its clone NIC-port, and activate it",
		hasLease: func(_ ifstate.Interface, l layout) bool { return l.dhcp4 || l.dhcp6 },
		// Without "up", NetworkManager leaves a bridge that it has not activated itself as it is, and the lease ends.
		release: func(l layout) string {
			port := "nmcli device reapply " + l.NIC
			if l.shared {
				port = "nmcli connection up " + l.clone()
			}
			return port + "\nnmcli connection up interface-" + l.Name
		},
	},
	{
		Manager: platform.Networkd, found: networkdAlone, toBridge: networkdText,
		toNIC:    "delete the files of the NIC and of the bridge that you wrote to " + platform.Networkd.Config + ", and run networkctl reload",
		hasLease: func(i ifstate.Interface, _ layout) bool { return inRun(networkdLeases, "")(i) },
		release:  func(layout) string { return "networkctl reload" },
	},
}

// manages reports whether m manages an interface.
func (m manager) manages(i ifstate.Interface) bool {
	if m.found == nil {
		return len(m.files(i)) > 0
	}
	return m.found(i)
}

// inFiles returns a detector: it finds the files of m with a line for an interface.
func inFiles(m platform.Manager, line string) func(ifstate.Interface) []string {
	return func(i ifstate.Interface) []string { return matching(m.Files, line, i.Name) }
}

// matching returns the files of patterns with a line for a word.
func matching(patterns []string, line, word string) []string {
	re := regexp.MustCompile(fmt.Sprintf(line, regexp.QuoteMeta(word)))
	var found []string
	for _, p := range patterns {
		files, _ := filepath.Glob(p) // fails for a bad pattern only
		for _, f := range files {
			if text, err := os.ReadFile(f); err == nil && re.Match(text) {
				found = append(found, f)
			}
		}
	}
	return found
}

// netplanDefinitions returns netplan's files with a definition of the name of an interface.
func netplanDefinitions(i ifstate.Interface) []string {
	return matching(platform.Netplan.Files, `(?m)^\s*"?%s"?\s*:`, i.Name)
}

// byNetplan reports whether netplan configures an interface: by a definition with its name, or one that matches it.
func byNetplan(i ifstate.Interface) bool {
	return len(netplanDefinitions(i)) > 0 || inRun(platform.Networkd.Links, "NETWORK_FILE="+netplanFiles)(i)
}

// connectionFiles returns the files of NetworkManager's connection of an interface.
func connectionFiles(i ifstate.Interface) []string {
	return matching([]string{platform.NetworkManager.Config + "/system-connections/*"}, `(?m)^uuid=%s\s*$`, recorded(platform.NetworkManager.Links, i, connectionKey))
}

// networkdAlone reports whether systemd-networkd configures an interface from a file not generated by netplan.
func networkdAlone(i ifstate.Interface) bool {
	links := platform.Networkd.Links
	return inRun(links, "NETWORK_FILE=")(i) && !inRun(links, "NETWORK_FILE="+netplanFiles)(i)
}

// inRun returns a detector: it searches a daemon's state file of an interface.
func inRun(dir, line string) func(ifstate.Interface) bool {
	return func(i ifstate.Interface) bool {
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i.Index)))
		return err == nil && bytes.Contains(text, []byte(line))
	}
}

// ToBridge returns, for each manager of nic, the configuration of b to replace the NIC's, and the command that ends its
// DHCP client.
func ToBridge(nic ifstate.Interface, b Bridge) string {
	var out strings.Builder
	l := b.layout(hostOf(nic))
	for _, m := range managers {
		if !m.manages(nic) {
			continue
		}
		if m.files != nil {
			out.WriteString(stopCloudInit(m.files(nic)))
		}
		fmt.Fprintf(&out, "# %s configures %s. For it to restore %s at boot, have there instead:\n%s\n", m.Name, b.NIC, b.Name, strings.Join(m.toBridge(l), "\n"))
		if m.hasLease != nil && m.hasLease(nic, l) {
			fmt.Fprintf(&out, "# Its DHCP client works on %s, and would give it the address again. Then run:\n%s\n", b.NIC, m.release(l))
		}
	}
	if out.Len() > 0 {
		for _, note := range l.notes {
			fmt.Fprintf(&out, "# %s\n", note)
		}
	}
	return out.String()
}

// cloudHeader is in the first lines of files that cloud-init writes, but not in those that it writes by netplan's library.
var cloudHeader = regexp.MustCompile(`(?i)^#.*\b(created|generated) by cloud-init|\n#.* disable cloud-init's`)

// stopCloudInit keeps cloud-init from writing its files again. By default it does so at the first boot of an instance, on many
// clouds at each one (EventType.BOOT in default_update_events of their data sources).
func stopCloudInit(files []string) string {
	for _, f := range files {
		text, err := os.ReadFile(f)
		if strings.Contains(filepath.Base(f), "cloud-init") || err == nil && cloudHeader.Match(text) {
			return "# cloud-init has written " + f + ", and on many clouds does so at each boot: a change there would be lost, and with it the network. First run:\n" +
				"echo 'network: {config: disabled}' > /etc/cloud/cloud.cfg.d/99-disable-network-config.cfg\n"
		}
	}
	return ""
}

// ToNIC says, for each manager of nic, how to restore the NIC's configuration, and which files of the bridge are left.
func ToNIC(nic ifstate.Interface, bridge string) string {
	var out strings.Builder
	for _, m := range managers {
		if m.manages(nic) {
			fmt.Fprintf(&out, "# %s configures %s. If you wrote the bridge into its files: %s.\n", m.Name, nic.Name, m.toNIC)
		}
	}
	conf, dropIn := nmFiles(bridge)
	var left []string
	for _, file := range []string{sysctls(bridge), conf, dropIn, netplanDropIns(bridge), networkdFile(bridge)} {
		if _, err := os.Lstat(file); err == nil {
			left = append(left, file)
		}
	}
	if len(left) > 0 {
		fmt.Fprintf(&out, "# Files for %s are left. With its sysctls, %s would not answer ARP after the next boot. Run:\nrm -r %s\n", bridge, nic.Name, strings.Join(left, " "))
	}
	return out.String()
}
