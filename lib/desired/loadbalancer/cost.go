package loadbalancer

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ipnet"
)

// Limits of one Service in the Northbound database. Otherwise users with write access to Services and slices could
// overload it: a transaction is one message, and every node follows the result.
const (
	maxRows  = 10_000
	maxBytes = 4 << 20
)

// The weight of a Service estimates the work of ovn-northd: it computes all load balancers again for each transaction.
// With OVN 23.03 and 100 nodes that takes 2 µs for each endpoint at each frontend, 70 µs for a frontend, twice that at
// an address outside, and 150 µs for a row. New frontends take three times as long, once, and endpoints do not.
// Load balancers of single nodes or gateways take less.
const (
	rowWeight      = 100
	frontendWeight = 60
	singleRow      = 50 // of a place or gateway
	singleFrontend = 10
	endpointWeight = 1 // at each frontend
)

// maxWeighed bounds the addresses of hosts at which a NodePort has a weight: any kubelet may report 64 of its own, and
// must not decide which Services of a namespace are refused.
const maxWeighed = 2

// Ordinary is the weight without a limit of its own: a namespace has as many ordinary Services as its ResourceQuota
// allows. MaxWeight is the limit of the weight above Ordinary of all Services of a namespace.
const (
	Ordinary  = 500
	MaxWeight = 400_000
)

// Charged is the part of a weight that counts for the namespace: above Ordinary, rounded up by at most an eighth, so that few
// changes of endpoints change which Services are refused.
func Charged(weight int) int {
	weight = max(0, weight-Ordinary)
	step := 1 << max(0, bits.Len(uint(weight))-4)
	return (weight + step - 1) / step * step
}

// A cost is an upper bound of the rows of a Service and their size, with its template variables, and the weight of its
// load balancers. It is computed before any row is.
type cost struct{ rows, bytes, weight int }

// over says by how much a cost exceeds its limits, "" if it does not.
func (c cost) over() string {
	switch {
	case c.bytes > maxBytes:
		return fmt.Sprintf("%.1f MB in the Northbound database, more than %.1f MB", float64(c.bytes)/(1<<20), float64(maxBytes)/(1<<20))
	case c.rows > maxRows:
		return fmt.Sprintf("%d rows in the Northbound database, more than %d", c.rows, maxRows)
	}
	return ""
}

// add adds n values of some bytes.
func (c *cost) add(n, bytes int) { c.bytes += n * bytes }

// frontends adds n frontends of all nodes, of some bytes and with so many endpoints each.
func (c *cost) frontends(n, bytes, endpoints int) {
	c.add(n, bytes)
	c.weigh(n, endpoints)
}

// weigh adds the weight of n frontends of all nodes, with so many endpoints each.
func (c *cost) weigh(n, endpoints int) {
	c.weight += n * (frontendWeight + endpoints*endpointWeight)
}

// single adds a frontend of single nodes.
func (c *cost) single(bytes, endpoints int) {
	c.add(1, bytes)
	c.weight += singleFrontend + endpoints*endpointWeight
}

// row adds n rows with so many bytes each beside rowBytes.
func (c *cost) row(n, bytes int) { c.rows, c.bytes = c.rows+n, c.bytes+n*(rowBytes+bytes) }

const (
	rowBytes    = 256 // options, protocol, external_ids without names
	portBytes   = 7   // "65535, "
	prefixBytes = 45  // "2001:0db8:…/128, "
	nodeBytes   = 64  // a name of a node in a reference or an ID
	balancersOf = 7   // of a protocol, without those by node or gateway
)

// addrBytes is the size of an address and port in a list, by family.
func addrBytes(f int) int { return []int{22, 48}[f] }

// Weight is the weight of the Service, see cost. It reports false if the Service exceeds its own limits, and has
// neither Rows nor Variables.
func (l *Balancers) Weight() (weight int, ok bool) {
	if !l.Ours {
		return 0, true
	}
	c := l.fit()
	if c.over() != "" {
		return 0, false
	}
	return c.weight, true
}

// An estimate sums up the cost of load balancers.
type estimate struct {
	*Balancers
	sum cost
}

// cost computes the cost of all rows of l, in time linear in endpoints, frontends, nodes and gateways. For a Service
// above the limits because places differ, it is only a part.
func (l *Balancers) cost() cost {
	e := estimate{Balancers: l}
	return e.all()
}

// fit returns the cost with NodePorts at as many addresses of each host as the limits allow, at least one: no kubelet may take the
// load balancers of a Service by reporting many.
func (l *Balancers) fit() cost {
	c, all := l.cost(), l.at.Addresses
	most := max(all[0], all[1])
	if c.over() == "" || most <= 1 {
		return c
	}
	at := func(n int) cost {
		l.at.Addresses = [2]int{min(all[0], n), min(all[1], n)}
		return l.cost()
	}
	return at(1 + sort.Search(most-1, func(n int) bool { return at(n+2).over() != "" }))
}

// all is the cost of all rows.
func (l *estimate) all() cost {
	c := &l.sum
	name := 3 * len(l.balancerName(corev1.ProtocolSCTP)) // name and two external_ids
	used, gateways, split := map[corev1.Protocol]bool{}, map[corev1.Protocol]int{}, 1
	if l.Affinity > 0 {
		split = 2 // by family: see bySource
	}
	for _, p := range l.Ports {
		used[p.Protocol] = true
	}
	c.row(len(used)*balancersOf*split, name)
	c.weight += len(used) * l.sharedBalancers() * rowWeight
	if l.ExternalLocal {
		c.row(len(used)*len(l.at.Gateways)*split, name+nodeBytes)
	}
	variable := len(l.portVariable(service.Port{Protocol: corev1.ProtocolSCTP, Port: 65535}, "local", 1)) + 8
	for i := range l.Ports {
		for f, any := range ipnet.Families() {
			all := l.Endpoints[i].Of(any)
			l.addFrontends(i, f, all.Cluster(), variable)
		}
		p := l.Ports[i].Protocol
		gateways[p] = max(gateways[p], l.addGateways(i))
	}
	for _, n := range gateways {
		c.weight += n * singleRow
	}
	l.addVariables(variable)
	c.row(len(l.near.places)*len(used)*split, name+nodeBytes)
	c.weight += len(l.near.places) * len(used) * singleRow
	for _, at := range l.near.places {
		c.add(len(at.nodes), nodeBytes)
	}
	l.addReplies()
	l.addSources()
	return l.sum
}

// addFrontends adds the frontends of port number i of a family.
func (l *estimate) addFrontends(i, f int, all service.Endpoints, variable int) {
	value := len(all) * addrBytes(f)
	frontend := addrBytes(f) + variable
	for _, to := range l.frontends[i] {
		switch {
		case to.Family != f:
		case to.Kind == service.NodePort:
			l.sum.add(l.at.Addresses[f], 2*frontend+value)
			l.sum.weigh(l.weighed(f), len(all))
		case to.IsOutside():
			l.sum.frontends(2, 2*frontend+value, len(all))
		case l.near.differs[i][f] && l.sum.over() != "": // ports times places would take too long
		case l.near.index(i, f) == nil:
			l.sum.frontends(1, 2*frontend+value, len(all))
		default:
			for _, at := range l.near.places {
				near, _ := l.near.at(to, at)
				l.sum.single(frontend+len(near)*addrBytes(f), len(near))
			}
		}
	}
}

// weighed is the number of frontends of a NodePort with a weight, in a family.
func (l *estimate) weighed(f int) int { return min(l.at.Addresses[f], maxWeighed) }

// sharedBalancers is the number of load balancers of a protocol in groups: see Rows.
func (l *estimate) sharedBalancers() int {
	n := 1
	if l.HasNodePorts() || l.InternalLocal {
		n += len(l.ClusterIPs)
	}
	if l.ExternalLocal {
		n += len(l.ClusterIPs)
	}
	return n
}

// addVariables adds the variables of all nodes: all endpoints, also those not used elsewhere, and for each node the
// IPv6 addresses with endpoints there.
func (l *estimate) addVariables(variable int) {
	if !l.ByNode() {
		return
	}
	nodes, used, six := map[string]bool{}, 0, 0
	for _, es := range l.Endpoints {
		used += len(es)
		for _, e := range es {
			l.sum.add(2, addrBytes(ipnet.Family(e.Addr))+variable)
			if !e.Addr.Is4() {
				nodes[e.Node] = true
			}
		}
	}
	l.sum.add(2*(l.Candidates-used), addrBytes(1))
	for _, a := range slices.Concat(l.ClusterIPs, l.Outside) {
		six += ipnet.Family(a)
	}
	l.sum.add(len(nodes)*six, variable+addrBytes(1))
}

// addGateways adds the frontends of port number i at each gateway, and returns the number of gateways with some. Each
// endpoint is on one node.
func (l *estimate) addGateways(i int) (rows int) {
	if !l.ExternalLocal || !l.byGateway {
		return 0
	}
	frontends, width := 0, addrBytes(1)
	for _, f := range l.frontends[i] {
		n, weighed := 1, 1
		switch {
		case f.Kind == service.NodePort:
			n, weighed = l.at.Addresses[f.Family], l.weighed(f.Family)
		case !f.IsOutside():
			continue
		}
		frontends += n
		at, endpoints := len(l.at.Gateways), len(f.Backends())
		if endpoints > 0 { // without any, all gateways have the frontend: see addAtGateways
			at = min(at, endpoints)
		}
		l.sum.weight += weighed * (at*singleFrontend + endpoints*endpointWeight)
		rows = max(rows, at)
	}
	l.sum.add(frontends*len(l.at.Gateways), width+8)
	l.sum.add(frontends*len(l.Endpoints[i]), width)
	return rows
}

// addReplies adds the Service's share of the routes for replies: see package replyroute.
func (l *estimate) addReplies() {
	if !l.ExternalLocal {
		return
	}
	for _, es := range l.Endpoints {
		l.sum.add(len(es), addrBytes(1)+2*portBytes+len("(ip6.src ==  && sctp.src == {}) || "))
	}
}

// addSources adds the ACLs of source ranges.
func (l *estimate) addSources() {
	all := l.guardedAddresses()
	if len(all) == 0 {
		return
	}
	l.sum.row(2, 3*len(l.Unit()))
	for _, d := range all {
		l.sum.add(1, 2*(len(d.ports)+64)+len(l.SourceRanges)*prefixBytes)
		l.sum.add(2*len(d.addrs), prefixBytes)
	}
}
