package nicbridge

import (
	"bytes"
	"fmt"
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
		toNIC:    "put the NIC's part of /etc/netplan back, and run netplan generate",
		hasLease: func(i record.Interface, _ layout) bool { return inRun("/run/systemd/netif/leases", "")(i) },
		release:  func(layout) string { return "netplan apply" },
	},
	{
		name: "NetworkManager", found: inRun("/run/NetworkManager/devices", "connection-uuid="), toBridge: nmcliText,
		toNIC:    "delete the connections of the bridge, and activate that of the NIC",
		hasLease: func(_ record.Interface, l layout) bool { return l.dhcp4 || l.dhcp6 },
		release:  func(l layout) string { return "nmcli device set " + l.NIC + " managed no" },
	},
	{
		name: "systemd-networkd", found: networkdAlone, toBridge: networkdText,
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

// networkdAlone reports whether systemd-networkd has an interface by a file that netplan has
// not made.
func networkdAlone(i record.Interface) bool {
	const links = "/run/systemd/netif/links"
	return inRun(links, "NETWORK_FILE=")(i) && !inRun(links, "NETWORK_FILE=/run/systemd/network/10-netplan-")(i)
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
