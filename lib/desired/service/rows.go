package service

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Surroundings are what the rows of Services depend on beside the Service.
type Surroundings struct {
	// Ranges are the subnets of Services; none if they are not known.
	Ranges Ranges
	// Subnets are those of all pods.
	Subnets []netip.Prefix
	// Addresses is how many addresses of IPv4 and of IPv6 the host with the most
	// has: see Variable.
	Addresses [2]int
	// Nodes are all nodes that have a switch, by whose name they are known; sorted.
	Nodes    []Node
	Gateways map[string]Gateway // by name
	// Hosts are all addresses of hosts at which NodePorts are reached, sorted.
	Hosts []netip.Addr
	// Returns are, by node, where replies to clients outside must go: to the
	// gateway of the same host, or to the host itself.
	Returns map[string][]netip.Addr
	// Inside are the subnets whose traffic Returns is not for, and in which no
	// address outside can be.
	Inside []netip.Prefix
	// Hops are the addresses outside to which gateways send, sorted.
	Hops []netip.Addr
	// Homes are the subnets of pods by node.
	Homes map[string][]netip.Prefix
}

// family is the index of an address family in arrays: IPv4, IPv6.
func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// families are one address of each family.
func families() [2]netip.Addr { return [2]netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} }

// maxAffinity is the longest affinity that OVN has, in seconds: ovn-nb(5).
const maxAffinity = 65535

// Rows returns the load balancers of r, whatever the number of nodes at most
// three for each protocol and family, and what else its ways in need:
//
//	service/NS/NAME/tcp          cluster addresses, and addresses outside
//	service/NS/NAME/tcp/node4    what differs by node: NodePorts, a node's own endpoints
//	service/NS/NAME/tcp/near/…   cluster addresses with endpoints for a zone or a node: see Near
//	service/NS/NAME/tcp/local4   the ways in through gateways of policy Local
//	service/NS/NAME/tcp/local/GW the same by gateway: see byGateway
//	service/NS/NAME/tcp/nodes    what is at addresses of hosts: NodePorts with session affinity, in
//	                             place of those in node4, and addresses outside that are hosts'
//	service/NS/NAME/tcp/refused  ways in through gateways of policy Local, without any endpoint
//	service/NS/NAME/sources/…    ACLs: from where addresses of a load balancer are reached
//
// Problems that show here only are added to r.
func (r *Resolved) Rows(at Surroundings) []nb.Row {
	if !r.Ours {
		return nil
	}
	var rows []nb.Row
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		if slices.ContainsFunc(r.Ports, func(p Port) bool { return p.Protocol == protocol }) {
			rows = append(rows, r.balancers(protocol, at)...)
		}
	}
	if r.ExternalLocal {
		rows = append(rows, r.returns(at)...)
	}
	rows = append(rows, r.sourceRows()...)
	r.misplaced(at)
	for _, a := range r.ClusterIPs {
		if !at.Ranges.have(a) {
			r.problem("BadServiceAddress", "clusterIP %s of service %s is outside the subnets of services %s, to which hosts have routes: make a ServiceCIDR that has it, or correct external_ids:ovn-k8s-service-cidr", a, r.Key, ipnet.Join(at.Ranges))
		}
	}
	if r.Affinity > maxAffinity {
		r.problem("AffinityShortened", "sessionAffinity timeout %d s of service %s is longer than OVN can remember: it is %d s", r.Affinity, r.Key, maxAffinity)
	}
	return rows
}

// vips are the ways in of one load balancer, and their backends.
type vips map[string]string

// A set is the load balancers of one protocol.
type set struct {
	plain       vips
	node, local [2]vips // by family
	hosts       vips    // at addresses of hosts, on switches only
	refused     vips    // at gateways
}

func newSet() *set {
	return &set{plain: vips{}, node: [2]vips{{}, {}}, local: [2]vips{{}, {}}, hosts: vips{}, refused: vips{}}
}

// balancers returns the load balancers of one protocol.
func (r *Resolved) balancers(protocol corev1.Protocol, at Surroundings) []nb.Row {
	s := newSet()
	for i, p := range r.Ports {
		if p.Protocol == protocol {
			r.addCluster(s, p, r.Endpoints[i])
			r.addExternal(s, p, r.Endpoints[i], at)
			r.addNodePort(s, p, r.Endpoints[i], at)
		}
	}
	// Where the ways in through gateways are others, the rest is for switches.
	group := names.LoadBalancerGroup
	if r.ExternalLocal {
		group = names.SwitchLoadBalancerGroup
	}
	name := r.balancerName(protocol)
	var rows []nb.Row
	if len(s.plain) > 0 {
		rows = append(rows, r.balancer(name, protocol, group, s.plain))
	}
	for f, any := range families() {
		if len(s.node[f]) > 0 {
			rows = append(rows, template(r.balancer(name+nodeSuffix(any), protocol, group, s.node[f]), f))
		}
		if len(s.local[f]) > 0 {
			row := template(r.balancer(name+localSuffix(any), protocol, names.GatewayLoadBalancerGroup, s.local[f]), f)
			rows = append(rows, option(row, "skip_snat", "true"))
		}
	}
	if len(s.hosts) > 0 {
		rows = append(rows, silent(r.balancer(name+nodesSuffix, protocol, names.SwitchLoadBalancerGroup, s.hosts)))
		if !r.ExternalLocal {
			rows = append(rows, r.atGateways(protocol, at)...)
		}
	}
	if len(s.refused) > 0 {
		rows = append(rows, r.balancer(name+refusedSuffix, protocol, names.GatewayLoadBalancerGroup, s.refused))
	}
	r.hash(rows)
	return slices.Concat(rows, r.nearRows(protocol, at), r.gatewayRows(protocol, at))
}

func (r *Resolved) balancerName(protocol corev1.Protocol) string {
	return string(r.Unit()) + "/" + strings.ToLower(string(protocol))
}

// addCluster adds the cluster addresses of a port.
func (r *Resolved) addCluster(s *set, p Port, es Endpoints) {
	for _, a := range r.ClusterIPs {
		switch f := family(a); {
		case !r.Has(Claim{a, p.Protocol, p.Port}), r.isNear(es.Of(a)):
		case r.InternalLocal:
			s.node[f][r.templateKey(a, p.Port)] = "^" + r.backendsVariable(p, f)
		default:
			s.plain[key(a, p.Port)] = backends(es.Of(a).Cluster())
		}
	}
}

// addExternal adds the addresses outside of a port. Pods reach all endpoints
// there, whatever the external traffic policy.
func (r *Resolved) addExternal(s *set, p Port, es Endpoints, at Surroundings) {
	for _, a := range r.outer(p, at) {
		f, all := family(a), es.Of(a).Cluster()
		if at.isHosts(a) {
			s.hosts[key(a, p.Port)] = backends(all)
			continue
		}
		s.plain[key(a, p.Port)] = backends(all)
		switch {
		case !r.ExternalLocal, r.byGateway(at.Subnets):
		case len(all) == 0:
			s.refused[key(a, p.Port)] = ""
		default:
			s.local[f][r.templateKey(a, p.Port)] = r.localBackends(p, f, all)
		}
	}
}

// isHosts reports whether an address is a host's. No gateway but that host's own
// may have it: it would answer for it to everybody on the link.
func (at Surroundings) isHosts(a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(at.Hosts, a, netip.Addr.Compare)
	return found
}

// outer lists the addresses outside at which r has a port.
func (r *Resolved) outer(p Port, at Surroundings) []netip.Addr {
	return slices.DeleteFunc(r.external(), func(a netip.Addr) bool {
		return !r.Has(Claim{a, p.Protocol, p.Port}) || slices.Contains(r.ClusterIPs, a) || r.refused(a, p, at) != ""
	})
}

// refused says why a cannot be an address outside of the cluster, or p a port
// there: whoever may write Services would take over what pods send elsewhere.
func (r *Resolved) refused(a netip.Addr, p Port, at Surroundings) (why string) {
	holds := func(n netip.Prefix) bool { return n.Contains(a) }
	if i := slices.IndexFunc(at.Inside, holds); i >= 0 {
		return fmt.Sprintf("lies in the cluster subnet %s: give one from outside the cluster", at.Inside[i])
	}
	if i := slices.IndexFunc(at.Ranges, holds); i >= 0 {
		return fmt.Sprintf("lies in the subnet of services %s: give one from outside the cluster", at.Ranges[i])
	}
	if slices.Contains(at.Hops, a) {
		return "is that of the router outside to which gateways send: choose another one"
	}
	if OfHost(p.Protocol, p.Port) && at.isHosts(a) {
		return fmt.Sprintf("is that of a host, which needs port %d/%s itself: choose another one", p.Port, p.Protocol)
	}
	if other, taken := r.OfNodes(p.Protocol, p.Port); taken && at.isHosts(a) {
		return fmt.Sprintf("is that of a host, where port %d/%s is that of service %s: choose another one", p.Port, p.Protocol, other)
	}
	return ""
}

// misplaced names the addresses outside that are none.
func (r *Resolved) misplaced(at Surroundings) {
	named := map[string]bool{}
	for _, a := range r.external() {
		for _, p := range r.Ports {
			why := r.refused(a, p, at)
			if why == "" || named[a.String()+why] || slices.Contains(r.ClusterIPs, a) || !r.Has(Claim{a, p.Protocol, p.Port}) {
				continue
			}
			named[a.String()+why] = true
			r.problem("BadServiceAddress", "address %s of service %s %s", a, r.Key, why)
		}
	}
}

// addNodePort adds the NodePort of a port, on every address of every host.
func (r *Resolved) addNodePort(s *set, p Port, es Endpoints, at Surroundings) {
	if p.NodePort == 0 || !r.Has(Claim{netip.Addr{}, p.Protocol, p.NodePort}) {
		return
	}
	if r.Affinity > 0 {
		r.addStickyNodePort(s, p, es, at.Hosts)
		return
	}
	for f, any := range families() {
		if !r.hasFamily(f) {
			continue
		}
		for i := range at.Addresses[f] {
			k := "^" + AddressVariable(f, i) + ":" + strconv.Itoa(int(p.NodePort))
			s.node[f][k] = backends(es.Of(any).Cluster())
			if r.ExternalLocal && !r.byGateway(at.Subnets) {
				s.local[f][k] = r.localBackends(p, f, es.Of(any).Cluster())
			}
		}
	}
}

// addStickyNodePort adds the NodePort of a port with affinity. A template would
// be one way in for all hosts, but OVN 23.03 has no affinity there. So each
// address of each host is one, and a host that comes or goes changes the row.
func (r *Resolved) addStickyNodePort(s *set, p Port, es Endpoints, hosts []netip.Addr) {
	for f, any := range families() {
		if !r.hasFamily(f) {
			continue
		}
		all := backends(es.Of(any).Cluster())
		for _, a := range hosts {
			if family(a) == f {
				s.hosts[key(a, p.NodePort)] = all
			}
		}
	}
}

// atGateways are what is at each gateway's own addresses: NodePorts with affinity,
// and addresses outside. It must not have those of other hosts: its router would
// take what it answers to such a host for something that asks there.
func (r *Resolved) atGateways(protocol corev1.Protocol, at Surroundings) (rows []nb.Row) {
	for _, g := range slices.Sorted(maps.Keys(at.Gateways)) {
		own := newSet()
		for i, p := range r.Ports {
			if p.Protocol != protocol {
				continue
			}
			if r.Affinity > 0 && p.NodePort != 0 && r.Has(Claim{Protocol: protocol, Port: p.NodePort}) {
				r.addStickyNodePort(own, p, r.Endpoints[i], at.Gateways[g].Addrs)
			}
			for _, a := range r.outer(p, at) {
				if slices.Contains(at.Gateways[g].Addrs, a) {
					own.hosts[key(a, p.Port)] = backends(r.Endpoints[i].Of(a).Cluster())
				}
			}
		}
		if len(own.hosts) == 0 {
			continue
		}
		row := r.balancer(r.balancerName(protocol)+nodesSuffix+"/"+g, protocol, "", own.hosts)
		row.In = []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.GatewayRouter(g), Column: "load_balancer"}}
		row.Model.(*nbdb.LoadBalancer).SelectionFields = connectionFields()
		rows = append(rows, row)
	}
	return rows
}

// hasFamily reports whether the Service has an address family.
func (r *Resolved) hasFamily(f int) bool {
	return slices.ContainsFunc(r.ClusterIPs, func(a netip.Addr) bool { return family(a) == f })
}

// localBackends is the value of a way in of the policy Local, for the endpoints of
// its family. Where no host has an endpoint it is refused; where only some have,
// the others do not have it.
func (r *Resolved) localBackends(p Port, f int, es Endpoints) string {
	if len(es) == 0 {
		return ""
	}
	return "^" + r.localVariable(p, f)
}

// key is the key of a way in: "192.0.2.1:80", "[2001:db8::1]:80".
func key(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }

// backends is the value of a way in.
func backends(es Endpoints) string {
	out := make([]string, len(es))
	for i, e := range es {
		out[i] = e.AddrPort().String()
	}
	return strings.Join(out, ",")
}

// balancer returns a load balancer in a group, or in none.
func (r *Resolved) balancer(name string, protocol corev1.Protocol, group string, v vips) nb.Row {
	lower := strings.ToLower(string(protocol))
	lb := &nbdb.LoadBalancer{Name: name, Protocol: &lower, Vips: v, Options: map[string]string{"reject": "true"}}
	if r.Affinity > 0 {
		lb.Options["affinity_timeout"] = strconv.Itoa(min(r.Affinity, maxAffinity))
	}
	if protocol == corev1.ProtocolUDP {
		// A client that goes on with the same port would talk to the endpoint that
		// is gone. What is connected notices by itself.
		lb.Options["ct_flush"] = "true"
	}
	row := nb.Row{Table: nbdb.LoadBalancerTable, ID: name, Model: lb}
	if group != "" {
		row.In = []nb.Ref{{Table: nbdb.LoadBalancerGroupTable, ID: group, Column: "load_balancer"}}
	}
	return row
}

// hash has Open vSwitch choose endpoints when it makes a flow, by these fields,
// where a client comes from outside. Else it would by a hash of its datapath, for
// which the packet starts anew, and the userspace datapath drops a packet that
// does so seven times (MAX_RECIRC_DEPTH of dpif-netdev): what came through a
// gateway to a pod on its own node did.
func (r *Resolved) hash(rows []nb.Row) {
	for _, row := range rows {
		lb := row.Model.(*nbdb.LoadBalancer)
		if row.In[0].ID == names.LoadBalancerGroup && slices.ContainsFunc(slices.Collect(maps.Keys(lb.Vips)), r.isOuter) {
			lb.SelectionFields = connectionFields()
		}
	}
}

// connectionFields are those by which connections differ.
func connectionFields() []nbdb.LoadBalancerSelectionFields {
	return []nbdb.LoadBalancerSelectionFields{
		nbdb.LoadBalancerSelectionFieldsIPDst, nbdb.LoadBalancerSelectionFieldsIPSrc,
		nbdb.LoadBalancerSelectionFieldsTpDst, nbdb.LoadBalancerSelectionFieldsTpSrc,
	}
}

// isOuter reports whether a way in is a NodePort, or at an address outside.
func (r *Resolved) isOuter(vip string) bool {
	a, err := netip.ParseAddrPort(vip)
	if err != nil {
		return strings.HasPrefix(vip, "^"+addressPrefix)
	}
	return !slices.Contains(r.ClusterIPs, a.Addr())
}

// option sets an option of a load balancer.
func option(row nb.Row, key, value string) nb.Row {
	row.Model.(*nbdb.LoadBalancer).Options[key] = value
	return row
}

// silent keeps gateway routers from answering ARP and neighbour solicitations
// for the ways in of a load balancer, among which are addresses of other hosts.
func silent(row nb.Row) nb.Row { return option(row, "neighbor_responder", "none") }

// template makes a load balancer one whose ways in and backends name variables
// of the host. OVN 23.03 has no affinity there, so nothing that needs it is in one.
func template(row nb.Row, f int) nb.Row {
	lb := row.Model.(*nbdb.LoadBalancer)
	lb.Options["template"] = "true"
	lb.Options["address-family"] = fmt.Sprintf("ipv%d", 4+2*f)
	delete(lb.Options, "affinity_timeout")
	return row
}

// VariablesRow returns the row that gives a host, which is known by its
// system-id, its variables.
func VariablesRow(chassis string, variables map[string]string) nb.Row {
	return nb.Row{
		Table: nbdb.ChassisTemplateVarTable, ID: chassis, Adopt: true,
		Model: &nbdb.ChassisTemplateVar{Chassis: chassis, Variables: variables},
	}
}
