package health

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// FollowDeclared returns a function to read the gateways declared down by their hosts. A burst of
// calls reads once.
func (h *Health) FollowDeclared(read func() (options map[string]map[string]string, ok bool)) (tell func()) {
	var sent atomic.Bool
	return func() {
		if sent.Swap(true) {
			return
		}
		h.send(func() []nb.Unit {
			sent.Store(false) // before reading: later changes are read again
			options, ok := read()
			if !ok {
				return nil // keep the last known state
			}
			return h.declare(declared(options))
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
func (h *Health) declare(d facts.Declared) []nb.Unit {
	touched := h.reportTransitions(func() []nb.Unit { return h.network.Put(d) })
	h.TellDeclared()
	return touched
}

// TellDeclared writes a WARN and an Event on the Node for each gateway newly declared down by its host.
func (h *Health) TellDeclared() {
	before, now := h.declared, declaredDown(h.network)
	h.declared = now
	for _, name := range now {
		if slices.Contains(before, name) {
			continue
		}
		text := h.declaredText(name)
		h.log.Warn(text)
		c := h.network.Facts().Cluster
		if node := c.Gateways[name].NodeIn(c); node != "" {
			h.warn(node, "GatewayDown", text)
		}
	}
	for _, name := range before {
		if !slices.Contains(now, name) {
			h.log.Infof("gateway %s: its host forwards packets again", name)
		}
	}
}

// declaredText says whether a gateway declared down is in use.
func (h *Health) declaredText(name string) string {
	state := "in use, since all are unhealthy"
	if slices.Contains(h.network.Facts().DeadGateways(), name) {
		state = "down, routes withdrawn"
	}
	return fmt.Sprintf("gateway %s: %s: %s", name, state, whyDeclared)
}

// declaredDown lists the gateways declared down by their hosts.
func declaredDown(n World) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(n.Facts().Cluster.Gateways)), func(name string) bool { return !n.Facts().DeclaredDown(name) })
}

// whyDeclared is the remedy for a gateway declared down by its host.
const whyDeclared = "its host cannot forward packets: see \"ovs-appctl -t ovn-k8s-gateway-helper reconcile/show\" there (with ovnkube: -t ovnkube)"

// Problems records the options of hosts, as returned by CMSOptions, and lists the gateways declared down.
func Problems(n World, options map[string]map[string]string) (lines []string) {
	n.Put(declared(options))
	for _, name := range declaredDown(n) {
		lines = append(lines, fmt.Sprintf("! Gateway %s: %s", name, whyDeclared))
	}
	return lines
}
