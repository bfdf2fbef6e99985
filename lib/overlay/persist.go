package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ovn-k8s/lib/names"
)

const (
	// interfacesFile configures ifupdown on Debian (interfaces(5)).
	interfacesFile = "/etc/network/interfaces"
	// scriptsDir has Red Hat's network scripts; ifupOVS exists if they support Open vSwitch.
	scriptsDir = "/etc/sysconfig/network-scripts"
	ifupOVS    = scriptsDir + "/ifup-ovs"
)

// persist returns the edits to restore the management port at boot, in the host's own way: Open vSwitch itself
// remembers the port, but not its addresses and routes.
func (s *session) persist(h *host, node string) ([]edit, error) {
	text, debian, err := readIfThere(interfacesFile)
	if err != nil {
		return nil, err
	}
	debian = debian && ifupdownManages()
	_, redHat, err := readIfThere(ifupOVS)
	if err != nil {
		return nil, err
	}
	var edits []edit
	if debian {
		edited, complaint := withStanzas(text, h)
		edits = append(edits, edit{path: interfacesFile, text: edited})
		s.complain(complaint)
	}
	if redHat {
		files, complaint, err := scripts(h)
		if err != nil {
			return nil, err
		}
		edits = append(edits, files...)
		s.complain(complaint)
	}
	if booted() && !enabled(nodeUnit) {
		s.warn("for %s to be restored at boot, enable the systemd unit %s of docs/install.md", h.port.Name, nodeUnit)
	} else if !booted() && !debian && !redHat {
		s.warn("neither %s nor %s exists: for %s to be restored at boot, install the systemd unit of docs/install.md, which runs this command", interfacesFile, ifupOVS, h.port.Name)
	}
	return pending(edits)
}

// nodeUnit restores the management port at boot, by running this command.
const nodeUnit = "ovn-k8s-node.service"

// booted reports whether systemd is this host's first process (sd_booted(3)).
func booted() bool { return exists("/run/systemd/system") }

// ifupdownManages reports whether ifupdown brings up this host's network. Its file alone is no proof: other
// managers leave it in place.
func ifupdownManages() bool {
	return !booted() || (exists("/usr/sbin/ifup") || exists("/sbin/ifup")) && enabled("networking.service")
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

// forget returns the edits to undo those of persist.
func forget(iface string) ([]edit, error) {
	text, debian, err := readIfThere(interfacesFile)
	if err != nil {
		return nil, err
	}
	var edits []edit
	if debian {
		edits = append(edits, edit{path: interfacesFile, text: withoutStanzas(text, iface)})
	}
	files, err := ourScripts(iface)
	if err != nil {
		return nil, err
	}
	return pending(append(edits, files...))
}

// sweep removes the temporary files of killed runs from the directories written by this program.
func (s *session) sweep() error {
	return sweep(filepath.Dir(interfacesFile), scriptsDir, s.config.CNIConfDir, s.config.CNIBinDir)
}

func (s *session) complain(complaint string) {
	if complaint != "" {
		s.warn("%s", complaint)
	}
}

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
func ovsExtra(h *host) string {
	// Both kinds of scripts read the quotes once more, as a shell does.
	return fmt.Sprintf(`set interface %s mac=\"%s\" mtu_request=%d external-ids:%s=%s`,
		h.port.Name, h.port.MAC, h.port.MTU, names.IfaceID, h.port.ExternalIDs[names.IfaceID])
}
