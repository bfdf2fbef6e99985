package nodeport

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// A place is a node with a gateway.
type place struct {
	node  service.Node
	addrs [2]netip.Addr
}

var places = []place{
	{service.Node{Name: "n1", Zone: "east"}, [2]netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}},
	{service.Node{Name: "n2", Zone: "west"}, [2]netip.Addr{addr("192.0.2.2"), addr("2001:db8::2")}},
}

// network is a cluster of places.
func network() loadbalancer.Inputs {
	at := loadbalancer.Inputs{
		Network: service.Network{
			Ranges: servicecidr.Ranges{netip.MustParsePrefix("172.16.0.0/16"), netip.MustParsePrefix("fd02::/112")},
			Inside: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("fd00::/48")},
			Hops:   []netip.Addr{addr("192.0.2.254")},
		},
		Subnets: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("fd00::/48")}, Addresses: [2]int{1, 1},
		Gateways: map[string]loadbalancer.Gateway{}, Selection: loadbalancer.Selection{Userspace: true},
	}
	for _, p := range places {
		at.Nodes, at.Hosts = append(at.Nodes, p.node), append(at.Hosts, p.addrs[:]...)
		at.Gateways["gw-"+p.node.Name] = loadbalancer.Gateway{Node: p.node.Name, Addrs: p.addrs[:], NodePorts: p.addrs[:]}
	}
	slices.SortFunc(at.Hosts, netip.Addr.Compare)
	return at
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// randomly returns a Service of any kind with slices.
func randomly(r *rand.Rand) service.Resolved {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.ServiceSpec{
		Type:       pick(r, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer),
		ClusterIPs: pick(r, []string{"172.16.1.10"}, []string{"fd02::a"}, []string{"172.16.1.10", "fd02::a"}),
		ExternalIPs: pick(r, nil, []string{"203.0.113.1"}, []string{"203.0.113.1", "2001:db8:1::1"}, []string{"192.0.2.1"}, []string{"10.0.1.3"},
			[]string{"172.16.1.99", "203.0.113.8"}, []string{"192.0.2.254"}, []string{"172.16.1.10"}),
		SessionAffinity: pick(r, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP),
	}}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	local := corev1.ServiceInternalTrafficPolicyLocal
	s.Spec.InternalTrafficPolicy = pick(r, nil, &local)
	s.Spec.ExternalTrafficPolicy = pick(r, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	var ports []discoveryv1.EndpointPort
	for i := range 1 + r.IntN(2) {
		name, protocol, target := fmt.Sprint("p", i), pick(r, corev1.ProtocolTCP, corev1.ProtocolUDP), int32(8080+i)
		port := corev1.ServicePort{Name: name, Protocol: protocol, Port: pick[int32](r, 80, 22, 443) + int32(i)}
		if s.Spec.Type != corev1.ServiceTypeClusterIP {
			port.NodePort = int32(30000 + i)
		}
		s.Spec.Ports = append(s.Spec.Ports, port)
		ports = append(ports, discoveryv1.EndpointPort{Name: &name, Protocol: &protocol, Port: &target})
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		mode := pick(r, corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy)
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: pick(r, "203.0.113.8", "203.0.113.1", "2001:db8:1::8", "192.0.2.2"), IPMode: &mode}}
	}
	var all []service.Slice
	for f, format := range []string{"10.0.%d.%d", "fd00:0:0:%d::%d"} {
		e := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("slice", f), Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}[f], Ports: ports,
		}
		hints := r.IntN(3) == 0
		for i := range r.IntN(4) {
			n := r.IntN(len(places))
			yes, no := true, false
			host := discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf(format, n+1, i+3)}, NodeName: &places[n].node.Name}
			if r.IntN(8) == 0 {
				host.Addresses = []string{places[n].addrs[f].String()}
			}
			if r.IntN(4) == 0 {
				host.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
			}
			if hints {
				host.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: places[n].node.Zone}}}
			}
			e.Endpoints = append(e.Endpoints, host)
		}
		all = append(all, service.NewSlice(e, func(s string) string { return s }))
	}
	return service.Resolve(service.New(s), all)
}

// answers are the endpoints by frontend, such as "tcp 192.0.2.1:80". A frontend without endpoints refuses.
type answers map[string][]string

func (a answers) set(p corev1.Protocol, at netip.Addr, number uint16, es []string) {
	slices.Sort(es)
	a[strings.ToLower(string(p))+" "+netip.AddrPortFrom(at, number).String()] = slices.Compact(slices.Concat([]string{}, es))
}

func texts(es service.Endpoints) []string {
	out := []string{}
	for _, e := range es {
		out = append(out, e.AddrPort().String())
	}
	return out
}

// wanted returns the answers at the frontends with endpoints according to choose, seen from a place.
func (p place) wanted(all service.List, choose func(service.Frontend) (service.Endpoints, bool)) answers {
	out := answers{}
	for f := range all.All() {
		at := f.Addr
		if f.Kind == service.NodePort {
			at = p.addrs[f.Family]
		}
		if es, ok := choose(f); ok && f.Programmed() {
			out.set(f.Protocol(), at, f.Number, texts(es))
		}
	}
	return out
}

// inside are the endpoints for clients in pods of a place, and fromOutside those for clients through its gateway.
func (p place) inside(f service.Frontend) (service.Endpoints, bool) {
	switch {
	case f.Kind != service.ClusterIP:
		return f.Backends().Cluster(), true
	case f.InternalLocal: // a place without endpoints has no such frontend: an ACL refuses
		es := f.Backends().Local(p.node.Name)
		return es, len(es) > 0
	}
	return f.Backends().ClusterFrom(p.node), len(f.Backends().Cluster()) > 0 || !f.Backends().Hinted()
}

func (p place) fromOutside(at loadbalancer.Inputs) func(service.Frontend) (service.Endpoints, bool) {
	return func(f service.Frontend) (service.Endpoints, bool) {
		all := f.Backends()
		switch {
		case f.Kind == service.ClusterIP, slices.Contains(at.Hosts, f.Addr) && !slices.Contains(p.addrs[:], f.Addr):
			return nil, false
		case !f.ExternalLocal, len(all.Cluster()) == 0:
			return all.Cluster(), true
		}
		return all.Local(p.node.Name), len(all.Local(p.node.Name)) > 0
	}
}

// balanced reads the answers back from load balancers, as far as a place applies them.
func (p place) balanced(r service.Resolved, at loadbalancer.Inputs, applies func(nb.Ref) bool, keep func(netip.Addr) bool) answers {
	variables := loadbalancer.Variables(&r, p.node.Name, loadbalancer.ByGateway(&r, at.Subnets))
	if variables == nil {
		variables = map[string]string{}
	}
	for f, a := range p.addrs {
		variables[loadbalancer.AddressVariable(f, 0)] = a.String()
	}
	out := answers{}
	for _, row := range loadbalancer.New(&r, at).Rows() {
		lb, ok := row.Model.(*nbdb.LoadBalancer)
		if !ok || !slices.ContainsFunc(row.In, applies) {
			continue
		}
		for vip, to := range lb.Vips {
			if name, port, isVariable := strings.Cut(strings.TrimPrefix(vip, "^"), ":"); isVariable && vip[0] == '^' {
				value, known := variables[name]
				if !known {
					continue
				}
				vip = netip.MustParseAddr(value).String() + ":" + port
				if netip.MustParseAddr(value).Is6() {
					vip = "[" + value + "]:" + port
				}
			}
			if strings.HasPrefix(to, "^") {
				value, known := variables[to[1:]]
				if !known {
					continue
				}
				to = value
			}
			if where := netip.MustParseAddrPort(vip); keep(where.Addr()) {
				out.set(corev1.Protocol(*lb.Protocol), where.Addr(), where.Port(), strings.FieldsFunc(to, func(r rune) bool { return r == ',' }))
			}
		}
	}
	return out
}

// host returns a place as the host of rules.
func (p place) host() Host {
	return Host{Node: p.node.Name, Zone: p.node.Zone, Addrs: p.addrs[:], Management: "k8s-" + p.node.Name}
}

// own are the endpoints for connections of a place itself to a cluster IP, if rules choose them: one is in its own network.
// Otherwise the place's switch does.
func (p place) own(f service.Frontend) (service.Endpoints, bool) {
	es := f.Backends().ClusterFrom(p.node)
	if f.InternalLocal {
		es = f.Backends().Local(p.node.Name)
	}
	here := func(e service.Endpoint) bool { return slices.Contains(p.addrs[:], e.Addr) }
	return es, f.Kind == service.ClusterIP && slices.ContainsFunc(es, here)
}

// atClusterIPs lists the frontends at cluster IPs.
func atClusterIPs(all service.List) iter.Seq[service.Frontend] {
	return func(yield func(service.Frontend) bool) {
		for f := range all.All() {
			if f.Kind == service.ClusterIP && !yield(f) {
				return
			}
		}
	}
}

// ruled reads the answers at some frontends back from the rules of a place: those to clients outside.
func (p place) ruled(all service.List, frontends iter.Seq[service.Frontend]) answers {
	h := p.host()
	out := answers{}
	for f := range frontends {
		chains := map[string][]string{}
		for _, c := range chainsOf(h, families()[f.Family], all, nil) {
			if c.Table == "nat" {
				chains[c.Name] = c.Rules
			}
		}
		start, where, at := chainNodePorts, "", p.addrs[f.Family]
		if f.Kind != service.NodePort {
			start, where, at = FrontendsChain, to(ipnet.Single(f.Addr)), f.Addr
		}
		for _, rule := range chains[start] {
			if strings.HasPrefix(rule, where+proto(f.Protocol(), f.Number)) && !strings.Contains(rule, "--src-type LOCAL") {
				out.set(f.Protocol(), at, f.Number, follow(chains, rule, f))
			}
		}
	}
	return out
}

// follow returns the destinations of a rule for clients outside. A cluster IP stands for all endpoints.
func follow(chains map[string][]string, rule string, f service.Frontend) (out []string) {
	_, target, _ := strings.Cut(rule, "-j ")
	if to, is := strings.CutPrefix(target, "DNAT --to-destination "); is {
		if to == f.Cluster().String() {
			return texts(f.Backends().Cluster())
		}
		return []string{to}
	}
	for _, next := range chains[target] {
		if !strings.Contains(next, "--src-type LOCAL") && !strings.HasPrefix(next, "-i ") {
			out = append(out, follow(chains, next, f)...)
		}
	}
	return out
}

func families() [2]netip.Addr { return [2]netip.Addr{IPv4, IPv6} }

// All renderers make the same of a Service: load balancers for pods and for clients at each gateway, the rules of each
// host, the flows of a shared bridge, and the table for people have the same frontends and the same endpoints. A host's own
// connections to cluster IPs have those of its pods.
func TestRenderersAgree(t *testing.T) {
	at := network()
	for seed := range uint64(2000) {
		r := randomly(rand.New(rand.NewPCG(seed, 0)))
		all := service.AllFrontends([]*service.Resolved{&r}, at.Network)
		check := func(what string, want, got answers) {
			t.Helper()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("seed %d: %s of %+v (-want +got):\n%s", seed, what, r.Service, diff)
			}
		}
		for _, p := range places {
			group := func(also string) func(nb.Ref) bool {
				return func(in nb.Ref) bool {
					return slices.Contains([]string{names.LoadBalancerGroup, also, p.node.Name}, in.ID) || also == names.GatewayLoadBalancerGroup && in.ID == names.GatewayRouter("gw-"+p.node.Name)
				}
			}
			check("switch of "+p.node.Name, p.wanted(all, p.inside), p.balanced(r, at, group(names.SwitchLoadBalancerGroup), func(netip.Addr) bool { return true }))
			outside := func(a netip.Addr) bool { return !slices.Contains(r.ClusterIPs, a) }
			check("gateway of "+p.node.Name, p.wanted(all, p.fromOutside(at)), p.balanced(r, at, group(names.GatewayLoadBalancerGroup), outside))
			rules := p.wanted(all, func(f service.Frontend) (service.Endpoints, bool) {
				es := f.Backends().Cluster()
				if f.ExternalLocal {
					return f.Backends().Local(p.node.Name), f.Kind != service.ClusterIP && len(es) > 0
				}
				return es, f.Kind != service.ClusterIP && len(es) > 0
			})
			check("rules of "+p.node.Name, rules, p.ruled(all, all.Outside()))
			check("table of "+p.node.Name, rules, p.tabled(all, all.Outside()))
			check("own connections by rules of "+p.node.Name, p.wanted(all, p.own), p.ruled(all, atClusterIPs(all)))
			check("own connections by the table of "+p.node.Name, p.wanted(all, p.own), p.tabled(all, atClusterIPs(all)))
			check("flows of "+p.node.Name, p.wanted(all, func(f service.Frontend) (service.Endpoints, bool) {
				return nil, f.Kind != service.ClusterIP && bridgeflows.Bridge{Addrs: p.addrs[:]}.Takes(f)
			}), p.flows(all))
			check("connections of "+p.node.Name, p.wanted(all, overUDP(p.tracked)), p.kept(all, p.stale(all)))
			check("connections in Open vSwitch of "+p.node.Name, p.wanted(all, overUDP(service.Frontend.Backends)), p.kept(all, service.StaleUDP(all)))
		}
		check("service/show", shown(all), summarized(r, at))
	}
}

// flows reads the frontends back from the flows of a shared bridge.
func (p place) flows(all service.List) answers {
	b := bridgeflows.Bridge{Physical: 1, Overlay: 2, Addrs: p.addrs[:], NodePorts: p.addrs[:]}
	out := answers{}
	for _, f := range bridgeflows.Flows(b, all, nil)[len(bridgeflows.Base(b)):] {
		fields := strings.FieldsFunc(f.Match, func(r rune) bool { return r == ',' || r == '=' })
		at := netip.MustParseAddr(fields[slices.IndexFunc(fields, func(w string) bool { return strings.HasSuffix(w, "_dst") })+1])
		var number uint16
		fmt.Sscan(fields[slices.Index(fields, "tp_dst")+1], &number)
		out.set(corev1.Protocol(strings.TrimSuffix(fields[0], "6")), at, number, []string{})
	}
	return out
}

// overUDP chooses endpoints of frontends for UDP.
func overUDP(of func(service.Frontend) service.Endpoints) func(service.Frontend) (service.Endpoints, bool) {
	return func(f service.Frontend) (service.Endpoints, bool) {
		return of(f), f.Protocol() == corev1.ProtocolUDP
	}
}

// tracked are the endpoints that may answer the host. Without rules for a ClusterIP, only those in its own network do.
func (p place) tracked(f service.Frontend) service.Endpoints {
	if _, translated := p.own(f); f.Kind != service.ClusterIP || translated {
		return f.Backends()
	}
	return slices.DeleteFunc(slices.Clone(f.Backends()), func(e service.Endpoint) bool { return !slices.Contains(p.addrs[:], e.Addr) })
}

// stale is Tracked.Stale for both families.
func (p place) stale(all service.List) func(to, answers netip.AddrPort) bool {
	h := Host{Node: p.node.Name, Addrs: p.addrs[:]}
	v4, v6 := NewTracked(h, IPv4, all, nil).Stale, NewTracked(h, IPv6, all, nil).Stale
	return func(to, answers netip.AddrPort) bool {
		if to.Addr().Is4() {
			return v4(to, answers)
		}
		return v6(to, answers)
	}
}

// kept reads back the connections that are not stale, of all from a frontend to any endpoint of the Service, to another
// port of it, and to the endpoint of another Service. Frontends of which all are kept are left out.
func (p place) kept(all service.List, stale func(to, answers netip.AddrPort) bool) answers {
	out := answers{}
	for f := range all.All() {
		at := netip.AddrPortFrom(f.Addr, f.Number)
		if f.Kind == service.NodePort {
			at = netip.AddrPortFrom(p.addrs[f.Family], f.Number)
		}
		stranger := netip.AddrPortFrom([]netip.Addr{addr("10.0.9.9"), addr("fd00:0:0:9::9")}[f.Family], 8080)
		if stale == nil || !stale(at, stranger) {
			continue
		}
		var es []string
		for _, port := range f.Endpoints {
			for _, e := range port.Of(families()[f.Family]) {
				if !stale(at, e.AddrPort()) {
					es = append(es, e.AddrPort().String())
				}
			}
		}
		out.set(f.Protocol(), at.Addr(), at.Port(), es)
	}
	return out
}

// shown returns the frontends and all endpoints as in service/show, and summarized the contents of its table.
func shown(all service.List) answers {
	out := answers{}
	for f := range all.All() {
		if f.Programmed() {
			out.add(f.Claim().String(), f.Backends().Cluster())
		}
	}
	return out
}

func (a answers) add(name string, es service.Endpoints) {
	all := append(a[name], texts(es)...)
	slices.Sort(all)
	a[name] = slices.Compact(all)
}

func summarized(r service.Resolved, at loadbalancer.Inputs) answers {
	out := answers{}
	for _, s := range loadbalancer.New(&r, at).Summaries() {
		name := s.Name[max(0, strings.LastIndex(s.Name, " ")+1):]
		if strings.HasPrefix(s.Name, "nodePort ") {
			name = s.Name
		}
		out.add(name, s.Endpoints)
	}
	return out
}
