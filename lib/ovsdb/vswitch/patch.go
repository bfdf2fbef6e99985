package vswitch

import (
	"context"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/client"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// EnsurePatch connects a bridge with br-int by a pair of patch ports, or corrects them, and waits for ovs-vswitchd.
// Both bridges must exist. Only flows use the port of the bridge. Ports without a gateway are tagged for
// RemovePatch; other external_ids stay.
func (s *Switch) EnsurePatch(ctx context.Context, bridge string) error {
	cfg, err := s.Converge(ctx, func(c client.Client) (confdb.Plan, error) { return planPatch(ctx, c, bridge) })
	if err != nil {
		return fmt.Errorf("connecting %s with %s: %w", bridge, names.IntegrationBridge, err)
	}
	return s.awaitPlan(ctx, cfg)
}

// awaitPlan waits until ovs-vswitchd has applied a plan, committed as configuration cfg.
func (s *Switch) awaitPlan(ctx context.Context, cfg int) error {
	if err := s.AwaitApplied(ctx, cfg); err != nil {
		return fmt.Errorf("waiting for ovs-vswitchd: %w", err)
	}
	return nil
}

// RemovePatch deletes the patch ports made by EnsurePatch for a bridge, unless a gateway uses them, and waits for
// ovs-vswitchd.
func (s *Switch) RemovePatch(ctx context.Context, bridge string) error {
	cfg, err := s.Converge(ctx, func(c client.Client) (confdb.Plan, error) {
		doomed, err := helperPatch(ctx, c, bridge)
		if err != nil || len(doomed) == 0 {
			return confdb.Plan{}, err
		}
		return confdb.DeletePorts(c, doomed)
	})
	if err != nil {
		return fmt.Errorf("disconnecting %s from %s: %w", bridge, names.IntegrationBridge, err)
	}
	return s.awaitPlan(ctx, cfg)
}

// helperPatch are the names of a bridge's patch ports used by the gateway helper only.
func helperPatch(ctx context.Context, c client.Client, bridge string) (map[string]bool, error) {
	found := map[string]bool{}
	for _, name := range []string{names.PatchToIntegration(bridge), names.PatchFromIntegration(bridge)} {
		iface := &vswitchdb.Interface{Name: name}
		there, err := confdb.Get(ctx, c, iface)
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

func planPatch(ctx context.Context, c client.Client, bridge string) (confdb.Plan, error) {
	var pl confdb.Plan
	outside, inside := names.PatchToIntegration(bridge), names.PatchFromIntegration(bridge)
	peer := &vswitchdb.Interface{Name: inside}
	if _, err := confdb.Get(ctx, c, peer); err != nil {
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

func planPatchEnd(ctx context.Context, c client.Client, pl *confdb.Plan, end patchEnd, tag map[string]string) error {
	br := &vswitchdb.Bridge{Name: end.bridge}
	if ok, err := confdb.Get(ctx, c, br); !ok || err != nil {
		return orMissing(err, end.bridge)
	}
	port, iface, err := confdb.FindPort(ctx, c, end.bridge, end.name)
	if err != nil {
		return err
	}
	outside := end.bridge != names.IntegrationBridge
	want := &vswitchdb.Interface{Name: end.name, Type: "patch", Options: map[string]string{"peer": end.peer}, ExternalIDs: tag}
	if port == nil {
		pl.Say("add port %s to bridge %s", end.name, end.bridge)
		return confdb.AppendPort(c, pl, br, end.prefix, confdb.NewPort{Iface: want, Isolated: outside})
	}
	if outside {
		if err := confdb.Isolate(c, pl, port); err != nil {
			return err
		}
	}
	if !hasOwner(iface) {
		if err := confdb.SetKeys(c, pl, iface, tag, nil); err != nil {
			return err
		}
	}
	if iface.Type == want.Type && iface.Options["peer"] == end.peer {
		return nil
	}
	pl.Say("set Interface %s type=patch options:peer=%s (was %q, %s)", end.name, end.peer, iface.Type, iface.Options["peer"])
	want.UUID = iface.UUID
	return pl.Add(c.Where(want).Update(want, &want.Type, &want.Options))
}
