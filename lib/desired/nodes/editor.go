package nodes

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// Reasons of Events.
const (
	badClaim     = "BadNodeClaim"
	claimRefused = "NodeClaimRefused"
)

// An editor makes the record as it should be. It copies each map before the first change of it.
type editor struct {
	topology.Cluster
	index   *Index
	owned   bool              // Nodes and Chassis are copies
	given   bool              // a node got subnets
	edits   int               // so far
	chassis map[string]string // see byChassis; nil: not yet made
}

// own makes Nodes and Chassis copies, for an edit.
func (e *editor) own() {
	e.edits++
	if e.owned {
		return
	}
	e.owned = true
	nodes, chassis := map[string][]netip.Prefix{}, map[string]string{}
	maps.Copy(nodes, e.Nodes)
	maps.Copy(chassis, e.Chassis)
	e.Nodes, e.Cluster.Chassis = nodes, chassis
}

// updateAll brings the parts of nodes up to date, and returns the units of those that changed. A claim that is refused
// counts when another node has given way.
func (e *editor) updateAll(names []string) (changed []nb.Unit) {
	seen := map[string]bool{}
	for before := -1; before < e.edits && len(names) > 0; {
		before = e.edits
		var refused []string
		for _, name := range names {
			edits := e.edits
			if e.update(name); edits < e.edits && !seen[name] {
				seen[name], changed = true, append(changed, topology.NodeUnit(name))
			}
			if e.index.refused[name] != nil {
				refused = append(refused, name)
			}
		}
		names = refused
	}
	return changed
}

// update brings a node's part of the record up to date.
func (e *editor) update(name string) {
	n := e.index.nodes[name]
	subnets := e.index.subnets.Subnets(name)
	if n == nil || len(subnets) == 0 {
		e.leave(name)
		return
	}
	if !slices.Equal(subnets, e.Nodes[name]) {
		e.own()
		e.Nodes[name], e.given = subnets, true
	}
	if n.claim.Chassis == "" { // of a host that does not publish: its commands write the record
		delete(e.index.refused, name)
		return
	}
	if why := e.claim(name, n); why != "" {
		e.index.refused[name] = &feature.Problem{Reason: claimRefused, Message: fmt.Sprintf("node %s: %s", name, why)}
	} else {
		delete(e.index.refused, name)
	}
}

// leave takes a node and its gateway out of the record. Other gateways on its host stay, with its name: it may come back.
func (e *editor) leave(name string) {
	if e.Nodes[name] == nil {
		return
	}
	e.own()
	delete(e.Nodes, name)
	e.chassis = nil // another gateway may stay there
	delete(e.Cluster.Chassis, name)
	e.removeGateway(e.gateway(name))
}

// gateway is the name of a node's gateway: gateway-init may have spelled it in other case.
func (e *editor) gateway(name string) string {
	if _, ok := e.Gateways[name]; ok {
		return name
	}
	for other := range e.Gateways {
		if strings.EqualFold(other, name) {
			return other
		}
	}
	return name
}

// claim takes the claim of a node into the record, or returns the reason against it.
func (e *editor) claim(name string, n *node) string {
	id := n.claim.Chassis
	if old := e.Cluster.Chassis[name]; old != id {
		if other := e.byChassis()[id]; other != "" && other != name {
			return e.taken(id, other)
		}
		e.own()
		if e.Cluster.Chassis[name], e.chassis[id] = id, name; old != "" {
			e.chassis = nil // another gateway may stay there
		}
	}
	gateway := e.gateway(name)
	if n.claim.Gateway == nil {
		if n.invalid == nil { // else the former one stays
			e.removeGateway(gateway)
		}
		return ""
	}
	return e.addGateway(name, gateway, *n.claim.Gateway)
}

// taken is the reason against a system-id of another node or gateway.
func (e *editor) taken(id, other string) string {
	what, remedy := "node "+other, "delete that Node"
	if gateway := e.onChassis(id); gateway != "" && e.Cluster.Chassis[other] != id && (e.Nodes[other] == nil || e.Cluster.Chassis[other] != "") {
		what, remedy = "gateway "+gateway, fmt.Sprintf(`run "ovn-k8s-overlay gateway-remove --node-name=%s" on it`, gateway)
	}
	return fmt.Sprintf("system-id %s in annotation %s is that of %s: if the host is a clone, remove /etc/openvswitch/system-id.conf and restart Open vSwitch; "+
		"if it was %[3]s, %s", id, names.ChassisAnnotation, what, remedy)
}

// onChassis is the first gateway with a system-id, "" if there is none.
func (e *editor) onChassis(id string) string {
	for _, name := range e.Gateways.Names() {
		if e.Gateways[name].Chassis == id {
			return name
		}
	}
	return ""
}

func (e *editor) removeGateway(name string) {
	without, found := e.WithoutGateway(name)
	if found {
		e.Cluster = without
		e.edits++
	}
}

// byChassis are the nodes by system-id. A gateway of a host that is no node counts as the node that was there last, or else
// as one of its name: gateway-init may have run there before the host became one.
func (e *editor) byChassis() map[string]string {
	if e.chassis != nil {
		return e.chassis
	}
	e.chassis = map[string]string{}
	for gateway, g := range e.Gateways {
		name := g.Node
		if name == "" {
			name = names.NodeSwitch(gateway)
		}
		if first, ok := e.chassis[g.Chassis]; !ok || name < first {
			e.chassis[g.Chassis] = name
		}
	}
	for name, id := range e.Cluster.Chassis {
		e.chassis[id] = name
	}
	return e.chassis
}

// addGateway adds or changes the gateway of a node, or returns the reason against it.
func (e *editor) addGateway(name, gateway string, g topology.Gateway) string {
	old, known := e.Gateways[gateway]
	g.Node, g.Join, g.First = name, old.Join, old.First
	own, why := e.egress(name, g)
	if g.Rampout = own; known && g.Equal(old) {
		return why
	}
	if refusal := e.foreign(name, gateway, g); refusal != "" {
		return refusal
	}
	var taken []netip.Addr
	if !known {
		g.Join, taken = e.index.older.Of(gateway)
	}
	with, err := e.WithGateway(gateway, g, taken...)
	if err != nil {
		return fmt.Sprintf("annotation %s: %.600s", names.GatewayAnnotation, strings.ReplaceAll(err.Error(), "\n", "; ")) // perhaps one of each of 200 values
	}
	e.Cluster = with
	e.edits++
	return why
}

// egress returns those egress subnets of a gateway that are its node's subnets, and the reason against others: with these
// a host would get the packets of other nodes' pods, or with a part of a subnet change rows of all hosts (see
// topology.Cluster.PinnedByPolicy). Hosts claim whole subnets only.
func (e *editor) egress(name string, g topology.Gateway) (own []netip.Prefix, why string) {
	subnets := e.Nodes[name]
	for _, s := range g.Rampout {
		if slices.Contains(subnets, s) {
			own = append(own, s)
		} else {
			why = fmt.Sprintf("annotation %s: egress subnet %s is none of the node's subnets %s, and is left out: give these", names.GatewayAnnotation, s, ipnet.Join(subnets))
		}
	}
	return own, why
}

// foreign is the reason against addresses of a gateway that are another node's; "": there is none. Those that it has already
// stay, whoever reports them later. A next hop may be any Node's, and takes nothing from it (see facts): a host may be the router of
// others, and a Node that reports the router's address keeps nobody from it.
func (e *editor) foreign(name, gateway string, g topology.Gateway) string {
	const text = "annotation %s: %s %s is that of node %s: correct the address on this host, or delete that Node"
	old := e.Gateways[gateway]
	for _, ip := range g.Outside() {
		has := func(p netip.Prefix) bool { return p.Addr() == ip.Addr() }
		if other := e.index.owner(ip.Addr()); other != "" && other != name && !slices.ContainsFunc(old.Outside(), has) {
			return fmt.Sprintf(text, names.GatewayAnnotation, "physical IP", ip.Addr(), other)
		}
	}
	if !g.Tunnel.IsValid() || g.Tunnel == old.Tunnel {
		return ""
	}
	other := e.index.owner(g.Tunnel)
	if other == name {
		other = ""
	}
	for n, o := range e.Gateways {
		if n != gateway && o.Tunnel == g.Tunnel {
			other = n
		}
	}
	if other != "" {
		return fmt.Sprintf(text, names.GatewayAnnotation, "tunnel address", g.Tunnel, other)
	}
	return ""
}

// finish returns the record.
func (e *editor) finish() topology.Cluster {
	if len(e.Cluster.Chassis) == 0 {
		e.Cluster.Chassis = nil // as it is read
	}
	if len(e.Gateways) == 0 {
		e.Gateways = nil
	}
	if e.given {
		e.NextSubnets = e.index.subnets.Marks()
		slices.SortStableFunc(e.NextSubnets, func(a, b netip.Prefix) int { return a.Addr().BitLen() - b.Addr().BitLen() }) // as they are read
	}
	return e.Cluster
}
