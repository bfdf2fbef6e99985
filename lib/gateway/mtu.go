package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
)

// followLinks looks at the MTU of tunnels whenever an interface changes.
func (e *engine) followLinks(ctx context.Context) {
	changed := func() { e.touch(partMTU) }
	_ = kube.Retry(ctx, func() error {
		changed()
		return link.FollowLinks(ctx, changed)
	}, func(err error) { e.log.Warnf("trying again: %v", err) })
}

// checkMTU tells the Southbound database of the MTUs of pods and of tunnels, and is an error if packets of pods do not
// fit. An Event on the Node says so, too.
func (e *engine) checkMTU(ctx context.Context) error {
	var failed error
	tunnels := e.config.Tunnels(func(a netip.Addr) (string, int) {
		name, mtu, err := link.NICWith(a)
		failed = errors.Join(failed, err)
		return name, mtu
	})
	if failed != nil {
		return failed
	}
	if len(tunnels) == 0 {
		return errors.New("ovn-encap-ip of Open_vSwitch is not set, so that this host has no tunnels: set it to an address of this host")
	}
	t := config.Narrowest(tunnels)
	if _, err := e.sw.SetCMSOption(ctx, names.MTUOption, t.Report(e.config.MTU)); err != nil {
		return err
	}
	if err := t.Check(e.config.MTU); err != nil {
		return fmt.Errorf("node %s: %w", e.node, err)
	}
	return nil
}
