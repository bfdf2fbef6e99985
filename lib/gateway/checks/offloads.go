package checks

import (
	"context"
	"strings"

	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// SwitchOffloadsOff switches the offloads off that ovn-k8s-util has switched off when the NIC became a port of the bridge. A reboot
// switches them on again, and the userspace datapath drops merged packets ("Too big. GRO/TSO enabled?").
func SwitchOffloadsOff(ctx context.Context, sw *vswitch.Switch, bridge, nic string) error {
	ctx, cancel := ofDatabase(ctx)
	defer cancel()
	row, err := sw.FindBridge(ctx, bridge)
	if err != nil || row == nil || row.ExternalIDs[names.NICOffloads] == "" {
		return err
	}
	i, err := ifstate.Find(nic)
	if err != nil {
		return err
	}
	off := map[string]bool{}
	for name := range strings.SplitSeq(row.ExternalIDs[names.NICOffloads], ",") {
		off[name] = false
	}
	return ifstate.SetOffloads(i, off)
}
