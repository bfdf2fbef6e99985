package shim

import (
	"cmp"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"ovn-k8s/lib/names"
)

// ovsTimeout bounds the question to Open vSwitch.
const ovsTimeout = 2 * time.Second

// devices has the network interfaces of this host.
const devices = "/sys/class/net"

// left lists the parts of the attachment on this host. Without Open vSwitch's database the port does not count, as for the
// stand-alone plugin: it has no device then, and the server removes it with a later DEL. So it is with a port whose device is
// gone, as after a reboot.
func (c call) left() (all []string) {
	shared := false
	for _, name := range []string{names.HostVeth(c.args.ContainerID), names.UniqueHostVeth(c.args.ContainerID)} {
		switch container, ifname, ours := hostEnd(name); {
		case !ours:
		case container == "" || container == c.args.ContainerID && ifname == c.args.IfName:
			all = append(all, "interface "+name)
		case container == c.args.ContainerID:
			shared = true // the link is that of another interface of the container
		}
	}
	link := filepath.Join("/var/run/netns", c.args.ContainerID)
	if info, err := os.Lstat(link); err == nil && info.Mode()&os.ModeSymlink != 0 && !shared {
		all = append(all, link)
	}
	return append(all, c.ports()...)
}

// hostEnd returns the owner of the host end with a name, and false if there is none. A host end left over from a killed ADD
// has no owner: its name identifies the container.
func hostEnd(name string) (container, ifname string, ours bool) {
	dir := filepath.Join(devices, name)
	group, err := os.ReadFile(filepath.Join(dir, "netdev_group"))
	if err != nil || strings.TrimSpace(string(group)) != strconv.Itoa(names.HostVethGroup) {
		return "", "", false
	}
	alias, err := os.ReadFile(filepath.Join(dir, "ifalias"))
	_, container, ifname, _ = names.ParseHostVethAlias(strings.TrimSpace(string(alias)))
	return container, ifname, err == nil
}

// ports lists the ports of the attachment with a device, from the database of Open vSwitch, by one request of RFC 7047, section
// 4.1.3.
func (c call) ports() (all []string) {
	path := filepath.Join(cmp.Or(os.Getenv("OVS_RUNDIR"), "/var/run/openvswitch"), "db.sock")
	conn, err := net.DialTimeout("unix", path, ovsTimeout)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(ovsTimeout)) // an error shows in the next call
	ids := [][2]string{{names.Sandbox, c.args.ContainerID}, {names.CNIInterface, c.args.IfName}}
	err = json.NewEncoder(conn).Encode(map[string]any{"id": 1, "method": "transact", "params": []any{"Open_vSwitch", map[string]any{
		"op": "select", "table": "Interface", "columns": []string{"name"},
		"where": []any{[]any{"external_ids", "includes", []any{"map", ids}}},
	}}})
	var reply struct {
		Result []struct{ Rows []struct{ Name string } }
	}
	if err != nil || json.NewDecoder(conn).Decode(&reply) != nil || len(reply.Result) == 0 {
		return nil
	}
	for _, row := range reply.Result[0].Rows {
		if _, err := os.Stat(filepath.Join(devices, row.Name)); err != nil {
			continue
		}
		all = append(all, "port "+row.Name+" of "+names.IntegrationBridge)
	}
	return all
}
