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

// restoreAfter is how long ovn-controller has had its flows again when it gets its wait back. It pauses before it connects to a
// restarted ovsdb-server: 1 s, and twice as long each time up to 8 s, unless a row changes that long after it has connected
// (reconnect_disconnected in lib/reconnect.c of Open vSwitch). On a quiet node this row is the only one.
const restoreAfter = 10 * time.Second

// followRestarts has ovn-controller write its flows at once when ovs-vswitchd has restarted: see vswitch.WaitUnlessEmpty.
func (e *engine) followRestarts(ctx context.Context) {
	bridge := ofctl.Bridge{RunDir: e.config.RunDir, Name: names.IntegrationBridge}
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default: // it is told
		}
	}
	tell()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { bridge.FollowFirst(ctx, tell) })
	restore := time.NewTimer(restoreAfter) // for what a former process has left
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

// suspendWait has ovn-controller write flows at once if br-int has none. It reports whether that is so.
func (e *engine) suspendWait(ctx context.Context, bridge ofctl.Bridge) (empty bool, err error) {
	empty, err = bridge.Empty(ctx)
	if errors.Is(err, ofctl.ErrDown) {
		return false, nil // FollowFirst tells when it is served again
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

// restoreWait gives ovn-controller its wait back, if br-int has flows. It reports whether it has them.
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
