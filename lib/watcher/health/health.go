// Package health records probes of the hosts of gateways, the chassis in the Southbound database and the declarations
// of hosts, and reports gateways that go down or come back. facts.Outages has the decision.
package health

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/prober"
)

// A World knows the gateways and their hosts.
type World interface {
	// Put records a fact, and returns the units to compute again.
	Put(fact any) []nb.Unit
	// Facts returns the known facts of the cluster.
	Facts() *facts.Facts
}

// A Health is the state of all gateways. The goroutine that calls the functions of send owns it.
type Health struct {
	network World
	log     *logrus.Entry
	send    func(func() []nb.Unit)
	led     func() map[string]bool
	warn    func(node, reason, text string)
	prober  *prober.Prober
	// rejected are the firewalls between, as far as reported.
	rejected map[string]netip.Addr
	declared []string // the reported gateways declared down by their hosts
	// hostsChanged: the hosts of gateways may differ from those known to the prober.
	hostsChanged bool
	awaited      awaited
	forget       *time.Timer // ends the wait for hosts, at until
	until        time.Time
	probesStale  atomic.Bool // an event to read the prober's results is on its way
}

// New returns the Health of a network. send hands over events. led returns the gateways with routes to them in the
// database, nil if unknown: a gateway without routes was down before. warn writes an Event on a Node.
func New(network World, log *logrus.Entry, send func(func() []nb.Unit), led func() map[string]bool, warn func(node, reason, text string)) *Health {
	h := &Health{network: network, log: log, send: send, led: led, warn: warn, hostsChanged: true, awaited: awaited{hosts: map[string]bool{}}}
	h.forget = time.AfterFunc(patience, func() { h.send(h.forgetAwaited) })
	h.prober = prober.New(func() {
		if !h.probesStale.Swap(true) {
			h.send(h.probed)
		}
	})
	return h
}

// Run probes hosts until ctx ends.
func (h *Health) Run(ctx context.Context) {
	defer h.forget.Stop()
	h.prober.Run(ctx)
}

// HostsChanged makes the next Watch compare the hosts.
func (h *Health) HostsChanged() { h.hostsChanged = true }

// Watch sets the gateways to probe, if they may have changed.
func (h *Health) Watch() []nb.Unit {
	if !h.hostsChanged {
		return nil
	}
	h.hostsChanged = false
	led := sync.OnceValue(h.led)
	hosts := map[string]prober.Host{}
	for name, host := range h.network.Facts().GatewayHosts() {
		hosts[name] = prober.Host(host)
	}
	h.prober.Watch(hosts, func(name string) bool {
		gateways := led()
		return gateways != nil && !gateways[name]
	})
	return h.network.Put(facts.Silent(h.prober.Unhealthy()))
}

// SetChassis records the rows of hosts in the Southbound database, by system-id. Their tunnels were recorded before.
func (h *Health) SetChassis(rows map[string]string) []nb.Unit {
	h.HostsChanged()
	if h.awaited.see(rows) {
		h.until = time.Now().Add(patience)
		h.forget.Reset(patience)
	}
	return h.reportTransitions(func() []nb.Unit { return h.network.Put(h.awaited.registered()) })
}

// forgetAwaited makes hosts unregistered if they did not come back.
func (h *Health) forgetAwaited() []nb.Unit {
	if len(h.awaited.hosts) == 0 || time.Now().Before(h.until) {
		return nil
	}
	clear(h.awaited.hosts)
	return h.SetChassis(h.awaited.rows)
}

// probed records the unhealthy hosts of gateways, and reports firewalls that reject the probes.
func (h *Health) probed() []nb.Unit {
	h.probesStale.Store(false) // before reading
	rejected := h.prober.Rejected()
	for name, by := range rejected {
		if !h.rejected[name].IsValid() {
			h.log.WithField("gateway", name).Warnf("the firewall %s rejects probes of its host %s: only the Southbound database tells when it ends; let TCP port %d or %d through", by, addressesOf(h.network, name), prober.Ports()[0], prober.Ports()[1])
		}
	}
	h.rejected = rejected
	return h.reportTransitions(func() []nb.Unit { return h.network.Put(facts.Silent(h.prober.Unhealthy())) })
}

// reportTransitions calls record, and reports the gateways with another state afterwards.
func (h *Health) reportTransitions(record func() []nb.Unit) []nb.Unit {
	before, absent := h.network.Facts().DeadGateways(), h.network.Facts().Absent()
	touched := record()
	h.warnAbsent(absent, h.network.Facts().Absent())
	now := h.network.Facts().DeadGateways()
	for _, name := range now {
		switch {
		case slices.Contains(before, name):
		case slices.Contains(h.declared, name):
			h.log.Warn(h.declaredText(name))
		case !h.network.Facts().DeclaredDown(name): // else TellDeclared follows
			h.log.WithField("gateway", name).Warnf("is dead: only pods of its own node send to it until its host is registered in the Southbound database and answers at %s, TCP port %d or %d", addressesOf(h.network, name), prober.Ports()[0], prober.Ports()[1])
		}
	}
	for _, name := range before {
		if !slices.Contains(now, name) {
			h.log.WithField("gateway", name).Info("is alive again")
		}
	}
	return touched
}

// addressesOf are the addresses of a gateway's host to be opened for probes, for people.
func addressesOf(n World, gateway string) string {
	var all []string
	host := n.Facts().GatewayHosts()[gateway]
	if len(host.Tunnels) == 0 {
		host.Tunnels = host.Others
	}
	for _, a := range host.Tunnels {
		all = append(all, a.String())
	}
	if all == nil {
		return "an address, of which none is known"
	}
	return strings.Join(all, " or ")
}

// State says whether routes lead to a gateway, and the reasons if not.
func State(n World, name string) string {
	g := n.Facts().Cluster.Gateways[name]
	var problems []string
	if n.Facts().IsRegistered(g.Chassis) == "no" {
		problems = append(problems, "chassis "+g.Chassis+" is not in the Southbound database: check ovn-controller there")
	}
	if n.Facts().Silent[name] {
		problems = append(problems, "no answer at "+addressesOf(n, name))
	}
	if n.Facts().DeclaredDown(name) {
		problems = append(problems, whyDeclared)
	}
	down := slices.Contains(n.Facts().DeadGateways(), name)
	switch {
	case len(problems) == 0 && !down:
		return "in use"
	case down:
		return "down, routes withdrawn: " + strings.Join(problems, "; ")
	}
	return "in use, since all are unhealthy: " + strings.Join(problems, "; ")
}

// warnAbsent writes a WARN and an Event on the Node for each chassis removed from the Southbound database.
func (h *Health) warnAbsent(before, now map[string]string) {
	for _, node := range slices.Sorted(maps.Keys(now)) {
		if _, reported := before[node]; !reported {
			text := fmt.Sprintf("node %s: chassis %s is not in the Southbound database, so that pods there get no changes: check ovn-controller on %s", node, now[node], node)
			h.log.Warn(text)
			h.warn(node, "ChassisNotRegistered", text)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(before)) {
		if _, still := now[node]; !still {
			h.log.Infof("node %s: chassis %s is in the Southbound database again", node, before[node])
		}
	}
}
