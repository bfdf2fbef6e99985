package gateway

import (
	"context"
	"fmt"
	"slices"
	"time"

	"ovn-k8s/lib/desired/localgateway"
	"ovn-k8s/lib/gateway/announce"
	"ovn-k8s/lib/gateway/declare"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// databaseTimeout bounds the time for which other parts wait for a database, perhaps
// during its restart.
const databaseTimeout = time.Second

// readPorts records the relevant ports in the database.
func (e *engine) readPorts(ctx context.Context) error {
	reading, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	all, err := e.sw.Interfaces(reading)
	if err != nil {
		return fmt.Errorf("reading Open vSwitch's database: %w", err)
	}
	avoided, err := e.sw.Controller().AvoidZeroSNAT(reading)
	if err != nil {
		return err
	}
	if avoided {
		e.log.Info("took the capability ct_zero_snat from the datapath: with this Open vSwitch it makes ovs-vswitchd abort")
	}
	e.announce.Set(announce.Shared{Bridge: e.helper.Bridge, NIC: e.helper.Interface}.Uplinks(all))
	p := findPorts(all, e.helper.Bridge, e.helper.Interface)
	inside, hops, err := link.Routing(p.management)
	if err != nil {
		return err
	}
	shared, nics := declare.SharedBridge(all)
	e.send(func() []string {
		if p.node == "" { // a management port missing for a moment does not make this another node
			p.node = e.ports.node
		}
		switch {
		case !e.helper.adopts:
		case shared != "" || e.helper.Bridge == "":
			e.gone = absence{}
			if shared != e.helper.Bridge && len(nics) == 1 {
				e.restart() // to serve it
			}
		case e.gone.lasts(func() { e.send(func() []string { return []string{partPorts} }) }):
			e.restart() // the bridge is the host's alone
		}
		if p.same(e.ports) && slices.Equal(inside, e.inside) && slices.Equal(hops, e.hops) {
			return nil
		}
		e.inside, e.hops = inside, hops
		if e.ports = p; e.helper.nodeName(p) != e.objects.Node {
			e.restart() // to follow the pods of that node
		}
		return slices.DeleteFunc(e.all(), func(part string) bool { return part == partPorts })
	})
	return nil
}

// goneFor is how long a gateway must have left its bridge: a port that another program has deleted is back before.
const goneFor = 2 * time.Second

// An absence is the time since when a gateway has left its bridge. Zero: it is there.
type absence struct{ since time.Time }

// lasts reports whether the gateway is away for goneFor. Until then it has look called at that time.
func (a *absence) lasts(look func()) bool {
	if a.since.IsZero() {
		a.since = time.Now()
		time.AfterFunc(goneFor, look)
	}
	return time.Since(a.since) >= goneFor
}

// gateways are the modes of gateways, with their needs for forwarding packets.
func (e *engine) gateways() []declare.Gateway {
	bridge := declare.Gateway{Mode: names.BridgeMode, Absent: e.ports.shared == "", Needs: []string{partFlows}}
	if e.ports.inside.Name == "" {
		bridge.Broken = fmt.Errorf("bridge %s is shared, but not served: start this program with --physical-bridge=%s and --physical-interface", e.ports.shared, e.ports.shared)
	}
	return []declare.Gateway{bridge, {Mode: names.LocalMode, Absent: e.ports.local.Name == "", Needs: []string{partLocal, partForwarding}}}
}

// interfaces are those with packets of pods.
func (p ports) interfaces() (names []string) {
	if p.management != "" {
		names = append(names, p.management)
	}
	if p.local.Name != "" {
		names = append(names, localgateway.Port)
	}
	return names
}

// same reports whether two states of the ports are equivalent.
func (p ports) same(q ports) bool {
	type end struct{ name, subnets, addresses string }
	type key struct {
		bridge, gateway                                 bool
		nic, nicBridge, mac, management, node, sharedBy string
		nicPort, outside                                int
		inside, local                                   end
	}
	keyOf := func(p ports) key {
		of := func(i vswitch.Interface) end {
			return end{i.Name, i.ExternalIDs[names.ClusterSubnets], i.ExternalIDs[names.GatewayIPs]}
		}
		return key{p.bridge, p.gateway, p.nic.Name, p.nic.Bridge, p.mac, p.management, p.node, p.shared, p.nic.Ofport, p.outside.Ofport, of(p.inside), of(p.local)}
	}
	return keyOf(p) == keyOf(q)
}
