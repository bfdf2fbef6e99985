package gateway

import (
	"context"
	"errors"
	"sync"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ofctl"
)

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
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		_ = kube.Retry(ctx, func() error { return e.waitUnlessEmpty(ctx, bridge) }, func(err error) { e.log.Warnf("trying again: %v", err) })
	}
}

// waitUnlessEmpty sets how long ovn-controller waits by whether br-int has flows.
func (e *engine) waitUnlessEmpty(ctx context.Context, bridge ofctl.Bridge) error {
	empty, err := bridge.Empty(ctx)
	if errors.Is(err, ofctl.ErrDown) {
		return nil // FollowFirst tells when it is served again
	}
	if err != nil {
		return err
	}
	changed, err := e.sw.WaitUnlessEmpty(ctx, empty)
	if changed && empty {
		e.log.Infof("%s has no flows: ovn-controller writes them without waiting", bridge.Name)
	}
	return err
}
