package vswitch

import (
	"context"
	"fmt"

	"github.com/ovn-kubernetes/libovsdb/client"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// EnsurePatch connects a bridge with br-int by a pair of patch ports, or corrects
// what differs, and waits until ovs-vswitchd has done so. Both bridges must
// exist. external_ids of the ports are left to whoever made them.
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
			if err := appendPort(c, &pl, br, end.prefix, newPort{iface: want}); err != nil {
				return pl, err
			}
			continue
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
