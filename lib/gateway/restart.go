package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ofctl"
)

// restoreAfter is the time from the return of the flows until ovn-controller gets its wait back. Before connecting to
// a restarted ovsdb-server, ovn-controller pauses for 1 s, and twice as long each time up to 8 s, unless a row
// changes that long after it has connected (reconnect_disconnected in lib/reconnect.c of Open vSwitch). On a quiet
// node only this row changes.
const restoreAfter = 10 * time.Second

// followRestarts makes ovn-controller write its flows at once after a restart of ovs-vswitchd: see
// vswitch.WaitUnlessEmpty.
func (e *engine) followRestarts(ctx context.Context) {
	bridge := ofctl.Bridge{RunDir: e.config.RunDir, Name: names.IntegrationBridge}
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
	wg.Go(func() { bridge.FollowFirst(ctx, tell) })
	restore := time.NewTimer(restoreAfter) // for a wait left suspended by an earlier process
	defer restore.Stop()
	retry := func(try func() error) {
		_ = kube.Retry(ctx, try, func(err error) { e.log.Warnf("trying again: %v", err) })
	}
	for empty := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			before := empty
			retry(func() (err error) { empty, err = e.suspendWait(ctx, bridge); return err })
			if before && !empty {
				restore.Reset(restoreAfter)
			}
		case <-restore.C:
			restored := false
			retry(func() (err error) { restored, err = e.restoreWait(ctx, bridge); return err })
			if !restored {
				restore.Reset(restoreAfter)
			}
		}
	}
}

// suspendWait makes ovn-controller write flows at once if br-int has none. It reports whether br-int has none.
func (e *engine) suspendWait(ctx context.Context, bridge ofctl.Bridge) (empty bool, err error) {
	empty, err = bridge.Empty(ctx)
	if errors.Is(err, ofctl.ErrDown) {
		return false, nil // FollowFirst reports when the bridge is back
	}
	if err != nil || !empty {
		return false, err
	}
	changed, err := e.sw.WaitUnlessEmpty(ctx, true)
	if changed {
		e.log.Infof("%s has no flows: ovn-controller writes them without waiting", bridge.Name)
	}
	return true, err
}

// restoreWait gives ovn-controller its wait back, if br-int has flows. It reports whether it did.
func (e *engine) restoreWait(ctx context.Context, bridge ofctl.Bridge) (bool, error) {
	empty, err := bridge.Empty(ctx)
	if empty || errors.Is(err, ofctl.ErrDown) {
		return false, nil
	}
	if err == nil {
		_, err = e.sw.WaitUnlessEmpty(ctx, false)
	}
	return err == nil, err
}
