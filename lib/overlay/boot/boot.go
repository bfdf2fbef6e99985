// Package boot restores the management port at boot by the host's own network configuration: interfaces(5) of ifupdown,
// or Red Hat's network scripts.
package boot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/overlay/files"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/platform"
)

var (
	// interfacesFile configures ifupdown on Debian (interfaces(5)).
	interfacesFile = platform.Ifupdown.Config
	// scriptsDir has Red Hat's network scripts; ifupOVS exists if they support Open vSwitch.
	scriptsDir = platform.NetworkScripts.Config
	ifupOVS    = filepath.Join(scriptsDir, "ifup-ovs")
)

// A Management is the management port to restore.
type Management struct {
	Port  vswitch.InternalPort
	State link.State // of the port's interface
}

// Persist returns the edits to restore the management port at boot, in the host's own way, and warnings: Open
// vSwitch itself remembers the port, but not its addresses and routes.
func Persist(m Management) (edits []files.Edit, warnings []string, err error) {
	text, debian, err := readIfThere(interfacesFile)
	if err != nil {
		return nil, nil, err
	}
	debian = debian && ifupdownManages()
	_, redHat, err := readIfThere(ifupOVS)
	if err != nil {
		return nil, nil, err
	}
	if debian {
		edited, complaint := withStanzas(text, m)
		edits = append(edits, files.Edit{Path: interfacesFile, Text: edited})
		warnings = append(warnings, complaint...)
	}
	if redHat {
		written, complaint, err := scripts(m)
		if err != nil {
			return nil, nil, err
		}
		edits = append(edits, written...)
		warnings = append(warnings, complaint...)
	}
	if booted() && !enabled(nodeUnit) {
		warnings = append(warnings, fmt.Sprintf("for %s to be restored at boot, enable the systemd unit %s of docs/install.md", m.Port.Name, nodeUnit))
	} else if !booted() && !debian && !redHat {
		warnings = append(warnings, fmt.Sprintf("neither %s nor %s exists: for %s to be restored at boot, install the systemd unit of docs/install.md, which runs this command", interfacesFile, ifupOVS, m.Port.Name))
	}
	edits, err = files.Pending(edits)
	return edits, warnings, err
}

// nodeUnit restores the management port at boot, by running this command.
const nodeUnit = "ovn-k8s-node.service"

// booted reports whether systemd is this host's first process (sd_booted(3)).
func booted() bool { return exists("/run/systemd/system") }

// ifupdownManages reports whether ifupdown brings up this host's network. Its file alone is no proof: other
// managers leave it in place.
func ifupdownManages() bool {
	return !booted() || (exists("/usr/sbin/ifup") || exists("/sbin/ifup")) && enabled(platform.Ifupdown.Unit)
}

// enabled reports whether systemd starts a unit at boot.
func enabled(unit string) bool {
	links, err := filepath.Glob("/etc/systemd/system/*.wants/" + unit)
	return err == nil && len(links) > 0
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Forget returns the edits to undo those of Persist.
func Forget(iface string) ([]files.Edit, error) {
	text, debian, err := readIfThere(interfacesFile)
	if err != nil {
		return nil, err
	}
	var edits []files.Edit
	if debian {
		edits = append(edits, files.Edit{Path: interfacesFile, Text: withoutStanzas(text, iface)})
	}
	ours, err := ourScripts(iface)
	if err != nil {
		return nil, err
	}
	return files.Pending(append(edits, ours...))
}

// Dirs are the directories written.
func Dirs() []string { return []string{filepath.Dir(interfacesFile), scriptsDir} }

func readIfThere(path string) (text string, there bool, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("reading the host's network configuration: %w", err)
	}
	return string(b), true, nil
}

// ovsExtra is the ovs-vsctl command for the interface when it is made again. The MAC is pinned to the one in the
// logical port's addresses.
func ovsExtra(m Management) string {
	// Both kinds of scripts read the quotes once more, as a shell does.
	return fmt.Sprintf(`set interface %s mac=\"%s\" mtu_request=%d external-ids:%s=%s`,
		m.Port.Name, m.Port.MAC, m.Port.MTU, names.IfaceID, m.Port.ExternalIDs[names.IfaceID])
}
