package gateway

import (
	"context"
	"fmt"
	"strings"
	"time"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ofctl"
)

// staleInterval is how soon connections are looked at again after endpoints
// changed, until none has to be forgotten: OVN may not have known at first.
const staleInterval = time.Second

// forgetStale has Open vSwitch forget the UDP connections of this host's pods, and
// those through its gateway, to endpoints that are gone. OVN 23.03 does so itself,
// but not where ways in are variables, as NodePorts are; and a client that goes on
// sending may be faster than it.
func (e *engine) forgetStale(ctx context.Context, v view) error {
	now := udpEndpoints(v.services)
	if !v.synced || now == e.checked {
		return nil
	}
	stale := nodeport.StaleInside(v.services)
	if stale == nil {
		e.checked = now
		return nil
	}
	n, err := ofctl.ForgetUDP(ctx, e.config.RunDir, func(c ofctl.Connection) bool { return stale(c.To, c.Answers) })
	if err != nil {
		return err
	}
	if n > 0 {
		e.log.Infof("Open vSwitch forgot UDP connections to %d endpoints that are gone", n)
	}
	if n == 0 && now == e.looked {
		e.checked = now
		return nil
	}
	e.looked = now
	time.AfterFunc(staleInterval, func() { e.touch(partStale) })
	return nil
}

// udpEndpoints says in one string who answers to UDP.
func udpEndpoints(services []service.Resolved) string {
	var b strings.Builder
	for _, s := range services {
		for i, p := range s.Ports {
			if p.Protocol != "UDP" {
				continue
			}
			fmt.Fprint(&b, s.Key, s.ClusterIPs, s.ExternalIPs, s.Ingress, p)
			for _, e := range s.Endpoints[i] {
				fmt.Fprint(&b, " ", e.AddrPort())
			}
		}
	}
	return b.String()
}
