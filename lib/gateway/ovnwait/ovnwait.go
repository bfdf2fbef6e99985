// Package ovnwait makes ovn-controller write its flows at once after a restart of ovs-vswitchd.
package ovnwait

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ofctl"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// restoreAfter is the time from the return of the flows until ovn-controller gets its wait back. Before connecting to
// a restarted ovsdb-server, ovn-controller pauses for 1 s, and twice as long each time up to 8 s, unless a row
// changes that long after it has connected (reconnect_disconnected in lib/reconnect.c of Open vSwitch). On a quiet
// node only this row changes.
const restoreAfter = 10 * time.Second

// A Guard follows restarts of ovs-vswitchd, see ovncontroller.Settings.WaitUnlessEmpty.
type Guard struct {
	sw     *vswitch.Switch
	bridge ofctl.Bridge
	log    *logrus.Entry
}

// New returns a Guard of br-int.
func New(sw *vswitch.Switch, runDir string, log *logrus.Entry) *Guard {
	return &Guard{sw, ofctl.Bridge{RunDir: runDir, Name: names.IntegrationBridge}, log}
}

// Run follows restarts until ctx ends.
func (g *Guard) Run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default: // a signal is already waiting
		}
	}
	tell()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { g.bridge.FollowFirst(ctx, tell) })
	restore := time.NewTimer(restoreAfter) // for a wait left suspended by an earlier process
	defer restore.Stop()
	retry := func(try func() error) {
		_ = kube.Retry(ctx, try, func(err error) { g.log.Warnf("trying again: %v", err) })
	}
	for empty := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			before := empty
			retry(func() (err error) { empty, err = g.suspend(ctx); return err })
			if before && !empty {
				restore.Reset(restoreAfter)
			}
		case <-restore.C:
			restored := false
			retry(func() (err error) { restored, err = g.restore(ctx); return err })
			if !restored {
				restore.Reset(restoreAfter)
			}
		}
	}
}

// suspend makes ovn-controller write flows at once if br-int has none. It reports whether br-int has none.
func (g *Guard) suspend(ctx context.Context) (empty bool, err error) {
	empty, err = g.bridge.Empty(ctx)
	if errors.Is(err, ofctl.ErrDown) {
		return false, nil // FollowFirst reports when the bridge is back
	}
	if err != nil || !empty {
		return false, err
	}
	changed, err := g.sw.Controller().WaitUnlessEmpty(ctx, true)
	if changed {
		g.log.Infof("%s has no flows: ovn-controller writes them without waiting", g.bridge.Name)
	}
	return true, err
}

// restore gives ovn-controller its wait back, if br-int has flows. It reports whether it did.
func (g *Guard) restore(ctx context.Context) (bool, error) {
	empty, err := g.bridge.Empty(ctx)
	if empty || errors.Is(err, ofctl.ErrDown) {
		return false, nil
	}
	if err == nil {
		_, err = g.sw.Controller().WaitUnlessEmpty(ctx, false)
	}
	return err == nil, err
}
