package vswitch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitch/ovncontroller"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// planDeclared declares a shared bridge down before it is connected with br-int. The gateway helper removes this
// after it wrote the bridge's first flows. planDeclared also removes declarations of modes without a gateway.
func planDeclared(ctx context.Context, c client.Client, p GatewayPort) (confdb.Plan, error) {
	var pl confdb.Plan
	var ifaces []*vswitchdb.Interface
	if err := confdb.List(ctx, c, &ifaces); err != nil {
		return pl, err
	}
	modes, made := map[string]bool{}, false
	for _, i := range ifaces {
		if _, ok := strings.CutPrefix(i.Name, names.PatchFromIntegration("")); !ok || i.ExternalIDs[names.GatewayTag] == "" {
			continue
		}
		switch {
		case i.ExternalIDs[names.GatewayTag] == p.Gateway: // p decides for its own gateway
			made = made || p.Bridge != "" && i.Name == p.inside().Name
		case i.Name == names.PatchFromIntegration(names.LocalBridge):
			modes[names.LocalMode] = true
		default:
			modes[names.BridgeMode] = true
		}
	}
	shares := p.Bridge != "" && !p.Own
	modes[names.BridgeMode], modes[names.LocalMode] = modes[names.BridgeMode] || shares, modes[names.LocalMode] || p.Own
	err := ovncontroller.EditOption(ctx, c, &pl, names.GatewayDownOption, func(before string) string {
		down := slices.DeleteFunc(names.SplitModes(before), func(mode string) bool { return !modes[mode] })
		if shares && !made && !slices.Contains(down, names.BridgeMode) {
			down = append(down, names.BridgeMode)
		}
		return names.JoinModes(down)
	})
	if err != nil {
		return pl, fmt.Errorf("planning external_ids:%s: %w", ovncontroller.CMSOptions, err)
	}
	return pl, nil
}
