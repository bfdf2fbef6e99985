package boot

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/overlay/files"
)

// scriptMark begins our files among Red Hat's network scripts.
const scriptMark = "# Written by ovn-k8s-overlay: do not edit."

// A script is one of Red Hat's files: its name and its lines.
type script struct {
	name  string
	lines []string
}

func (f script) path() string { return filepath.Join(scriptsDir, f.name) }

// scripts returns the edits for Red Hat's files. A file about br-int with another owner stays, and complaint names
// it.
func scripts(m Management) (edits []files.Edit, complaint []string, err error) {
	bridge := script{"ifcfg-" + names.IntegrationBridge, []string{
		"DEVICE=" + names.IntegrationBridge, "ONBOOT=yes", "DEVICETYPE=ovs", "TYPE=OVSBridge", "BOOTPROTO=none", "NM_CONTROLLED=no",
		fmt.Sprintf(`OVS_EXTRA="set bridge %s fail_mode=secure"`, names.IntegrationBridge),
	}}
	all := []script{bridge, portScript(m)}
	text, there, err := readIfThere(bridge.path())
	if err != nil {
		return nil, nil, err
	}
	if there && !ourScript(text) {
		all = all[1:]
		complaint = []string{bridge.path() + " is not of this suite: it stays as it is"}
	}
	for _, f := range append(all, routeScripts(m)...) {
		edits = append(edits, files.Edit{Path: f.path(), Text: scriptMark + "\n" + strings.Join(f.lines, "\n") + "\n"})
	}
	return edits, complaint, nil
}

// portScript is ifcfg-PORT: see sysconfig.txt of initscripts, and
// README.RHEL.rst of Open vSwitch.
func portScript(m Management) script {
	lines := []string{
		"DEVICE=" + m.Port.Name, "ONBOOT=yes", "DEVICETYPE=ovs", "TYPE=OVSIntPort", "OVS_BRIDGE=" + names.IntegrationBridge,
		"BOOTPROTO=static", "NM_CONTROLLED=no",
	}
	for _, p := range m.State.Addresses {
		if p.Addr().Is6() {
			lines = append(lines, "IPV6INIT=yes", "IPV6_AUTOCONF=no", "IPV6ADDR="+p.String())
			continue
		}
		lines = append(lines, "IPADDR="+p.Addr().String(), "NETMASK="+net.IP(net.CIDRMask(p.Bits(), 32)).String())
	}
	return script{"ifcfg-" + m.Port.Name, append(lines, `OVS_EXTRA="`+ovsExtra(m)+`"`)}
}

// routeScripts are route-PORT and route6-PORT, in the form of ip-route(8)'s arguments. A family without routes has
// no file.
func routeScripts(m Management) []script {
	v4, v6 := script{name: "route-" + m.Port.Name}, script{name: "route6-" + m.Port.Name}
	for _, r := range m.State.Routes {
		f := &v4
		if r.Via.Is6() {
			f = &v6
		}
		f.lines = append(f.lines, fmt.Sprintf("%s dev %s proto %d", r, m.Port.Name, link.Protocol))
	}
	return slices.DeleteFunc([]script{v4, v6}, func(f script) bool { return len(f.lines) == 0 })
}

// ourScript reports whether a file is ours, or has no more settings than the file of the Python era.
func ourScript(text string) bool {
	if strings.HasPrefix(text, scriptMark) {
		return true
	}
	for l := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(l), "=")
		old := key == "" || slices.Contains([]string{"DEVICE", "ONBOOT", "DEVICETYPE", "TYPE"}, key) ||
			key == "OVS_EXTRA" && strings.HasSuffix(strings.Trim(value, `"`), "fail_mode=secure") && !strings.Contains(value, "--")
		if !old {
			return false
		}
	}
	return true
}

// ourScripts returns the edits to remove our files.
func ourScripts(iface string) ([]files.Edit, error) {
	var edits []files.Edit
	for _, name := range []string{"ifcfg-" + iface, "route-" + iface, "route6-" + iface, "ifcfg-" + names.IntegrationBridge} {
		path := script{name: name}.path()
		text, there, err := readIfThere(path)
		if err != nil {
			return nil, err
		}
		if there && (strings.HasPrefix(text, scriptMark) || name != "ifcfg-"+names.IntegrationBridge) {
			edits = append(edits, files.Edit{Path: path, Gone: true})
		}
	}
	return edits, nil
}
