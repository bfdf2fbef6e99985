package watcher

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/ovsdb"
)

// followDeclared returns what has the engine read which hosts declare their gateways down. A burst of calls reads once.
func (e *engine) followDeclared(sb *ovsdb.DB) (tell func()) {
	var sent atomic.Bool
	return func() {
		if sent.Swap(true) {
			return
		}
		e.send(func() []nb.Unit {
			sent.Store(false) // before it is read: what comes later is read again
			options, ok := sb.CMSOptions()
			if !ok {
				return nil // what was known last is the best there is
			}
			return e.declare(declared(options))
		})
	}
}

// declared reads the options of hosts, which CMSOptions returns.
func declared(options map[string]map[string]string) desired.Declared {
	d := desired.Declared{}
	for chassis, o := range options {
		if modes := o[names.GatewayDownOption]; modes != "" {
			d[chassis] = modes
		}
	}
	return d
}

// declare records which hosts declare their gateways down.
func (e *engine) declare(d desired.Declared) []nb.Unit {
	touched := e.judged(func() []nb.Unit { return e.world.Put(d) })
	e.tellDeclared()
	return touched
}

// tellDeclared writes a WARN and an Event on the Node for each gateway whose host newly declares it down.
func (e *engine) tellDeclared() {
	before, now := e.declared, e.declaredDown()
	e.declared = now
	for _, name := range now {
		if slices.Contains(before, name) {
			continue
		}
		text := e.declaredText(name)
		e.log.Warn(text)
		if node := e.world.Cluster().Gateways[name].Node; node != "" {
			e.links.cluster.Warn(kube.Node(node), "GatewayDown", text)
		}
	}
	for _, name := range before {
		if !slices.Contains(now, name) {
			e.log.Infof("gateway %s: its host forwards packets again", name)
		}
	}
}

// declaredText says of a gateway that is declared down whether it is used.
func (e *engine) declaredText(name string) string {
	state := "in use, since all are unhealthy"
	if slices.Contains(e.world.DeadGateways(), name) {
		state = "down, routes withdrawn"
	}
	return fmt.Sprintf("gateway %s: %s: %s", name, state, whyDeclared)
}

// declaredDown lists the gateways whose hosts declare them down.
func (e *engine) declaredDown() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(e.world.Cluster().Gateways)), func(name string) bool { return !e.world.DeclaredDown(name) })
}

// whyDeclared is what to do about a gateway whose host declares it down.
const whyDeclared = "its host cannot forward packets: see \"ovs-appctl -t ovn-k8s-gateway-helper reconcile/show\" there"

// describeDeclared lists the gateways that are declared down.
func (e *engine) describeDeclared(options map[string]map[string]string) (lines []string) {
	e.world.Put(declared(options))
	for _, name := range e.declaredDown() {
		lines = append(lines, fmt.Sprintf("! Gateway %s: %s", name, whyDeclared))
	}
	return lines
}
