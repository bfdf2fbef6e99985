package loadbalancer

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// Rows returns the load balancers of the Service, whatever the number of nodes at most three for each protocol and family, and
// other rows of its frontends:
//
//	service/NS/NAME/tcp          cluster addresses, and addresses outside
//	service/NS/NAME/tcp/node4    differences between nodes: NodePorts, a node's own endpoints
//	service/NS/NAME/tcp/near/…   cluster addresses with endpoints for a zone or a node: see Near
//	service/NS/NAME/tcp/local4   the frontends through gateways of policy Local
//	service/NS/NAME/tcp/local/GW the same by gateway: see ByGateway
//	service/NS/NAME/tcp/nodes    addresses outside that are hosts'
//	service/NS/NAME/tcp/refused  frontends through gateways of policy Local, without any endpoint
//	service/NS/NAME/sources/…    ACLs: source ranges of the addresses of a load balancer
//
// A Service above its limits, or the quota of its namespace, has none; but NodePorts at many addresses of hosts are left out, see
// fit. Problems found only here are added to the Service.
func (l *Balancers) Rows() []nb.Row {
	r := l.Resolved
	if !r.Ours {
		return nil
	}
	reported := l.at.Addresses
	c := l.fit()
	if over := c.over(); over != "" {
		r.AddProblem("ServiceTooLarge", "service %s has no load balancers: with %d nodes it would take at least %s: split the service", r.Key, len(l.at.Nodes), over)
		return nil
	}
	if r.OverQuota {
		r.AddProblem("TooManyServices", "service %s has no load balancers: their weight above %d is %d, rounded up, more than older services of namespace %s leave of %d: split the service, or use several namespaces", r.Key, Ordinary, Charged(c.weight), r.Namespace, MaxWeight)
		return nil
	}
	if n := l.at.Addresses; n != reported {
		r.AddProblem("ServiceTooLarge", "service %s has its NodePorts at no more than %d addresses of each host, though one has %d: at all it would take more than %.1f MB in the Northbound database: split the service", r.Key, max(n[0], n[1]), max(reported[0], reported[1]), float64(maxBytes)/(1<<20))
	}
	var rows []nb.Row
	for _, protocol := range protocols() {
		if slices.ContainsFunc(r.Ports, func(p service.Port) bool { return p.Protocol == protocol }) {
			rows = append(rows, l.balancers(protocol)...)
		}
	}
	rows = append(rows, l.sourceRows()...)
	l.misplaced()
	for _, a := range r.ClusterIPs {
		if !l.at.Ranges.Have(a) {
			r.AddProblem("BadServiceAddress", "clusterIP %s of service %s is outside the subnets of services %s, to which hosts have routes: make a ServiceCIDR that has it, or correct external_ids:ovn-k8s-service-cidr", a, r.Key, ipnet.Join(l.at.Ranges))
		}
	}
	return rows
}

// vips are the frontends of one load balancer, and their backends.
type vips map[string]string

// served reports whether any frontend has backends.
func (v vips) served() bool {
	for _, backends := range v {
		if backends != "" {
			return true
		}
	}
	return false
}

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
func (l *Balancers) balancers(protocol corev1.Protocol) []nb.Row {
	s := newSet()
	for f := range l.of(protocol) {
		l.add(s, f)
	}
	// If gateways have frontends of their own, the rest is for switches.
	group := names.LoadBalancerGroup
	if l.ExternalLocal {
		group = names.SwitchLoadBalancerGroup
	}
	name := l.balancerName(protocol)
	var rows []nb.Row
	if len(s.plain) > 0 {
		rows = append(rows, l.balancer(name, protocol, group, s.plain))
	}
	for f := range ipnet.Families() {
		if len(s.node[f]) > 0 {
			rows = append(rows, template(l.balancer(name+nodeSuffix(f), protocol, group, s.node[f]), f))
		}
		if len(s.local[f]) > 0 {
			row := template(l.balancer(name+localSuffix(f), protocol, names.GatewayLoadBalancerGroup, s.local[f]), f)
			rows = append(rows, option(row, "skip_snat", "true"))
		}
	}
	if len(s.hosts) > 0 {
		rows = append(rows, l.balancer(name+nodesSuffix, protocol, names.SwitchLoadBalancerGroup, s.hosts))
		if !l.ExternalLocal {
			rows = append(rows, l.atGateways(protocol)...)
		}
	}
	if len(s.refused) > 0 {
		rows = append(rows, l.balancer(name+refusedSuffix, protocol, names.GatewayLoadBalancerGroup, s.refused))
	}
	return refusing(l.silent(l.selectBy(l.at.Selection, slices.Concat(rows, l.nearRows(protocol), l.gatewayRows(protocol)))))
}

// refusing lets gateways refuse connections to load balancers without backends. Without the option, the refusal would have the
// address of lb_force_snat_ip, and clients outside would wait until their timeout.
func refusing(rows []nb.Row) []nb.Row {
	for _, row := range rows {
		if lb := row.Model.(*nbdb.LoadBalancer); !vips(lb.Vips).served() {
			lb.Options = maps.Clone(lb.Options) // rows of both families share them
			option(row, "skip_snat", "true")
		}
	}
	return rows
}

// add adds a frontend to its load balancer. Pods reach all endpoints at addresses outside and NodePorts, whatever the
// external traffic policy.
func (l *Balancers) add(s *set, f service.Frontend) {
	k := key(f.Addr, f.Number)
	switch {
	case f.Kind == service.NodePort:
		l.addNodePort(s, f)
	case f.Kind == service.ClusterIP && l.near.differs[f.Index][f.Family]: // see nearRows
	case f.Kind == service.ClusterIP && l.InternalLocal:
		s.node[f.Family][l.templateKey(f.Addr, f.Number)] = "^" + l.backendsVariable(f.Port(), f.Family)
	case f.Kind == service.ClusterIP:
		s.plain[k] = l.answering(f).text
	case l.at.IsHosts(f.Addr):
		s.hosts[k] = l.answering(f).text
	default:
		s.plain[k] = l.answering(f).text
		l.addLocal(s, f)
	}
}

// addLocal adds a frontend at an address outside for clients through gateways, with the policy Local.
func (l *Balancers) addLocal(s *set, f service.Frontend) {
	switch {
	case !l.ExternalLocal, l.byGateway:
	case len(l.answering(f).all) == 0:
		s.refused[key(f.Addr, f.Number)] = ""
	default:
		s.local[f.Family][l.templateKey(f.Addr, f.Number)] = l.localBackends(f)
	}
}

// misplaced adds a Problem for each address outside that is refused, or for which no gateway answers.
func (l *Balancers) misplaced() {
	named := map[string]bool{}
	for _, f := range l.all {
		why := cmp.Or(f.Refused, l.at.Unanswered(f))
		if id := f.Addr.String() + why; why != "" && !f.Proxy && !named[id] {
			named[id] = true
			l.AddProblem("BadServiceAddress", "address %s of service %s %s", f.Addr, l.Key, why)
		}
	}
}

// addNodePort adds a NodePort, on every address of every host: see fit.
func (l *Balancers) addNodePort(s *set, f service.Frontend) {
	for i := range l.at.Addresses[f.Family] {
		k := "^" + AddressVariable(f.Family, i) + ":" + strconv.Itoa(int(f.Number))
		s.node[f.Family][k] = l.answering(f).text
		if l.ExternalLocal && !l.byGateway {
			s.local[f.Family][k] = l.localBackends(f)
		}
	}
}

// atGateways returns load balancers for addresses outside that are a gateway's own, or on a shared NIC its host's. A
// gateway must not have those of other hosts: its router would take its replies to such a host for requests to the frontend.
func (l *Balancers) atGateways(protocol corev1.Protocol) (rows []nb.Row) {
	own := map[string]vips{} // by gateway
	owners := map[netip.Addr][]string{}
	for g, gw := range l.at.Gateways {
		for _, a := range gw.Addrs {
			owners[a] = append(owners[a], g)
		}
	}
	for f := range l.of(protocol) {
		if !f.IsOutside() {
			continue
		}
		for _, g := range owners[f.Addr] {
			if own[g] == nil {
				own[g] = vips{}
			}
			own[g][key(f.Addr, f.Number)] = l.answering(f).text
		}
	}
	for _, g := range slices.Sorted(maps.Keys(own)) {
		row := l.balancer(l.balancerName(protocol)+nodesSuffix+"/"+g, protocol, "", own[g])
		row.In = []nb.Ref{{Table: nbdb.LogicalRouterTable, ID: names.GatewayRouter(g), Column: "load_balancer"}}
		rows = append(rows, row)
	}
	return rows
}

// localBackends is the value of a frontend of the policy Local. If no host has an endpoint, connections are rejected.
// If only some have, the others are without the frontend.
func (l *Balancers) localBackends(f service.Frontend) string {
	if len(l.answering(f).all) == 0 {
		return ""
	}
	return "^" + l.localVariable(f.Port(), f.Family)
}

// connectionFields identify a connection.
func connectionFields() []nbdb.LoadBalancerSelectionFields {
	return []nbdb.LoadBalancerSelectionFields{
		nbdb.LoadBalancerSelectionFieldsIPDst, nbdb.LoadBalancerSelectionFieldsIPSrc,
		nbdb.LoadBalancerSelectionFieldsTpDst, nbdb.LoadBalancerSelectionFieldsTpSrc,
	}
}

// option sets an option of a load balancer.
func option(row nb.Row, key, value string) nb.Row {
	row.Model.(*nbdb.LoadBalancer).Options[key] = value
	return row
}

// anyKey reports whether f is true of a key.
func anyKey(m map[string]string, f func(string) bool) bool {
	for k := range m {
		if f(k) {
			return true
		}
	}
	return false
}

// silent keeps gateway routers from answering ARP and neighbor solicitations for addresses outside. On a LAN with two
// gateways both would; package answer chooses one. Templates are silent by default.
func (l *Balancers) silent(rows []nb.Row) []nb.Row {
	for _, row := range rows {
		lb := row.Model.(*nbdb.LoadBalancer)
		if lb.Options["template"] == "" && row.In[0].ID != names.SwitchLoadBalancerGroup && anyKey(lb.Vips, l.isOuter) {
			option(row, "neighbor_responder", "none")
		}
	}
	return rows
}

// template makes a load balancer a template: its frontends and backends name variables of the host.
func template(row nb.Row, f int) nb.Row {
	lb := row.Model.(*nbdb.LoadBalancer)
	lb.Options["template"] = "true"
	lb.Options["address-family"] = fmt.Sprintf("ipv%d", 4+2*f)
	return row
}

// VariablesRow returns the row with the variables of a host. chassis is its system-id.
func VariablesRow(chassis string, variables map[string]string) nb.Row {
	return nb.Row{
		Table: nbdb.ChassisTemplateVarTable, ID: chassis, Adopt: true,
		Model: &nbdb.ChassisTemplateVar{Chassis: chassis, Variables: variables},
	}
}
