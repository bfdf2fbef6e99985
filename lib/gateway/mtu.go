package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
)

// followLinks checks the MTU of tunnels whenever an interface changes.
func (e *engine) followLinks(ctx context.Context) {
	changed := func() { e.touch(partMTU) }
	_ = kube.Retry(ctx, func() error {
		changed()
		return link.FollowLinks(ctx, changed)
	}, func(err error) { e.log.Warnf("trying again: %v", err) })
}

// A told error is also reported by an Event on the Node.
type told struct {
	reason string // of the Event
	error
}

// checkMTU reports the MTUs of pods and of tunnels to the Southbound database. Its error, and an Event on the Node,
// tell why packets of pods do not fit.
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
	var t config.Tunnel // none
	if len(tunnels) > 0 {
		t = config.Narrowest(tunnels)
	}
	if _, err := e.sw.SetCMSOption(ctx, names.MTUOption, t.Report(e.config.MTU)); err != nil {
		return err
	}
	pods := e.checkPodMTUs(ctx)
	switch err := t.Check(e.config.MTU); {
	case len(tunnels) == 0:
		return told{"NoTunnelAddress", fmt.Errorf("node %s: ovn-encap-ip of Open_vSwitch is not set, so that this host has no tunnels: set it to an address of this host", e.node)}
	case err != nil && t.NIC == "":
		return told{"NoTunnelAddress", fmt.Errorf("node %s: %w", e.node, err)}
	case err != nil:
		return told{"MTUTooLarge", fmt.Errorf("node %s: %w", e.node, err)}
	}
	return pods
}

// checkPodMTUs returns an error if there are pods created under a larger MTU: pods with the present MTU do not get
// their large packets. It reports the number of such pods to the Southbound database.
func (e *engine) checkPodMTUs(ctx context.Context) error {
	ports, err := e.largerPorts(ctx)
	if err != nil {
		return err
	}
	count := ""
	if len(ports) > 0 {
		count = strconv.Itoa(len(ports))
	}
	if _, err := e.sw.SetCMSOption(ctx, names.PodMTUOption, count); err != nil || len(ports) == 0 {
		return err
	}
	return told{"PodMTUTooLarge", fmt.Errorf("node %s: pods with a larger MTU than ovn-k8s-mtu %d: %d, logical port %s first: their large packets do not reach other pods: delete these pods, to have them made again",
		e.node, e.config.MTU, len(ports), slices.Min(ports))}
}

// largerPorts lists the logical ports of connected pods whose MTU is larger than the present one.
func (e *engine) largerPorts(ctx context.Context) (ports []string, err error) {
	ends, err := link.LargerHostEnds(e.config.MTU)
	if err != nil || len(ends) == 0 {
		return nil, err
	}
	all, err := e.sw.Interfaces(ctx)
	for _, i := range all {
		if p := i.ExternalIDs[names.IfaceID]; p != "" && slices.Contains(ends, i.Name) {
			ports = append(ports, p)
		}
	}
	return ports, err
}
