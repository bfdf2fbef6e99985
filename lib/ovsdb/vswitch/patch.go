package vswitch

import (
	"context"
	"fmt"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/client"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// isolatedVLAN is the only VLAN trunked by the patch port of a shared bridge. IEEE 802.1Q reserves 4095, so no
// frame has it.
const isolatedVLAN = 4095

// planIsolation keeps the action NORMAL from using a patch port. conf.db keeps the port while ovs-vswitchd
// restarts, but not the flows: without isolation the bridge learns the MAC shared by host and gateway router behind
// the patch port. Flows with the port as output ignore its VLANs.
func planIsolation(c client.Client, pl *plan, port *vswitchdb.Port) error {
	mode := vswitchdb.PortVLANModeTrunk
	if port.Tag == nil && port.VLANMode != nil && *port.VLANMode == mode && slices.Equal(port.Trunks, []int{isolatedVLAN}) {
		return nil
	}
	pl.say("set Port %s vlan_mode=%s trunks=%d", port.Name, mode, isolatedVLAN)
	port.Tag, port.VLANMode, port.Trunks = nil, &mode, []int{isolatedVLAN}
	return pl.add(c.Where(port).Update(port, &port.Tag, &port.VLANMode, &port.Trunks))
}

// EnsurePatch connects a bridge with br-int by a pair of patch ports, or corrects them, and waits for ovs-vswitchd.
// Both bridges must exist. Only flows use the port of the bridge. Ports without a gateway are tagged for
// RemovePatch; other external_ids stay.
func (s *Switch) EnsurePatch(ctx context.Context, bridge string) error {
	pl, cfg, err := s.converge(ctx, func(c client.Client) (plan, error) { return planPatch(ctx, c, bridge) })
	if err != nil {
		return fmt.Errorf("connecting %s with %s: %w", bridge, names.IntegrationBridge, err)
	}
	return s.awaitApplied(ctx, pl, cfg)
}

// awaitApplied waits until ovs-vswitchd has applied a plan, committed as configuration cfg.
func (s *Switch) awaitApplied(ctx context.Context, pl plan, cfg int) error {
	if len(pl.ops) == 0 {
		return nil
	}
	err := s.await(ctx, func(c client.Client) (bool, error) { return applied(ctx, c, cfg) })
	if err != nil {
		return fmt.Errorf("waiting for ovs-vswitchd: %w%s", err, s.hint(ctx, err))
	}
	return nil
}

// RemovePatch deletes the patch ports made by EnsurePatch for a bridge, unless a gateway uses them, and waits for
// ovs-vswitchd.
func (s *Switch) RemovePatch(ctx context.Context, bridge string) error {
	pl, cfg, err := s.converge(ctx, func(c client.Client) (plan, error) {
		doomed, err := helperPatch(ctx, c, bridge)
		if err != nil || len(doomed) == 0 {
			return plan{}, err
		}
		return planDelete(ctx, c, doomed)
	})
	if err != nil {
		return fmt.Errorf("disconnecting %s from %s: %w", bridge, names.IntegrationBridge, err)
	}
	return s.awaitApplied(ctx, pl, cfg)
}

// helperPatch are the names of a bridge's patch ports used by the gateway helper only.
func helperPatch(ctx context.Context, c client.Client, bridge string) (map[string]bool, error) {
	found := map[string]bool{}
	for _, name := range []string{names.PatchToIntegration(bridge), names.PatchFromIntegration(bridge)} {
		iface := &vswitchdb.Interface{Name: name}
		there, err := get(ctx, c, iface)
		switch {
		case err != nil:
			return nil, err
		case !there:
		case hasOwner(iface) || iface.ExternalIDs[names.HelperPatch] == "":
			return nil, nil // a gateway's: both ends stay
		default:
			found[name] = true
		}
	}
	return found, nil
}

// hasOwner reports whether a patch port belongs to a gateway, also of the Python era.
func hasOwner(i *vswitchdb.Interface) bool {
	return i.ExternalIDs[names.GatewayTag] != "" || i.ExternalIDs[names.IfaceID] != ""
}

// A patchEnd is one of the two patch ports between a bridge and br-int.
type patchEnd struct{ prefix, bridge, name, peer string }

func planPatch(ctx context.Context, c client.Client, bridge string) (plan, error) {
	var pl plan
	outside, inside := names.PatchToIntegration(bridge), names.PatchFromIntegration(bridge)
	peer := &vswitchdb.Interface{Name: inside}
	if _, err := get(ctx, c, peer); err != nil {
		return pl, err
	}
	var tag map[string]string
	if !hasOwner(peer) {
		tag = map[string]string{names.HelperPatch: "true"}
	}
	for _, end := range []patchEnd{{"outside_", bridge, outside, inside}, {"inside_", names.IntegrationBridge, inside, outside}} {
		if err := planPatchEnd(ctx, c, &pl, end, tag); err != nil {
			return pl, err
		}
	}
	return pl, nil
}

func planPatchEnd(ctx context.Context, c client.Client, pl *plan, end patchEnd, tag map[string]string) error {
	br := &vswitchdb.Bridge{Name: end.bridge}
	if ok, err := get(ctx, c, br); !ok || err != nil {
		return orMissing(err, end.bridge)
	}
	port, iface, err := findPort(ctx, c, end.bridge, end.name)
	if err != nil {
		return err
	}
	outside := end.bridge != names.IntegrationBridge
	want := &vswitchdb.Interface{Name: end.name, Type: "patch", Options: map[string]string{"peer": end.peer}, ExternalIDs: tag}
	if port == nil {
		pl.say("add port %s to bridge %s", end.name, end.bridge)
		return appendPort(c, pl, br, end.prefix, newPort{iface: want, isolated: outside})
	}
	if outside {
		if err := planIsolation(c, pl, port); err != nil {
			return err
		}
	}
	if !hasOwner(iface) {
		if err := setKeys(c, pl, iface, tag, nil); err != nil {
			return err
		}
	}
	if iface.Type == want.Type && iface.Options["peer"] == end.peer {
		return nil
	}
	pl.say("set Interface %s type=patch options:peer=%s (was %q, %s)", end.name, end.peer, iface.Type, iface.Options["peer"])
	want.UUID = iface.UUID
	return pl.add(c.Where(want).Update(want, &want.Type, &want.Options))
}
