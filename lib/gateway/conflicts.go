package gateway

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/link"
)

// A conflict is a problem of a Service on this node.
type conflict struct {
	service service.Key
	uid     string
	reason  string // one word in CamelCase
	message string
}

// object returns the Service, for an Event.
func (c conflict) object() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: c.service.Namespace, Name: c.service.Name, UID: types.UID(c.uid)}}
}

// tell reports new conflicts in the log and by Events of the Services, and forgets
// solved ones. all are the present conflicts of a kind.
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
	for _, f := range nodeport.ServerClaims(v.host, v.frontends) {
		at := netip.AddrPortFrom(f.Addr, f.Number)
		all = append(all, conflict{f.Key, f.UID, "ExternalIPReserved", fmt.Sprintf(
			"external IP %v of service %s: address of a database or the API server, the connections of node %s to it are not balanced; remove it from spec.externalIPs", at, f.Key, v.host.Node)})
	}
	e.tell("servers", all)
}

// findConflicts looks for programs of this host that listen at NodePorts: the Service
// gets the connections of clients outside and of the host instead.
func (e *engine) findConflicts(_ context.Context, v view) error {
	if v.synced {
		e.tellServerClaims(v)
	}
	nodePorts := slices.DeleteFunc(slices.Collect(nodeport.Outside(v.frontends)), func(f service.Frontend) bool { return f.Kind != service.NodePort })
	if len(nodePorts) == 0 || !v.synced {
		e.tell(partConflicts, nil)
		return nil
	}
	listeners, err := link.Listeners()
	if err != nil {
		return err
	}
	found := map[service.Claim]conflict{} // one for both families
	for _, f := range nodePorts {
		if c := f.Claim(); listeners[link.Listener{Protocol: strings.ToLower(string(c.Protocol)), Port: c.Port}] {
			found[c] = conflict{f.Key, f.UID, "NodePortInUse", fmt.Sprintf("%s of service %s: a program of node %s listens there, too, and is not reached any more: give the service or the program another port", c, f.Key, v.host.Node)}
		}
	}
	e.tell(partConflicts, slices.Collect(maps.Values(found)))
	return nil
}

// serveHealth serves health checks, and reports those whose ports are in use.
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
