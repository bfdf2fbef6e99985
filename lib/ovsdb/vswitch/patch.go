package vswitch

import (
	"context"
	"fmt"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/client"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// isolatedVLAN is the only VLAN that the patch port of a shared bridge trunks.
// IEEE 802.1Q reserves 4095, so no frame has it.
const isolatedVLAN = 4095

// planIsolation keeps the action NORMAL from using a patch port. conf.db keeps
// the port while ovs-vswitchd restarts, but not the flows: without isolation the
// bridge learns the MAC of the host, which the gateway router has, too, behind
// the patch port. Flows that name the port ignore its VLANs.
func planIsolation(c client.Client, pl *plan, port *vswitchdb.Port) error {
	mode := vswitchdb.PortVLANModeTrunk
	if port.Tag == nil && port.VLANMode != nil && *port.VLANMode == mode && slices.Equal(port.Trunks, []int{isolatedVLAN}) {
		return nil
	}
	pl.say("set Port %s vlan_mode=%s trunks=%d", port.Name, mode, isolatedVLAN)
	port.Tag, port.VLANMode, port.Trunks = nil, &mode, []int{isolatedVLAN}
	return pl.add(c.Where(port).Update(port, &port.Tag, &port.VLANMode, &port.Trunks))
}

// EnsurePatch connects a bridge with br-int by a pair of patch ports, or corrects
// what differs, and waits until ovs-vswitchd has done so. Both bridges must
// exist. Only flows use the port of the bridge. external_ids of the ports are left
// to whoever made them.
func (s *Switch) EnsurePatch(ctx context.Context, bridge string) error {
	pl, cfg, err := s.converge(ctx, func(c client.Client) (plan, error) { return planPatch(ctx, c, bridge) })
	if err != nil {
		return fmt.Errorf("connecting %s with %s: %w", bridge, names.IntegrationBridge, err)
	}
	if len(pl.ops) == 0 {
		return nil
	}
	err = s.await(ctx, func(c client.Client) (bool, error) { return applied(ctx, c, cfg) })
	if err != nil {
		return fmt.Errorf("waiting for ovs-vswitchd: %w%s", err, s.hint(ctx, err))
	}
	return nil
}

func planPatch(ctx context.Context, c client.Client, bridge string) (plan, error) {
	var pl plan
	outside, inside := names.PatchToIntegration(bridge), names.PatchFromIntegration(bridge)
	for _, end := range []struct{ prefix, bridge, name, peer string }{
		{"outside_", bridge, outside, inside},
		{"inside_", names.IntegrationBridge, inside, outside},
	} {
		br := &vswitchdb.Bridge{Name: end.bridge}
		if ok, err := get(ctx, c, br); !ok || err != nil {
			if err == nil {
				err = fmt.Errorf("there is no bridge %s", end.bridge)
			}
			return pl, err
		}
		port, iface, err := findPort(ctx, c, end.bridge, end.name)
		if err != nil {
			return pl, err
		}
		want := &vswitchdb.Interface{Name: end.name, Type: "patch", Options: map[string]string{"peer": end.peer}}
		if port == nil {
			pl.say("add port %s to bridge %s", end.name, end.bridge)
			if err := appendPort(c, &pl, br, end.prefix, newPort{iface: want, isolated: end.name == outside}); err != nil {
				return pl, err
			}
			continue
		}
		if end.name == outside {
			if err := planIsolation(c, &pl, port); err != nil {
				return pl, err
			}
		}
		if iface.Type == want.Type && iface.Options["peer"] == end.peer {
			continue
		}
		pl.say("set Interface %s type=patch options:peer=%s (was %q, %s)", end.name, end.peer, iface.Type, iface.Options["peer"])
		want.UUID = iface.UUID
		if err := pl.add(c.Where(want).Update(want, &want.Type, &want.Options)); err != nil {
			return pl, err
		}
	}
	return pl, nil
}
