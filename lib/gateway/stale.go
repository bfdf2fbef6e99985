package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/ofctl"
)

// staleInterval is how soon connections are looked at again as long as some had to
// be forgotten: OVN may not have known yet that their endpoint is gone.
const staleInterval = time.Second

// forgetStale has Open vSwitch forget the UDP connections of this host's pods, and
// those through its gateway, to endpoints that are gone. OVN does so itself, but
// where ways in are variables, as NodePorts are.
func (e *engine) forgetStale(ctx context.Context, v view) error {
	ways := slices.DeleteFunc(nodeport.Ways(v.services), func(w nodeport.Way) bool { return w.Protocol != "UDP" })
	now := endpointsOf(ways)
	if !v.synced || now == e.checked {
		return nil
	}
	stale := nodeport.StaleInside(ways)
	n, err := ofctl.ForgetUDP(ctx, e.config.RunDir, func(c ofctl.Connection) bool { return stale(c.To, c.Answers) })
	if err != nil {
		return err
	}
	if n == 0 {
		e.checked = now
		return nil
	}
	e.log.Infof("Open vSwitch forgot UDP connections to %d endpoints that are gone", n)
	time.AfterFunc(staleInterval, func() { e.touch(partStale) })
	return nil
}

// endpointsOf says in one string who answers at ways in.
func endpointsOf(ways []nodeport.Way) string {
	var b strings.Builder
	for _, w := range ways {
		fmt.Fprint(&b, w.Key, w.Addr, w.To)
		for _, e := range w.Endpoints {
			fmt.Fprint(&b, " ", e.AddrPort())
		}
		b.WriteString("\n")
	}
	return b.String()
}
