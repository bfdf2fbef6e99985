package world

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ovn-k8s/test/probe"
)

// ServicePort is where the Services that CreateService makes answer.
const ServicePort = 80

// AppLabel selects the backends of a Service.
const AppLabel = "app"

// A Service is a Kubernetes Service of type LoadBalancer, with every way in that
// there is.
type Service struct {
	Name                                     string
	ClusterIPs, ExternalIPs, LoadBalancerIPs []netip.Addr
	// NodePorts are by protocol, "tcp" and "udp".
	NodePorts map[string]int
	// Backends answer.
	Backends []Endpoint
}

// CreateService makes a dual-stack Service for pods with the label app=NAME that
// answer on targetPort, changed by edit, which may be nil. number, from 1, makes
// its outer addresses.
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
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{
			Name: network(protocol), Protocol: protocol, Port: ServicePort, TargetPort: intstr.FromInt(targetPort),
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
	for _, a := range s.LoadBalancerIPs {
		service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	if service, err = api.UpdateStatus(ctx, service, metav1.UpdateOptions{}); err != nil {
		return s, err
	}
	for _, p := range service.Spec.Ports {
		s.NodePorts[network(p.Protocol)] = int(p.NodePort)
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

// outer are addresses of both families for documentation (RFC 5737, RFC 3849).
func outer(base, number int) []netip.Addr {
	return []netip.Addr{
		netip.AddrFrom4([4]byte{203, 0, 113, byte(base + number)}),
		netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", base+number)),
	}
}

// network is what package probe calls a protocol.
func network(p corev1.Protocol) string {
	return map[corev1.Protocol]string{corev1.ProtocolTCP: "tcp", corev1.ProtocolUDP: "udp"}[p]
}

func words(addrs []netip.Addr) []string {
	var text []string
	for _, a := range addrs {
		text = append(text, a.String())
	}
	return text
}

// AwaitServices waits until all hosts treat Services as they are now. Before, a
// host's first packets may take another way, on which backends see another address.
func (w *World) AwaitServices(ctx context.Context, services []Service) error {
	for _, n := range w.Nodes {
		for _, s := range services {
			if err := until(ctx, func() error { return n.knows(ctx, s) }); err != nil {
				return err
			}
		}
	}
	if err := until(ctx, func() error { return w.Check(ctx) }); err != nil {
		return err
	}
	if _, err := w.Central.NBCtl("--wait=hv", "sync"); err != nil {
		return err
	}
	return w.each(func(n *Node) error { return until(ctx, func() error { return n.upToDate(ctx) }) })
}

// until tries again and again until there is no error, or ctx ends.
func until(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// knows reports what n's gateway helper does not know yet of a Service.
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

// upToDate reports what n's gateway helper still has to change.
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

// helper runs a command of n's gateway helper.
func (n *Node) helper(ctx context.Context, command ...string) (string, error) {
	out, _, err := n.Run(ctx, "ovs-appctl", append([]string{"--target=ovn-k8s-gateway-helper", "--timeout=20"}, command...)...)
	return out, err
}

// RouteServices has the router outside send what is for the outer addresses of
// services to the addresses of a gateway, one of each family, until that is
// withdrawn.
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

// A Door is a way into a Service.
type Door struct {
	Name      string
	Addresses []netip.Addr
	Ports     map[string]int // by protocol
	// Inside doors are for pods and nodes only, Outside ones for clients outside.
	Inside, Outside bool
}

// Doors are all ways into s: its cluster IP, its node ports at every node and, for
// clients outside, at a gateway, its external and its load balancer's IPs.
func (w *World) Doors(s Service, gateway []netip.Addr) []Door {
	own := map[string]int{"tcp": ServicePort, "udp": ServicePort}
	doors := []Door{{Name: "ClusterIP", Addresses: s.ClusterIPs, Ports: own, Inside: true}}
	for _, n := range w.Nodes {
		doors = append(doors, Door{Name: n.Name + ":NodePort", Addresses: endpoint(n.Host).Addresses, Ports: s.NodePorts})
	}
	return append(doors,
		Door{Name: "gateway:NodePort", Addresses: gateway, Ports: s.NodePorts, Outside: true},
		Door{Name: "externalIP", Addresses: s.ExternalIPs, Ports: own},
		Door{Name: "LB IP", Addresses: s.LoadBalancerIPs, Ports: own})
}

// A Client is who asks for Services.
type Client struct {
	Endpoint
	// Row is shown in the table.
	Row string
	// Outside clients have no way to cluster IPs.
	Outside bool
}

// Around are where a backend is and where its clients are: its node and a pod
// beside it, another node and a pod there.
type Around struct {
	Node, OtherNode *Node
	Near, Far       Endpoint
}

// InsideClients are all kinds of clients within the cluster. One in the host's
// network is the same as its host, and so is a backend that is there.
func (a Around) InsideClients(backend Endpoint) []Client {
	clients := []Client{
		{Row: "pod, same node", Endpoint: a.Near},
		{Row: "pod, other node", Endpoint: a.Far},
		{Row: "host, same node", Endpoint: a.Node.asClient()},
		{Row: "host, other node", Endpoint: a.OtherNode.asClient()},
	}
	if backend.Netns != a.Node.Netns() {
		clients = append(clients, Client{Row: "the backend itself", Endpoint: backend})
	}
	return clients
}

// asClient is the node by all of its addresses.
func (n *Node) asClient() Endpoint {
	e := endpoint(n.Host)
	e.Addresses = append(e.Addresses, n.Management...)
	return e
}

// OutsideClient is the host outside.
func (w *World) OutsideClient() Client {
	return Client{Row: "outside", Endpoint: endpoint(w.Outside), Outside: true}
}

// ServiceWays are those of clients through doors to s. Who may be seen is by
// names, which Table shows: the client itself by "client", a node, its gateway
// router included, by "node", and the door by "door".
func (w *World) ServiceWays(s Service, doors []Door, clients []Client) []Way {
	var ways []Way
	for _, c := range clients {
		for _, d := range doors {
			if d.Inside && c.Outside || d.Outside && !c.Outside {
				continue
			}
			for _, a := range d.Addresses {
				for protocol, port := range d.Ports {
					way := Way{
						Row: c.Row, Column: d.Name, From: c.Endpoint, Network: protocol,
						Address: probe.Address(a, port), Answers: s.Backends, Names: map[netip.Addr]string{},
					}
					w.mayBeSeen(&way, s, d, c)
					ways = append(ways, way)
				}
			}
		}
	}
	return ways
}

// mayBeSeen says how a client may be seen: inside, with its own address through
// the cluster IP; through other doors with a node's too, whose answer it must
// come back through. A backend that asks for itself is seen as somebody else.
func (w *World) mayBeSeen(way *Way, s Service, d Door, c Client) {
	see := func(name string, addrs []netip.Addr) {
		for _, a := range addrs {
			way.Seen = append(way.Seen, a)
			way.Names[a] = name
		}
	}
	itself := slices.ContainsFunc(s.Backends, func(b Endpoint) bool { return b.Netns == c.Netns })
	if !d.Inside {
		for _, n := range w.Nodes {
			see("node", endpoint(n.Host).Addresses)
			see("node", n.Management)
		}
		see("node", w.joins())
	}
	if itself {
		see("door", d.Addresses)
	}
	see("client", c.Addresses)
}

// joins are the addresses that gateway routers have on the join switch, as the
// defaults have it: a client that comes in by one is seen with its.
func (w *World) joins() []netip.Addr {
	var all []netip.Addr
	for i := range w.Nodes {
		all = append(all,
			netip.AddrFrom4([4]byte{100, 64, 0, byte(i + 2)}),
			netip.MustParseAddr(fmt.Sprintf("fd98::%x", i+2)))
	}
	return all
}
