package gateway

import (
	"context"
	"maps"
	"slices"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/link/notify"
)

// followPacketFilter reconciles rules whenever another program changes some, until ctx ends, and at the start of each
// subscription, for changes before it. The resync finds changes that the kernel does not announce. Our own changes of nftables
// lead to nothing more.
func (e *engine) followPacketFilter(ctx context.Context) {
	parts := append(slices.Collect(maps.Keys(e.firewall)), partLocal, partFirewall)
	_ = kube.Retry(ctx, func() error {
		return e.firewall[partRules4].FollowOthers(ctx, func() { e.touch(parts...) })
	}, func(err error) { e.log.Warnf("trying again: %v", err) })
}

// followForwarding does the same for sysctls and routing rules.
func (e *engine) followForwarding(ctx context.Context) {
	_ = kube.Retry(ctx, func() error {
		return notify.Forwarding(ctx, func() { e.touch(partForwarding, partLocal) })
	}, func(err error) { e.log.Warnf("trying again: %v", err) })
}

// followAddresses records the host's addresses whenever they change. After an error it subscribes again, and reads them then.
func (e *engine) followAddresses(ctx context.Context) {
	_ = kube.Retry(ctx, func() error {
		return link.FollowAddresses(ctx, e.readAddresses)
	}, func(err error) { e.log.Warnf("trying again: %v", err) })
}

func (e *engine) readAddresses() error {
	addrs, err := link.Addresses()
	if err != nil {
		return err
	}
	e.send(func() []string {
		if e.addrs != nil && maps.EqualFunc(e.addrs, addrs, slices.Equal) {
			return nil
		}
		e.addrs = addrs
		return e.all()
	})
	return nil
}

// followLinks checks the MTU of tunnels whenever an interface changes.
func (e *engine) followLinks(ctx context.Context) {
	_ = kube.Retry(ctx, func() error {
		return link.FollowLinks(ctx, func() { e.touch(partMTU) })
	}, func(err error) { e.log.Warnf("trying again: %v", err) })
}
