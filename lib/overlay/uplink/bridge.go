package uplink

import (
	"context"
	"errors"
	"fmt"

	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/flow"
	"ovn-k8s/lib/flowsync"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ofctl"
	"ovn-k8s/lib/overlay/host"
	"ovn-k8s/lib/overlay/progress"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// errNoMAC has the text of the Python era: scripts may match it.
//
//lint:ignore ST1005 the original's text
var errNoMAC = errors.New("No mac_address found for the bridge-interface")

// planBridge plans a gateway with a bridge shared with the host.
func (u *Uplink) planBridge(ctx context.Context) error {
	g := &u.Gateway
	all, err := u.host.Switch.Interfaces(ctx)
	if err != nil {
		return err
	}
	nics := 0
	for _, i := range all {
		if i.Bridge != g.Interface {
			continue
		}
		if i.Name == g.Interface {
			g.MAC = i.MAC
		}
		if i.Type == "" || i.Type == "system" || i.Type == "dpdk" {
			nics++
		}
	}
	switch {
	case g.Interface == names.IntegrationBridge:
		return fmt.Errorf("%s is OVN's own bridge: give the one with the NIC", g.Interface)
	case g.MAC == "":
		return fmt.Errorf("%w: there is no Open vSwitch bridge %s; \"ovn-k8s-util nics-to-bridge NIC\" makes one", errNoMAC, g.Interface)
	case nics == 0:
		return fmt.Errorf("bridge %s has no NIC: nothing on it leads outside; \"ovn-k8s-util nics-to-bridge NIC\" makes a bridge with one", g.Interface)
	}
	if err := sameDatapath(ctx, u.host.Switch, g.Interface); err != nil {
		return err
	}
	nic, err := inspect(ctx, u.host.Report, g.Interface)
	if err != nil {
		return err
	}
	u.port.Bridge, u.port.MAC = g.Interface, g.MAC
	g.Ports = u.host.Config.GatewayPorts
	warnOfPorts(g.Ports, u.host.Report)
	return u.hasAddresses(nic)
}

// sameDatapath checks that patch ports can connect a bridge with br-int.
func sameDatapath(ctx context.Context, sw *vswitch.Switch, bridge string) error {
	is, err := sw.DatapathType(ctx, bridge)
	if err != nil {
		return err
	}
	want, err := sw.DatapathType(ctx, names.IntegrationBridge)
	if err != nil { // br-int is yet to be made
		if want = sw.ExternalIDs()["ovn-bridge-datapath-type"]; want == "" {
			want = "system"
		}
	}
	if is == want {
		return nil
	}
	return fmt.Errorf("bridge %s has datapath type %s, but %s has %s, and nothing passes between them: run \"ovs-vsctl set Bridge %s datapath_type=%s\"",
		bridge, is, names.IntegrationBridge, want, bridge, want)
}

// warnOfPorts warns if the host's own connections may have the same source address and ports as connections of
// pods.
func warnOfPorts(ports string, report *progress.Reporter) {
	var low, high uint16
	if _, err := fmt.Sscanf(ports, "%d-%d", &low, &high); err != nil {
		return // config has checked it
	}
	from, to, err := link.LocalPorts()
	if err != nil || from > high || to < low || to == 0 {
		return
	}
	report.Warn("pods leave with source ports %s, and this host's own connections with %d-%d (net.ipv4.ip_local_port_range), of the same address: set one of them so that they do not overlap, the first by external_ids:ovn-k8s-gateway-port-range", ports, from, to)
}

// dropFlows removes the gateway helper's flows from bridges without a gateway. A running helper does so itself when
// the patch port is gone, but it may have been stopped.
func dropFlows(ctx context.Context, h *host.Host) error {
	all, err := h.Switch.Interfaces(ctx)
	if err != nil {
		return err
	}
	shared := map[string]bool{names.IntegrationBridge: true, names.LocalBridge: true}
	for _, i := range all {
		if i.Type == "patch" && i.Name == names.PatchToIntegration(i.Bridge) {
			shared[i.Bridge] = true
		}
	}
	ours := func(f flow.Flow) bool { return f.Cookie == bridgeflows.Cookie }
	for _, i := range all {
		if i.Name != i.Bridge || shared[i.Bridge] {
			continue
		}
		_, err := flowsync.Sync(ctx, ofctl.Bridge{RunDir: h.RunDir, Name: i.Bridge}, nil, ours)
		if err != nil && !errors.Is(err, ofctl.ErrDown) { // ErrDown: the flows went with the bridge
			return fmt.Errorf("removing the flows of %s: %w", i.Bridge, err)
		}
	}
	return nil
}
