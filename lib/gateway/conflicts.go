package gateway

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/link"
)

// A conflict is what is wrong on this node with a Service.
type conflict struct {
	service service.Key
	uid     string
	reason  string // one word in CamelCase
	message string
}

// tell warns of what was not wrong before, in the log and by Events of the
// Services, and takes note of what is over. Of a kind of conflicts, all are
// told at once.
func (e *engine) tell(kind string, all []conflict) {
	now := map[string]bool{}
	for _, c := range all {
		now[c.message] = true
		if !e.told[kind][c.message] {
			e.log.Warn(c.message)
			e.warn(c)
		}
	}
	e.told[kind] = now
}

// tellServerClaims warns of Services whose external IP is the address of a database
// or the API server.
func (e *engine) tellServerClaims(v view) {
	var all []conflict
	for _, w := range nodeport.ServerClaims(v.host, v.services) {
		at := netip.AddrPortFrom(w.Addr, w.To)
		all = append(all, conflict{w.Key, w.UID, "ExternalIPReserved", fmt.Sprintf(
			"external IP %v of service %s: address of a database or the API server, the connections of node %s to it are not balanced; remove it from spec.externalIPs", at, w.Key, v.host.Node)})
	}
	e.tell("servers", all)
}

// findConflicts looks for programs of this host that listen at NodePorts: clients
// outside, and the host itself, come to the Service and not to them.
func (e *engine) findConflicts(_ context.Context, v view) error {
	if v.synced {
		e.tellServerClaims(v)
	}
	ways := slices.DeleteFunc(nodeport.Ways(v.services), func(w nodeport.Way) bool { return w.Addr.IsValid() })
	if len(ways) == 0 || !v.synced {
		e.tell(partConflicts, nil)
		return nil
	}
	listeners, err := link.Listeners()
	if err != nil {
		return err
	}
	found := map[service.Claim]conflict{} // each of both families
	for _, w := range ways {
		c := service.Claim{Addr: netip.Addr{}, Protocol: w.Protocol, Port: w.To}
		if listeners[link.Listener{Protocol: strings.ToLower(string(w.Protocol)), Port: w.To}] {
			found[c] = conflict{w.Key, w.UID, "NodePortInUse", fmt.Sprintf("%s of service %s: a program of node %s listens there, too, and is not reached any more: give the service or the program another port", c, w.Key, v.host.Node)}
		}
	}
	e.tell(partConflicts, slices.Collect(maps.Values(found)))
	return nil
}

// serveHealth serves health checks, and complains of those whose ports are in use.
func (e *engine) serveHealth(v view) error {
	if !v.synced {
		return nil
	}
	busy := e.health.serve(nodeport.HealthChecks(v.host.Node, v.services))
	var all []conflict
	for _, s := range v.services {
		if err := busy[s.HealthCheckNodePort]; err != nil {
			all = append(all, conflict{s.Key, s.UID, "HealthCheckNodePortInUse", fmt.Sprintf("on node %s: %v", v.host.Node, err)})
		}
	}
	e.tell(partHealth, all)
	if len(busy) > 0 {
		return fmt.Errorf("%d health checks have no port", len(busy))
	}
	return nil
}
