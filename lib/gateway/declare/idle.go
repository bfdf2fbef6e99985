package declare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ofctl"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/reconcile"
	"ovn-k8s/lib/settings"
)

const (
	// readTimeout bounds the time for which Failed waits for the database, and idleTimeout for ovs-vswitchd.
	readTimeout = time.Second
	idleTimeout = 10 * time.Second
)

// An Idle is the time since when a helper cannot start, and there is no Monitor. Zero: it can.
type Idle struct {
	since  time.Time
	logged string // reason of the last error of Failed
}

// Failed declares the gateway of a shared bridge down if the helper could not start for DownAfter, or ends because its
// configuration is wrong, and the bridge cannot forward packets.
func (i *Idle) Failed(ctx context.Context, sw *vswitch.Switch, rundir string, log *logrus.Entry, why error) {
	if i.since.IsZero() {
		i.since = time.Now()
	}
	if ctx.Err() != nil || !settings.IsWrong(why) && time.Since(i.since) < DownAfter {
		return
	}
	i.report(log, declareIdle(ctx, sw, rundir, log, why))
}

// report logs each reason once, as long as it does not change.
func (i *Idle) report(log *logrus.Entry, err error) {
	switch {
	case err == nil:
		i.logged = ""
	case i.logged != reconcile.Reason(err):
		i.logged = reconcile.Reason(err)
		log.Warnf("declaring the gateway of this host down: %v", err)
	}
}

func declareIdle(ctx context.Context, sw *vswitch.Switch, rundir string, log *logrus.Entry, why error) error {
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	all, err := sw.Interfaces(reading)
	if err != nil {
		return fmt.Errorf("reading Open vSwitch's database: %w", err)
	}
	ctx, cancel = context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	if forwards(ctx, rundir, all) {
		return nil
	}
	return declareDown(ctx, sw, log, names.BridgeMode, why)
}

// forwards reports whether the bridge shared with a gateway, if there is one, forwards packets without a helper: it has a NIC
// that works, and flows of a helper before.
func forwards(ctx context.Context, rundir string, all []vswitch.Interface) bool {
	bridge, nics := SharedBridge(all)
	if bridge == "" {
		return true
	}
	works := slices.ContainsFunc(all, func(i vswitch.Interface) bool {
		return i.Bridge == bridge && slices.Contains(nics, i.Name) && i.Ofport > 0
	})
	has, err := ofctl.Bridge{RunDir: rundir, Name: bridge}.Has(ctx, bridgeflows.Cookie)
	return works && (has || err != nil && !errors.Is(err, ofctl.ErrDown))
}

// SharedBridge returns the bridge that gateway-init has connected with br-int, "" if
// there is none, and the NICs in it.
func SharedBridge(all []vswitch.Interface) (bridge string, nics []string) {
	for _, i := range all {
		to, ok := strings.CutPrefix(i.Name, names.PatchFromIntegration(""))
		if ok && i.Bridge == names.IntegrationBridge && i.ExternalIDs[names.GatewayTag] != "" && to != names.LocalBridge {
			bridge = to
		}
	}
	for _, i := range all {
		if i.Bridge == bridge && bridge != "" && (i.Type == "" || i.Type == "system" || i.Type == "dpdk") {
			nics = append(nics, i.Name)
		}
	}
	return bridge, nics
}
