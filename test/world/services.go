package world

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ovn-k8s/test/host"
	"ovn-k8s/test/poll"
	"ovn-k8s/test/probe"
)

// ServicePort is the port of Services made by CreateService.
const ServicePort = 80

// AppLabel selects the backends of a Service.
const AppLabel = "app"

// A Service is a Kubernetes Service of type LoadBalancer with frontends of every
// kind.
type Service struct {
	Name                                     string
	ClusterIPs, ExternalIPs, LoadBalancerIPs []netip.Addr
	// NodePorts maps a protocol, one of Networks, to its node port.
	NodePorts map[string]int
	// Backends are its endpoints.
	Backends []Endpoint
}

// CreateService creates a dual-stack Service for pods with the label app=NAME and
// targetPort. edit, if not nil, changes it before creation, perhaps to one of IPv4.
// number, from 1, determines its external and load-balancer IPs.
func (w *World) CreateService(ctx context.Context, name string, targetPort, number int, edit func(*corev1.Service)) (Service, error) {
	s := Service{
		Name:            name,
		ExternalIPs:     outer(0, number),
		LoadBalancerIPs: outer(128, number),
		NodePorts:       map[string]int{},
	}
	dual := corev1.IPFamilyPolicyRequireDualStack
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilyPolicy: &dual,
			Selector:    map[string]string{AppLabel: name},
			ExternalIPs: words(s.ExternalIPs),
		},
	}
	for _, network := range Networks() {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
			Name: network, Protocol: Protocol(network), Port: ServicePort, TargetPort: intstr.FromInt(targetPort),
		})
	}
	if edit != nil {
		edit(service)
	}
	api := w.Kube.Client().CoreV1().Services(metav1.NamespaceDefault)
	service, err := api.Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		return s, err
	}
	families := len(service.Spec.IPFamilies)
	s.ExternalIPs, s.LoadBalancerIPs = s.ExternalIPs[:families], s.LoadBalancerIPs[:families]
	for _, a := range s.LoadBalancerIPs {
		service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	if service, err = api.UpdateStatus(ctx, service, metav1.UpdateOptions{}); err != nil {
		return s, err
	}
	for _, p := range service.Spec.Ports {
		s.NodePorts[strings.ToLower(string(p.Protocol))] = int(p.NodePort)
	}
	for _, text := range service.Spec.ClusterIPs {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return s, fmt.Errorf("cluster IP of %s: %w", name, err)
		}
		s.ClusterIPs = append(s.ClusterIPs, a)
	}
	return s, nil
}

// outer returns addresses of both families from the documentation ranges (RFC 5737, RFC 3849).
func outer(base, number int) []netip.Addr {
	return []netip.Addr{
		netip.AddrFrom4([4]byte{203, 0, 113, byte(base + number)}),
		netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", base+number)),
	}
}

// Networks are the protocols of Services, by the names of package probe. The userspace
// datapath of Open vSwitch does not track SCTP.
func Networks() []string {
	if host.Datapath() == host.Kernel {
		return []string{"tcp", "udp", "sctp"}
	}
	return []string{"tcp", "udp"}
}

// Protocol is Kubernetes' name of one of Networks.
func Protocol(network string) corev1.Protocol { return corev1.Protocol(strings.ToUpper(network)) }

func words(addrs []netip.Addr) []string {
	var text []string
	for _, a := range addrs {
		text = append(text, a.String())
	}
	return text
}

// AwaitServices waits until all hosts have programmed services as they are now.
// Before that, a host's first packets may be routed differently, and backends see
// another client address.
func (w *World) AwaitServices(ctx context.Context, services []Service) error {
	for _, n := range w.Nodes {
		for _, s := range services {
			if err := poll.Until(ctx, func() error { return n.knows(ctx, s) }); err != nil {
				return err
			}
		}
	}
	if err := poll.Until(ctx, func() error { return w.Check(ctx) }); err != nil {
		return err
	}
	if _, err := w.Central.NBCtl("--wait=hv", "sync"); err != nil {
		return err
	}
	return each(w, func(n *Node) error { return poll.Until(ctx, func() error { return n.upToDate(ctx) }) })
}

// knows returns an error until n's gateway helper knows all addresses and endpoints of a Service.
func (n *Node) knows(ctx context.Context, s Service) error {
	out, err := n.helper(ctx, "service/show", metav1.NamespaceDefault+"/"+s.Name)
	if err != nil {
		return err
	}
	for _, a := range slices.Concat(s.ExternalIPs, s.LoadBalancerIPs) {
		if !strings.Contains(out, probe.Address(a, ServicePort).String()) {
			return fmt.Errorf("the gateway helper of %s does not know %v of %s yet:\n%s", n.Name, a, s.Name, out)
		}
	}
	_, lines, _ := strings.Cut(out, "\n")
	for l := range strings.Lines(lines) {
		if f := strings.Fields(l); f[len(f)-2] != strconv.Itoa(len(s.Backends)) {
			return fmt.Errorf("the gateway helper of %s does not know %d endpoints of %s yet:\n%s", n.Name, len(s.Backends), s.Name, out)
		}
	}
	return nil
}

// upToDate returns an error while n's gateway helper still has rules or flows to change.
func (n *Node) upToDate(ctx context.Context) error {
	rules, err := n.helper(ctx, "rules/show")
	if err != nil {
		return err
	}
	flows, err := n.helper(ctx, "flows/show")
	if err != nil && !strings.Contains(err.Error(), "no bridge") {
		return err
	}
	for l := range strings.Lines(rules + flows) {
		if strings.ContainsAny(l[:1], "!+-~") {
			return fmt.Errorf("the gateway helper of %s still has to change: %s", n.Name, l)
		}
	}
	return nil
}

// helper runs a control command of n's gateway helper.
func (n *Node) helper(ctx context.Context, command ...string) (string, error) {
	if both := []string{"service/show"}; n.masterToo && slices.Contains(both, command[0]) {
		command = append([]string{"node/" + command[0]}, command[1:]...)
	}
	out, _, err := n.Run(ctx, "ovs-appctl", append([]string{"--target=" + cmp.Or(n.process, "ovn-k8s-gateway-helper"), "--timeout=20"}, command...)...)
	return out, err
}

// RouteServices adds routes on the outside router from the external and
// load-balancer IPs of services to the addresses of a gateway, one of each family.
// withdraw removes them.
func (w *World) RouteServices(services []Service, gateway []netip.Addr) (withdraw func(), err error) {
	var all []func()
	withdraw = func() {
		for _, f := range all {
			f()
		}
	}
	for _, s := range services {
		for _, a := range slices.Concat(s.ExternalIPs, s.LoadBalancerIPs) {
			via := slices.IndexFunc(gateway, func(g netip.Addr) bool { return g.Is4() == a.Is4() })
			one, err := w.Fabric.Route(netip.PrefixFrom(a, a.BitLen()), gateway[via])
			if err != nil {
				withdraw()
				return nil, err
			}
			all = append(all, one)
		}
	}
	return withdraw, nil
}

// A Frontend is a frontend of a Service, by all protocols.
type Frontend struct {
	Name      string
	Addresses []netip.Addr
	Ports     map[string]int // by protocol
	// Inside: only pods and nodes use it. Outside: only clients outside the cluster do.
	Inside, Outside bool
}

// Frontends returns all frontends of s: its cluster IP, its node ports on every node
// and, for clients outside, on a gateway, its external IPs and its load-balancer
// IPs.
func (w *World) Frontends(s Service, gateway []netip.Addr) []Frontend {
	own := map[string]int{}
	for _, network := range Networks() {
		own[network] = ServicePort
	}
	frontends := []Frontend{{Name: "ClusterIP", Addresses: s.ClusterIPs, Ports: own, Inside: true}}
	for _, n := range w.Nodes {
		frontends = append(frontends, Frontend{Name: n.Name + ":NodePort", Addresses: endpoint(n.Host).Addresses, Ports: s.NodePorts})
	}
	return append(frontends,
		Frontend{Name: "gateway:NodePort", Addresses: gateway, Ports: s.NodePorts, Outside: true},
		Frontend{Name: "externalIP", Addresses: s.ExternalIPs, Ports: own},
		Frontend{Name: "LB IP", Addresses: s.LoadBalancerIPs, Ports: own})
}

// A Client sends requests to Services.
type Client struct {
	Endpoint
	// Row is its row in the table.
	Row string
	// Outside clients cannot reach cluster IPs.
	Outside bool
}

// Placement is the placement of a backend and its clients: the backend's node with a
// client pod (Near), and another node with a client pod (Far).
type Placement struct {
	Node, OtherNode *Node
	Near, Far       Endpoint
}

// InsideClients returns one client of each kind within the cluster. A pod in the
// host's network, client or backend, counts as its host.
func (p Placement) InsideClients(backend Endpoint) []Client {
	clients := []Client{
		{Row: "pod, same node", Endpoint: p.Near},
		{Row: "pod, other node", Endpoint: p.Far},
		{Row: "host, same node", Endpoint: p.Node.asClient()},
		{Row: "host, other node", Endpoint: p.OtherNode.asClient()},
	}
	if backend.Netns != p.Node.Netns() {
		clients = append(clients, Client{Row: "the backend itself", Endpoint: backend})
	}
	return clients
}

// asClient is the node with all of its addresses.
func (n *Node) asClient() Endpoint {
	e := endpoint(n.Host)
	e.Addresses = append(e.Addresses, n.Management...)
	return e
}

// OutsideClient is the host outside the cluster.
func (w *World) OutsideClient() Client {
	return Client{Row: "outside", Endpoint: endpoint(w.Outside), Outside: true}
}

// ServiceAttempts returns the Attempts of clients through some frontends of s. Table
// shows the client address seen by the backend as "client" (the client's own),
// "node" (a node or its gateway router) or "frontend".
func (w *World) ServiceAttempts(s Service, frontends []Frontend, clients []Client) []Attempt {
	var attempts []Attempt
	for _, c := range clients {
		for _, d := range frontends {
			if d.Inside && c.Outside || d.Outside && !c.Outside {
				continue
			}
			for _, a := range d.Addresses {
				for protocol, port := range d.Ports {
					attempt := Attempt{
						Row: c.Row, Column: d.Name, From: c.Endpoint, Network: protocol,
						Address: probe.Address(a, port), Answers: s.Backends, Names: map[netip.Addr]string{},
					}
					mayBeSeen(w, &attempt, s, d, c)
					attempts = append(attempts, attempt)
				}
			}
		}
	}
	return attempts
}

// mayBeSeen sets the acceptable client addresses. A cluster IP keeps the client's
// own address. Other frontends may also show a node's address (masqueraded: the
// reply must return through that node). A backend connecting to itself may be seen
// with the frontend's address.
func mayBeSeen(w *World, attempt *Attempt, s Service, d Frontend, c Client) {
	see := func(name string, addrs []netip.Addr) {
		for _, a := range addrs {
			attempt.Seen = append(attempt.Seen, a)
			attempt.Names[a] = name
		}
	}
	itself := slices.ContainsFunc(s.Backends, func(b Endpoint) bool { return b.Netns == c.Netns })
	if !d.Inside {
		for _, n := range w.Nodes {
			see("node", endpoint(n.Host).Addresses)
			see("node", n.Management)
		}
		see("node", joins(w))
	}
	if itself {
		see("frontend", d.Addresses)
	}
	see("client", c.Addresses)
}

// joins are the gateway routers' addresses on the join switch with default
// settings. A client coming in through a gateway is seen with such an address.
func joins(w *World) []netip.Addr {
	var all []netip.Addr
	for i := range w.Nodes {
		all = append(all,
			netip.AddrFrom4([4]byte{100, 64, 0, byte(i + 2)}),
			netip.MustParseAddr(fmt.Sprintf("fd98::%x", i+2)))
	}
	return all
}
