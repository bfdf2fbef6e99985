package gateway

import (
	"context"
	"errors"
	"slices"
	"time"

	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/gateway/declare"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ofctl"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
)

// An idleness is the time since when a helper cannot start its engine, which would declare gateways down. Zero: it can.
type idleness struct{ since time.Time }

// failed declares the gateway of a shared bridge down if the helper cannot start for declare.DownAfter, or ends because its
// configuration is wrong, and the bridge cannot forward packets.
func (i *idleness) failed(ctx context.Context, h *Helper, s settings.Session, why error) {
	if i.since.IsZero() {
		i.since = time.Now()
	}
	if ctx.Err() != nil || !settings.IsWrong(why) && time.Since(i.since) < declare.DownAfter {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	log := h.log("gateway")
	all, err := s.Switch.Interfaces(ctx)
	if err == nil && !forwards(ctx, s.Config.RunDir, all) {
		err = declare.Down(ctx, s.Switch, log, names.BridgeMode, why)
	}
	if err != nil {
		log.Warnf("declaring the gateway of this host down: %v", err)
	}
}

// forwards reports whether the bridge shared with a gateway, if there is one, forwards packets without a helper: it has a NIC that
// works, and flows of a helper before.
func forwards(ctx context.Context, rundir string, all []vswitch.Interface) bool {
	bridge, nics := sharedBridge(all)
	if bridge == "" {
		return true
	}
	works := slices.ContainsFunc(all, func(i vswitch.Interface) bool { return i.Bridge == bridge && slices.Contains(nics, i.Name) && i.Ofport > 0 })
	has, err := ofctl.Bridge{RunDir: rundir, Name: bridge}.Has(ctx, bridgeflows.Cookie)
	return works && (has || err != nil && !errors.Is(err, ofctl.ErrDown))
}
