package e2e

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// service creates a Service of both families, with port 80 of world.Networks, for
// the pods whose names start with its name and a dash. It is deleted at the end
// of the test.
func service(t *testing.T, name string, edit func(*corev1.Service)) *corev1.Service {
	t.Helper()
	both := corev1.IPFamilyPolicyRequireDualStack
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: &both, Selector: map[string]string{"app": name},
		},
	}
	s.Spec.Ports = servicePorts()
	if edit != nil {
		edit(s)
	}
	api := cluster.Kube.Client().CoreV1().Services("default")
	s, err := api.Create(t.Context(), s, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.Delete(context.Background(), s.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		var left string
		eventually(t, "nothing of the Service is left", func() bool {
			left, err = cluster.Central.NBCtl("--bare", "--columns=name", "find", "load_balancer", "external_ids:ovn-k8s-owner=service/default/"+s.Name)
			return err == nil && left == ""
		}, &left)
	})
	return s
}

func addrs(texts []string) (out []netip.Addr) {
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

// servicePorts returns port 80 of world.Networks.
func servicePorts() (ports []corev1.ServicePort) {
	for _, network := range world.Networks() {
		ports = append(ports, corev1.ServicePort{Name: network, Protocol: world.Protocol(network), Port: 80, TargetPort: intstr.FromInt32(kubelet.DefaultPort)})
	}
	return ports
}

// waysTo returns the Attempts by world.Networks from an endpoint to a port of addresses.
func waysTo(from world.Endpoint, to []netip.Addr, port int, answers []world.Endpoint, seen []netip.Addr) (attempts []world.Attempt) {
	for _, a := range to {
		for _, network := range world.Networks() {
			attempts = append(attempts, world.Attempt{
				Row: from.Name, Column: "service", From: from, Network: network,
				Address: probe.Address(a, port), Answers: answers, Seen: seen,
			})
		}
	}
	return attempts
}

// hosts returns all nodes as clients.
func hosts() (out []world.Endpoint) {
	for _, n := range cluster.Nodes {
		out = append(out, world.Endpoint{Name: n.Name, Netns: n.Netns(), Addresses: n.Management})
	}
	return out
}

// AC-70: TCP and UDP of one port reach the endpoints of a ClusterIP. AC-80: so does a pod
// that is an endpoint itself.
func TestClusterIPs(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion1", "web-b": "minion2", "client": "minion1", "far": "master"})
	s := service(t, "web", nil)
	to, backends := addrs(s.Spec.ClusterIPs), []world.Endpoint{p["web-a"], p["web-b"]}
	var attempts []world.Attempt
	for _, from := range append(hosts(), p["client"], p["far"]) {
		attempts = append(attempts, waysTo(from, to, 80, backends, from.Addresses)...)
	}
	for _, from := range backends { // a connection to itself is seen with the Service's address
		attempts = append(attempts, waysTo(from, to, 80, backends, slices.Concat(from.Addresses, to))...)
	}
	try(t, attempts)
	consistent(t)
}

// A Service without endpoints, and a port that a Service does not have, refuse
// connections immediately.
func TestNoEndpointsAreRefusedAtOnce(t *testing.T) {
	p := pods(t, map[string]string{"client": "minion1", "web-a": "minion2"})
	empty, web := service(t, "empty", nil), service(t, "web", nil)
	try(t, waysTo(p["client"], addrs(web.Spec.ClusterIPs), 80, []world.Endpoint{p["web-a"]}, p["client"].Addresses))
	for _, from := range append(hosts(), p["client"]) {
		for _, a := range addrs(empty.Spec.ClusterIPs) {
			refused(t, from, netip.AddrPortFrom(a, 80))
		}
		for _, a := range addrs(web.Spec.ClusterIPs) {
			refused(t, from, netip.AddrPortFrom(a, 81))
		}
	}
}

// refused checks that TCP and UDP are refused within 100 ms. The first try may
// wait for a neighbour, or for the Service itself.
func refused(t *testing.T, from world.Endpoint, to netip.AddrPort) {
	t.Helper()
	for _, network := range []string{"tcp", "udp"} {
		p := probe.Probe{Netns: from.Netns, Network: network, Address: to}
		var what string
		eventually(t, p.String()+" from "+from.Name+" is refused", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), limit.Of(5*time.Second))
			defer cancel()
			start := time.Now()
			answer, err := p.Once(ctx)
			took := time.Since(start)
			if what = answer; err != nil {
				what = err.Error()
			}
			return err != nil && strings.Contains(what, "refused") && took < limit.Of(100*time.Millisecond)
		}, &what)
	}
}

// nodeAddrs returns a node's own addresses, of both families.
func nodeAddrs(name string) []netip.Addr {
	n := cluster.Node(name)
	return []netip.Addr{n.IPv4(), n.IPv6()}
}

func TestNodePortsOnTheOwnNode(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion1", "web-b": "minion2", "client": "minion1"})
	s := service(t, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	backends := []world.Endpoint{p["web-a"], p["web-b"]}
	attempts := nodePortWays(p["client"], nodeAddrs("minion1"), s, backends, p["client"].Addresses)
	attempts = append(attempts, nodePortWays(p["web-a"], nodeAddrs("minion1"), s, backends, slices.Concat(p["web-a"].Addresses, nodeAddrs("minion1")))...)
	try(t, attempts)
}

func TestInternalTrafficPolicyLocal(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion1", "web-b": "minion2", "near": "minion1", "far": "minion2", "none": "master"})
	local := corev1.ServiceInternalTrafficPolicyLocal
	s := service(t, "web", func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = &local })
	to := addrs(s.Spec.ClusterIPs)
	for range 5 { // not by chance
		try(t, slices.Concat(
			waysTo(p["near"], to, 80, []world.Endpoint{p["web-a"]}, p["near"].Addresses),
			waysTo(p["far"], to, 80, []world.Endpoint{p["web-b"]}, p["far"].Addresses),
			waysTo(hosts()[1], to, 80, []world.Endpoint{p["web-a"]}, hosts()[1].Addresses),
		))
	}
	for _, a := range to { // no endpoint on the node
		refused(t, p["none"], netip.AddrPortFrom(a, 80))
	}
}

// The name of a Service may begin with a digit since Kubernetes 1.36. It is in names of template variables.
func TestServiceNameThatBeginsWithADigit(t *testing.T) {
	newer(t, "names of Services that begin with a digit", "1.36")
	p := pods(t, map[string]string{"7web-a": "minion1", "7web-b": "minion2", "far": "minion2"})
	local := corev1.ServiceInternalTrafficPolicyLocal
	s := service(t, "7web", func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = &local })
	try(t, waysTo(p["far"], addrs(s.Spec.ClusterIPs), 80, []world.Endpoint{p["7web-b"]}, p["far"].Addresses))
}

func TestExternalIPsFromWithin(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion1", "client": "minion2"})
	external := []string{"203.0.113.9", "2001:db8:113::9"}
	for _, policy := range []corev1.ServiceExternalTrafficPolicy{corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal} {
		t.Run(string(policy), func(t *testing.T) {
			service(t, "web", func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, policy
				s.Spec.ExternalIPs = external
			})
			try(t, waysTo(p["client"], addrs(external), 80, []world.Endpoint{p["web-a"]}, p["client"].Addresses))
		})
	}
}

// A Service may have the address of a node as external IP: all clients reach it
// there, and NodePorts of other Services still work.
func TestAddressesOfNodesAsExternalIPs(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion1", "other-a": "minion2", "client": "minion2"})
	at := nodeAddrs("minion1")
	web := service(t, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	other := service(t, "other", func(s *corev1.Service) {
		for _, a := range at {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, a.String())
		}
		for _, port := range web.Spec.Ports {
			port.Name, port.Port, port.NodePort = "like-"+port.Name, port.NodePort, 0
			s.Spec.Ports = append(s.Spec.Ports, port)
		}
	})
	eventually(t, "an Event about the NodePorts", func() bool {
		list, err := cluster.Kube.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.UID == other.UID && strings.Contains(e.Message, "is that of service default/web")
		})
	})
	var nodes []netip.Addr
	for _, n := range cluster.Nodes {
		nodes = append(append(nodes, n.Management...), nodeAddrs(n.Name)...)
	}
	var attempts []world.Attempt
	for _, from := range append(hosts(), p["client"], p["web-a"], surround(t).Outside) {
		seen := append(slices.Clone(nodes), from.Addresses...)
		attempts = append(attempts, waysTo(from, at, 80, []world.Endpoint{p["other-a"]}, seen)...)
		attempts = append(attempts, nodePortWays(from, at, web, []world.Endpoint{p["web-a"]}, seen)...)
	}
	try(t, attempts)
}

// settled waits until the hosts have programmed a Service with this number of
// endpoints.
func settled(t *testing.T, name string, endpoints int) {
	t.Helper()
	settledRow(t, "service/default/"+name+"/tcp", 2*endpoints)
}

// settledRow waits until a load balancer has this number of backends, over all of
// its VIPs, and the hosts have programmed it.
func settledRow(t *testing.T, name string, backends int) {
	t.Helper()
	settledRows(t, backends, name)
}

// settledRows is settledRow for the sum over several load balancers.
func settledRows(t *testing.T, backends int, names ...string) {
	t.Helper()
	var vips string
	eventually(t, "all endpoints are there", func() bool {
		vips = ""
		for _, name := range names {
			found, err := cluster.Central.NBCtl("--bare", "--columns=vips", "find", "load_balancer", "external_ids:ovn-k8s-id="+name)
			if err != nil {
				return false
			}
			vips += found
		}
		return strings.Count(vips, ":"+strconv.Itoa(kubelet.DefaultPort)) == backends
	}, &vips)
	if _, err := cluster.Central.NBCtl("--wait=hv", "sync"); err != nil {
		t.Fatal(err)
	}
}

// ask repeats a request until there is an answer, and returns the server's name.
func ask(t *testing.T, from world.Endpoint, network string, to netip.AddrPort) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	text, err := probe.Probe{Netns: from.Netns, Network: network, Address: to}.Until(ctx)
	if err != nil {
		t.Fatal(err)
	}
	name, _, err := probe.Answer(text)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// Checks 48, 53 and 54 with packets: edits take effect immediately and leave nothing behind.
func TestCheck53ServiceEdits(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion1", "client": "minion2"})
	s := service(t, "web", nil)
	to, client := addrs(s.Spec.ClusterIPs), p["client"]
	try(t, waysTo(client, to, 80, []world.Endpoint{p["web-a"]}, client.Addresses))
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].Port = 90
	}
	if _, err := cluster.Kube.Client().CoreV1().Services("default").Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	try(t, waysTo(client, to, 90, []world.Endpoint{p["web-a"]}, client.Addresses))
	for _, a := range to {
		refused(t, client, netip.AddrPortFrom(a, 80))
	}
}

// endpoints creates endpoints of a Service without selector, with ports of servicePorts.
func endpoints(t *testing.T, name string, kind discoveryv1.AddressType, on map[string]netip.Addr) {
	t.Helper()
	s := endpointSlice(name+"-"+strings.ToLower(string(kind)), name, kind)
	for node, a := range on {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a.String()}, NodeName: &node})
	}
	api := cluster.Kube.Client().DiscoveryV1().EndpointSlices("default")
	if _, err := api.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Delete(context.Background(), s.Name, metav1.DeleteOptions{}) })
}

// Backends in the host's network are reached at the host's own address, by pods
// of that host and of others, and by other hosts.
func TestBackendsInTheHostsNetwork(t *testing.T) {
	p := pods(t, map[string]string{"near": "minion1", "far": "minion2"})
	servers := surround(t).Nodes
	s := service(t, "web", func(s *corev1.Service) { s.Spec.Selector = nil })
	own := nodeAddrs("minion1")
	endpoints(t, "web", discoveryv1.AddressTypeIPv4, map[string]netip.Addr{"minion1": own[0]})
	endpoints(t, "web", discoveryv1.AddressTypeIPv6, map[string]netip.Addr{"minion1": own[1]})
	to, backend := addrs(s.Spec.ClusterIPs), []world.Endpoint{servers[1]}
	var attempts []world.Attempt
	for _, from := range []world.Endpoint{p["near"], p["far"], hosts()[0], hosts()[2]} {
		attempts = append(attempts, waysTo(from, to, 80, backend, from.Addresses)...)
	}
	try(t, attempts)
}

// From outside, through a gateway with a NIC of its own.
func TestServicesThroughAGateway(t *testing.T) {
	p := pods(t, map[string]string{"web-near": "minion1", "web-far": "minion2"})
	gateway := cluster.Node("minion1")
	at := addGateway(t, gateway, world.Dedicated)
	outside := surround(t).Outside
	join := []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")}
	for _, tt := range []struct {
		policy  corev1.ServiceExternalTrafficPolicy
		answers []world.Endpoint
		seen    []netip.Addr
	}{
		{corev1.ServiceExternalTrafficPolicyCluster, []world.Endpoint{p["web-near"], p["web-far"]}, firstGateway(join)},
		{corev1.ServiceExternalTrafficPolicyLocal, []world.Endpoint{p["web-near"]}, outside.Addresses},
	} {
		t.Run(string(tt.policy), func(t *testing.T) {
			s := service(t, "web", func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, tt.policy
			})
			for range 3 {
				try(t, nodePortWays(outside, at, s, tt.answers, tt.seen))
			}
			consistent(t)
		})
	}
}

// A packet to a pod on the gateway's own node has the longest path within one Open
// vSwitch, from outside and from another node. A Service with affinity also has
// NodePorts at the other node's address, which still counts as a client's.
func TestPodsOnTheNodeOfASharedGateway(t *testing.T) {
	p := pods(t, map[string]string{"web-near": "minion1"})
	at := addGateway(t, cluster.Node("minion1"), world.Shared)
	around := surround(t)
	service(t, "sticky", sticky(time.Hour))
	s := service(t, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	seen := firstGateway([]netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")})
	for _, from := range []world.Endpoint{around.Outside, around.Nodes[2]} {
		try(t, nodePortWays(from, at, s, []world.Endpoint{p["web-near"]}, seen))
	}
}

// firstGateway returns the join addresses of the first gateway.
func firstGateway(join []netip.Prefix) (out []netip.Addr) {
	for _, j := range join {
		out = append(out, j.Addr().Next().Next())
	}
	return out
}

// nodePortWays returns the Attempts to the NodePorts of a Service, each by its
// protocol.
func nodePortWays(from world.Endpoint, to []netip.Addr, s *corev1.Service, answers []world.Endpoint, seen []netip.Addr) (attempts []world.Attempt) {
	for _, port := range s.Spec.Ports {
		for _, w := range waysTo(from, to, int(port.NodePort), answers, seen) {
			if strings.EqualFold(w.Network, string(port.Protocol)) {
				attempts = append(attempts, w)
			}
		}
	}
	return attempts
}

// An Event reports the invalid part of a Service, and the rest of the Service works.
func TestAnEventTellsWhatIsWrong(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion1", "client": "minion2"})
	s := service(t, "web", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"10.128.1.77"} })
	var said string
	eventually(t, "there is an Event", func() bool {
		list, err := cluster.Kube.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			said = e.Message
			return e.InvolvedObject.Kind == "Service" && e.InvolvedObject.Name == "web" && e.Reason == "BadServiceAddress" &&
				strings.Contains(e.Message, "address 10.128.1.77 of service default/web lies in the cluster subnet 10.128.0.0/14")
		})
	}, &said)
	try(t, waysTo(p["client"], addrs(s.Spec.ClusterIPs), 80, []world.Endpoint{p["web-a"]}, p["client"].Addresses))
	shown := sh(t, cluster.Master(), "ovs-appctl -t "+watcher()+" "+ofWatcher("service/show")+" default/web")
	for _, want := range []string{"clusterIP " + s.Spec.ClusterIP + ":80/TCP", ":8080@minion1", "web/tcp@default", "lies in the cluster subnet"} {
		if !strings.Contains(shown, want) {
			t.Errorf("service/show lacks %q:\n%s", want, shown)
		}
	}
}
