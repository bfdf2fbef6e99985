package watcher

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/ovsdb"
)

// followDeclared returns a function to make the engine read the gateways declared down by their hosts. A burst of
// calls reads once.
func (e *engine) followDeclared(sb *ovsdb.DB) (tell func()) {
	var sent atomic.Bool
	return func() {
		if sent.Swap(true) {
			return
		}
		e.send(func() []nb.Unit {
			sent.Store(false) // before reading: later changes are read again
			options, ok := sb.CMSOptions()
			if !ok {
				return nil // keep the last known state
			}
			return e.declare(declared(options))
		})
	}
}

// declared reads the options of hosts, as returned by CMSOptions.
func declared(options map[string]map[string]string) facts.Declared {
	d := facts.Declared{}
	for chassis, o := range options {
		if modes := o[names.GatewayDownOption]; modes != "" {
			d[chassis] = modes
		}
	}
	return d
}

// declare records the gateways declared down by their hosts.
func (e *engine) declare(d facts.Declared) []nb.Unit {
	touched := e.judged(func() []nb.Unit { return e.world.Put(d) })
	e.tellDeclared()
	return touched
}

// tellDeclared writes a WARN and an Event on the Node for each gateway newly declared down by its host.
func (e *engine) tellDeclared() {
	before, now := e.declared, e.declaredDown()
	e.declared = now
	for _, name := range now {
		if slices.Contains(before, name) {
			continue
		}
		text := e.declaredText(name)
		e.log.Warn(text)
		if node := e.world.Facts().Cluster.Gateways[name].Node; node != "" {
			e.links.cluster.Warn(kube.Node(node), "GatewayDown", text)
		}
	}
	for _, name := range before {
		if !slices.Contains(now, name) {
			e.log.Infof("gateway %s: its host forwards packets again", name)
		}
	}
}

// declaredText says whether a gateway declared down is in use.
func (e *engine) declaredText(name string) string {
	state := "in use, since all are unhealthy"
	if slices.Contains(e.world.Facts().DeadGateways(), name) {
		state = "down, routes withdrawn"
	}
	return fmt.Sprintf("gateway %s: %s: %s", name, state, whyDeclared)
}

// declaredDown lists the gateways declared down by their hosts.
func (e *engine) declaredDown() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(e.world.Facts().Cluster.Gateways)), func(name string) bool { return !e.world.Facts().DeclaredDown(name) })
}

// whyDeclared is the remedy for a gateway declared down by its host.
const whyDeclared = "its host cannot forward packets: see \"ovs-appctl -t ovn-k8s-gateway-helper reconcile/show\" there"

// describeDeclared lists the gateways declared down.
func (e *engine) describeDeclared(options map[string]map[string]string) (lines []string) {
	e.world.Put(declared(options))
	for _, name := range e.declaredDown() {
		lines = append(lines, fmt.Sprintf("! Gateway %s: %s", name, whyDeclared))
	}
	return lines
}
