package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/firewall"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/overlay/boot"
	"ovn-k8s/lib/overlay/cnisetup"
	"ovn-k8s/lib/overlay/files"
	"ovn-k8s/lib/overlay/host"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// A Departure has the changes to undo on a node's own host. It is empty on others.
type Departure struct {
	Port string   // the management port, or empty
	Pods []string // logical ports of pods that are plugged in

	host          *host.Host
	dead          []string     // ports of pods without a device
	before, after []files.Edit // before and after the database is changed
	rules         []string     // commands that remove the guards of pods
}

// Leave computes the changes to undo on this host, and changes nothing. A nil cni leaves CNI as it is.
func Leave(ctx context.Context, h *host.Host, node string, cni *cnisetup.Setup) (Departure, error) {
	d := Departure{host: h}
	all, err := h.Switch.Interfaces(ctx)
	if err != nil {
		return d, err
	}
	for _, i := range all {
		switch id := i.ExternalIDs[names.IfaceID]; {
		case id == names.ManagementPort(node) && i.Bridge == names.IntegrationBridge:
			d.Port = i.Name
		case isDead(i):
			d.dead = append(d.dead, i.Name)
		case i.ExternalIDs[names.Sandbox] != "":
			d.Pods = append(d.Pods, id)
		}
	}
	if d.Port == "" {
		return Departure{host: h}, nil
	}
	if d.rules, err = firewall.PlanFamilies(ctx, h.Config.Firewall, firewall.Claimed, nil); err != nil {
		h.Report.Warn("%v", err)
	}
	if d.after, err = boot.Forget(d.Port); err != nil || cni == nil {
		return d, err
	}
	if d.before, err = cni.Disable(); err != nil || len(d.Pods) > 0 {
		return d, err // the remaining pods need the plugin for DEL
	}
	programs, err := cni.Remove()
	d.after = append(d.after, programs...)
	return d, err
}

// isDead reports whether a sandbox left only its row, as after a reboot. Without the plugin no GC deletes the row.
func isDead(i vswitch.Interface) bool { return i.ExternalIDs[names.Sandbox] != "" && i.Ofport < 0 }

// Begin disables CNI, so that no pod is added.
func (d Departure) Begin() error { return files.Apply(d.before) }

// Finish undoes the rest, and last the management port, so that a repeated command recognizes the host.
func (d Departure) Finish(ctx context.Context) error {
	if d.Port == "" {
		return nil
	}
	if err := sweep(d.host.Config); err != nil {
		return err
	}
	if err := files.Apply(d.after); err != nil {
		return err
	}
	if len(d.rules) > 0 {
		if err := firewall.SyncFamilies(ctx, d.host.Config.Firewall, firewall.Claimed, nil); err != nil {
			return err
		}
	}
	if _, err := d.host.Switch.DetachWhere(ctx, isDead); err != nil {
		return err
	}
	return d.host.Report.Stage(ctx, "waiting for ovs-vswitchd to delete "+d.Port, func(ctx context.Context) error {
		_, err := d.host.Switch.DeletePort(ctx, names.IntegrationBridge, d.Port)
		return err
	})
}

// Preview prints the edits and the port to delete.
func (d Departure) Preview() {
	if d.Port == "" {
		return
	}
	lines := slices.Concat(files.Describe(d.before), files.Describe(d.after), d.rules)
	for _, port := range append(d.dead, d.Port) {
		lines = append(lines, fmt.Sprintf("delete port %s from bridge %s", port, names.IntegrationBridge))
	}
	d.host.Report.Section("this host", lines)
}

// Plugged returns the addresses of the pods plugged in on this host, by logical port.
func Plugged(ctx context.Context, h *host.Host) (map[string][]netip.Addr, error) {
	all, err := h.Switch.Interfaces(ctx)
	plugged := map[string][]netip.Addr{}
	for _, i := range all {
		if i.ExternalIDs[names.Sandbox] != "" && !isDead(i) {
			plugged[i.ExternalIDs[names.IfaceID]] = membership.ParseAddrs(i.ExternalIDs[names.IPAddress])
		}
	}
	return plugged, err
}

// LogicalPorts returns the logical ports of the interfaces on this host.
func LogicalPorts(ctx context.Context, h *host.Host) (map[string]bool, error) {
	all, err := h.Switch.Interfaces(ctx)
	ports := map[string]bool{}
	for _, i := range all {
		ports[i.ExternalIDs[names.IfaceID]] = true
	}
	return ports, err
}
