package uplink

import (
	"context"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// IsShared reports whether an interface is the patch port of a gateway in its shared bridge.
func IsShared(i vswitch.Interface, gateway string) bool {
	return i.Name == names.PatchToIntegration(i.Bridge) && i.ExternalIDs[names.GatewayTag] == gateway
}

// SharedBridge returns the shared bridge of a gateway on this host, "" without an existing NIC in it.
func SharedBridge(ctx context.Context, sw *vswitch.Switch, gateway string) (string, error) {
	all, err := sw.Interfaces(ctx)
	if err != nil {
		return "", err
	}
	for _, patch := range all {
		if !IsShared(patch, gateway) {
			continue
		}
		for _, nic := range all {
			if nic.Bridge != patch.Bridge || nic.Type != "" {
				continue
			}
			if there, err := link.Exists(nic.Name); err != nil || there {
				return patch.Bridge, err
			}
		}
	}
	return "", nil
}
