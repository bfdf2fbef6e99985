package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/test/host"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/probe"
)

// The addresses behind the management port.
var (
	management = []netip.Addr{netip.MustParseAddr("10.128.1.2"), netip.MustParseAddr("fd01::2")}
	podA       = []netip.Addr{netip.MustParseAddr("10.128.1.3"), netip.MustParseAddr("fd01::3")}
	podB       = []netip.Addr{netip.MustParseAddr("10.128.1.4"), netip.MustParseAddr("fd01::4")}
)

// overlay makes a management port, and behind it a namespace with the addresses of pods and ClusterIPs. In a
// cluster OVN balances the latter.
func (w *world) overlay(services ...*corev1.Service) {
	w.Helper()
	w.script(`set -e
		ovs-vsctl add-port br-int k8s-node1 -- set Interface k8s-node1 type=internal external_ids:iface-id=k8s-node1
		ip link set k8s-node1 up
		ip addr add 10.128.1.2/24 dev k8s-node1
		ip addr add fd01::2/64 dev k8s-node1 nodad
		ip route add 172.30.0.0/16 via 10.128.1.1
		ip -6 route add fd02::/112 via fd01::1
		ethtool -K k8s-node1 tx off >/dev/null
		ip netns add pods
		ip link add pods0 type veth peer name eth0 netns pods
		ip link set pods0 up
		ip -n pods link set lo up
		ip -n pods link set eth0 up
		for a in 1 3 4; do ip -n pods addr add 10.128.1.$a/24 dev eth0; ip -n pods addr add fd01::$a/64 dev eth0 nodad; done
		ip -n pods route add default via 10.128.1.2
		ip -n pods -6 route add default via fd01::2
		ip netns exec pods ethtool -K eth0 tx off >/dev/null
		ovs-vsctl add-port br-int pods0`)
	w.wire()
	for _, s := range services {
		for _, ip := range s.Spec.ClusterIPs {
			w.script(fmt.Sprintf("ip -n pods addr add %s dev lo", ip))
		}
	}
	for name, ports := range map[string][]int{"cluster": {80}, "pod": {8080}} {
		server, err := probe.Serve(w.Path("/run/netns/pods"), name, ports...)
		if err != nil {
			w.Fatal(err)
		}
		w.Cleanup(server.Close)
	}
}

// answers asks until the answer comes from who and shows the client's address.
func (w *world) answers(what, netns, network string, to netip.AddrPort, who string, client netip.Addr) {
	w.Helper()
	w.eventually(fmt.Sprintf("%s: %s answers %v", what, who, client), func() bool {
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		text, err := (probe.Probe{Netns: netns, Network: network, Address: to}).Once(ctx)
		if err != nil {
			return false
		}
		name, from, err := probe.Answer(strings.TrimSpace(text))
		return err == nil && name == who && from.Addr() == client
	})
}

// dual makes a Service of both families.
func dual(s *corev1.Service) {
	both := corev1.IPFamilyPolicyRequireDualStack
	s.Spec.IPFamilyPolicy = &both
}

func outside(family int) netip.Addr {
	return []netip.Addr{host.FabricIPv4(), host.FabricIPv6()}[family]
}

func TestTheHostTakesInConnections(t *testing.T) {
	w := newWorld(t)
	nodes := []netip.Addr{w.IPv4(), w.IPv6()}
	web := w.service("web", func(s *corev1.Service) {
		dual(s)
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ExternalIPs = []string{"203.0.113.7", "2001:db8:7::7"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.8"}}
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 80, NodePort: 30082})
	})
	w.overlay(web)
	w.endpoints(web, 8080, "10.128.1.3@node1", "10.128.2.3@node2")
	w.endpoints(web, 8080, "fd01::3@node1", "fd01:0:0:2::3@node2")
	for _, via := range []struct{ to, via string }{{"203.0.113.0/24", w.IPv4().String()}, {"2001:db8:7::/64", w.IPv6().String()}} {
		if _, err := w.fabric.Route(netip.MustParsePrefix(via.to), netip.MustParseAddr(via.via)); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	out := w.fabric.Netns()
	external := []netip.Addr{netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8:7::7")}
	for f := range nodes {
		for _, network := range []string{"tcp", "udp"} {
			w.answers("outside to NodePort "+network, out, network, netip.AddrPortFrom(nodes[f], 30082), "cluster", management[f])
			w.answers("outside to external address "+network, out, network, netip.AddrPortFrom(external[f], 80), "cluster", management[f])
			w.answers("host to its NodePort "+network, w.Netns(), network, netip.AddrPortFrom(nodes[f], 30082), "cluster", management[f])
			w.answers("host to external address "+network, w.Netns(), network, netip.AddrPortFrom(external[f], 80), "cluster", management[f])
		}
	}
	w.answers("outside to load balancer", out, "tcp", netip.MustParseAddrPort("203.0.113.8:80"), "cluster", management[0])

	// Policy Local: straight to the pod here, with the client's own address.
	w.update("web", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	for f := range nodes {
		for _, network := range []string{"tcp", "udp"} {
			w.answers("policy Local "+network, out, network, netip.AddrPortFrom(nodes[f], 30082), "pod", outside(f))
		}
		w.answers("policy Local, from this host", w.Netns(), "tcp", netip.AddrPortFrom(nodes[f], 30082), "cluster", management[f])
	}
	w.update("web", func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} })
	w.eventually("the load balancer's address is closed", func() bool { return w.refuses(out, "203.0.113.8:80") != nil })
	// Linux 7.2 refuses nft's conversions of a single byte (nft_byteorder_init in net/netfilter/nft_byteorder.c).
	if code := w.script("nft --debug=netlink list ruleset || true"); strings.Contains(code, ", 2, 1)") {
		t.Errorf("a byte order conversion of one byte:\n%s", code)
	}
	w.endpoints(web, 8080, "10.128.2.3@node2")
	w.eventually("a node without an endpoint is silent", func() bool {
		err := w.refuses(out, netip.AddrPortFrom(nodes[0], 30082).String())
		return err != nil && !strings.Contains(err.Error(), "refused")
	})

	// Without endpoints: refused at once.
	w.endpoints(web, 8080)
	w.eventually("refused", func() bool {
		err := w.refuses(out, netip.AddrPortFrom(nodes[0], 30082).String())
		return err != nil && strings.Contains(err.Error(), "refused")
	})
	w.eventually("an external address is refused", func() bool {
		err := w.refuses(out, "203.0.113.7:80")
		return err != nil && strings.Contains(err.Error(), "refused")
	})
	w.deleteService("web")
	w.eventually("no rule of the Service is left", func() bool { return !strings.Contains(w.script(host.RulesScript), "default/web") })
}

// refuses connects by TCP, and returns the reason of the failure.
func (w *world) refuses(netns, to string) error {
	return probe.In(netns, func() error {
		c, err := net.DialTimeout("tcp", to, 300*time.Millisecond)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}

func TestAnEndpointOfThisHost(t *testing.T) {
	w := newWorld(t)
	api := w.service("api", nil)
	w.overlay(api)
	server, err := probe.Serve(w.Netns(), "host", 9090)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	w.endpoints(api, 9090, w.IPv4().String()+"@node1")
	w.start(shared...)
	w.answers("outside to NodePort", w.fabric.Netns(), "tcp", netip.AddrPortFrom(w.IPv4(), 30082), "host", host.FabricIPv4())
	cluster := netip.MustParseAddr(api.Spec.ClusterIP)
	w.eventually("this host to the ClusterIP", func() bool {
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		text, err := (probe.Probe{Netns: w.Netns(), Network: "tcp", Address: netip.AddrPortFrom(cluster, 80)}).Once(ctx)
		return err == nil && strings.HasPrefix(text, "host ")
	})
	if out := w.appctl("service/show", "default/api"); !strings.Contains(out, "rules") {
		t.Errorf("service/show: %s", out)
	}
}

func TestUDPFollowsItsEndpoint(t *testing.T) {
	w := newWorld(t)
	dns := w.service("dns", func(s *corev1.Service) {
		s.Spec.Ports[0].Protocol = corev1.ProtocolUDP
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	w.overlay(dns)
	other, err := probe.Serve(w.Path("/run/netns/pods"), "other", 8081)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	w.endpoints(dns, 8080, podA[0].String()+"@node1")
	w.start()
	var conn net.Conn
	if err := probe.In(w.fabric.Netns(), func() (err error) {
		conn, err = net.Dial("udp", netip.AddrPortFrom(w.IPv4(), 30082).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buffer := make([]byte, 512)
	ask := func() string {
		_, _ = conn.Write([]byte("who?\n"))
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		n, _ := conn.Read(buffer)
		return string(buffer[:n])
	}
	w.eventually("the first endpoint answers", func() bool { return strings.HasPrefix(ask(), "pod ") })
	w.endpoints(dns, 8081, podB[0].String()+"@node1")
	took := w.eventually("the same socket reaches the next one", func() bool { return strings.HasPrefix(ask(), "other ") })
	t.Logf("the socket has the new endpoint after %v", took.Round(time.Millisecond))
}

// /healthz and /livez answer as kube-proxy's do, also at IPv6. A leaving Node gets no new connections.
func TestHealthz(t *testing.T) {
	w := newWorld(t)
	nodes := cluster.Client().CoreV1().Nodes()
	node, err := nodes.Create(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nodes.Delete(context.Background(), "node1", metav1.DeleteOptions{}) })
	w.start()
	status := func(url string) string {
		return w.script("curl -sg -o /dev/null -w '%{http_code}' " + url + " || true")
	}
	for _, url := range []string{fmt.Sprintf("http://%v:10256/healthz", w.IPv4()), "http://[::1]:10256/healthz", "http://127.0.0.1:10256/livez"} {
		w.eventually(url, func() bool { return status(url) == "200" })
	}
	if body := w.script("curl -s http://127.0.0.1:10256/healthz"); !strings.HasPrefix(body, `{"lastUpdated": "`) || !strings.HasSuffix(body, `, "nodeEligible": true}`) {
		t.Errorf("the answer: %s", body)
	}
	node.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}}
	if _, err := nodes.Update(w.ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the taint", func() bool { return status("http://127.0.0.1:10256/healthz") == "503" })
	if got := status("http://127.0.0.1:10256/livez"); got != "200" {
		t.Errorf("/livez with the taint: %s", got)
	}
	w.script("ovs-vsctl set Open_vSwitch . external_ids:ovn-k8s-healthz-bind-address=off")
	w.eventually("off", func() bool { return status("http://127.0.0.1:10256/livez") == "000" })
}

// /healthz needs only what serves here: no rules of a family that no pod here has, and no flows of a bridge without a gateway.
func TestHealthzNeedsOnlyWhatServes(t *testing.T) {
	host.NeedIPTables(t)
	w := newWorld(t)
	w.script(`set -e
		for tool in ip6tables ip6tables-save ip6tables-restore; do
			printf '#!/bin/sh\necho "cannot initialize ip6tables table nat: Table does not exist" >&2\nexit 3\n' >/usr/local/sbin/$tool; chmod +x /usr/local/sbin/$tool
		done
		ovs-vsctl set Open_vSwitch . external_ids:ovn-k8s-firewall=iptables
		ovs-vsctl add-port br-int k8s-node1 -- set Interface k8s-node1 type=internal external_ids:iface-id=k8s-node1
		ip link set k8s-node1 up
		ip addr add 10.128.1.2/24 dev k8s-node1`)
	w.unplug()
	w.startBlind()
	w.script("ovs-vsctl del-port k8s-patch-breth0-br-int -- del-port k8s-patch-br-int-breth0")
	w.eventually("the bridge is the host's alone", func() bool { return strings.Contains(w.appctl("reconcile/show"), "flows fails") })
	w.plug()
	w.eventually("200", func() bool {
		return w.script("curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:10256/livez || true") == "200"
	})
	shown := w.appctl("reconcile/show")
	if !strings.Contains(shown, "flows fails") || !strings.Contains(shown, "rules6 fails") {
		t.Errorf("nothing fails here:\n%s", shown)
	}
	if strings.Contains(shown, "local gateway fails") {
		t.Errorf("it would have no rules of IPv6:\n%s", shown)
	}
}

// A ServiceCIDR with addresses of two Nodes is one of nodes: no host routes to it, or it would lose its way to them.
func TestNoRouteToANetworkOfNodes(t *testing.T) {
	if lacks := kubetest.Lacks("ServiceCIDRs", kubetest.ServiceCIDRs); lacks != "" {
		t.Skip(lacks)
	}
	w := newWorld(t)
	nodes := cluster.Client().CoreV1().Nodes()
	put := func(name, address string) {
		t.Helper()
		n, err := nodes.Create(w.ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nodes.Delete(context.Background(), name, metav1.DeleteOptions{}) })
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		if _, err := nodes.UpdateStatus(w.ctx, n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.script(`ovs-vsctl add-port br-int k8s-node1 -- set Interface k8s-node1 type=internal external_ids:iface-id=k8s-node1
		ip link set k8s-node1 up; ip addr add 10.128.1.2/24 dev k8s-node1`)
	put("node2", "172.30.7.2")
	w.start()
	w.eventually("a route, with one Node there", func() bool { return routed(w) })
	put("node3", "172.30.7.3")
	w.eventually("no route, with two", func() bool { return !routed(w) })
	if err := nodes.Delete(w.ctx, "node3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.eventually("a route again", func() bool { return routed(w) })
}

func TestHealthCheckNodePort(t *testing.T) {
	w := newWorld(t)
	w.script(`ovs-vsctl add-port br-int k8s-node1 -- set Interface k8s-node1 type=internal external_ids:iface-id=k8s-node1
		ip link set k8s-node1 up; ip addr add 10.128.1.2/24 dev k8s-node1`)
	full := w.service("full", func(s *corev1.Service) { // it leaves no room for other replies
		s.Spec.ExternalTrafficPolicy, s.Spec.Ports = corev1.ServiceExternalTrafficPolicyLocal, nil
		for i := range int32(10) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: 80 + i})
		}
	})
	var all []string
	for i := range service.MaxOwnReplies / 10 {
		all = append(all, fmt.Sprintf("10.128.1.%d@node1", 100+i))
	}
	w.endpoints(full, 8080, all...)
	s := w.service("lb", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	})
	w.endpoints(s, 8080, "10.128.1.3@node1", "10.128.1.4@node1", "10.128.2.3@node2")
	w.start()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = probe.In(w.fabric.Netns(), func() error {
			c, err = (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}}}
	url := fmt.Sprintf("http://%v:%d/healthz", w.IPv4(), s.Spec.HealthCheckNodePort)
	check := func() (int, string) {
		r, err := client.Get(url)
		if err != nil {
			return 0, err.Error()
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		return r.StatusCode, strings.TrimSpace(string(body))
	}
	is := func(status int, endpoints int) func() bool {
		return func() bool {
			code, body := check()
			return code == status && body == fmt.Sprintf(`{"service":{"namespace":"default","name":"lb"},"localEndpoints":%d,"serviceProxyHealthy":true}`, endpoints)
		}
	}
	w.eventually("no room for replies", is(503, 0))
	if got := w.appctl("service/show", "default/lb"); !strings.Contains(got, "nobody: older services leave no room for its replies here") {
		t.Errorf("service/show: %s", got)
	}
	w.deleteService("full")
	w.eventually("two endpoints", is(200, 2))
	w.endpoints(s, 8080, "10.128.2.3@node2")
	w.eventually("none", is(503, 0))
	w.deleteService("lb")
	w.eventually("nobody answers", func() bool { code, _ := check(); return code == 0 })
}

// A program listening at a NodePort or at the port of health checks is reported once by Events of the Services; the
// rest works.
func TestConflictsWithProgramsOfTheHost(t *testing.T) {
	w := newWorld(t)
	web := w.service("web", nil)
	lb := w.service("lb", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.Ports[0].NodePort = 30083
	})
	w.overlay(web)
	w.endpoints(web, 8080, "10.128.1.3@node1")
	listener, err := probe.Serve(w.Netns(), "program", 30082, int(lb.Spec.HealthCheckNodePort))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	p := w.start()
	w.answers("outside to NodePort", w.fabric.Netns(), "tcp", netip.AddrPortFrom(w.IPv4(), 30082), "cluster", management[0])
	for name, want := range map[string]string{
		"web": "nodePort 30082/TCP of service default/web: a program of node node1 listens there, too, and is not reached any more: give the service or the program another port",
		"lb":  "give the service another healthCheckNodePort",
	} {
		w.eventually("an Event of "+name, func() bool {
			events, err := cluster.Client().CoreV1().Events("default").List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Service,involvedObject.name=" + name})
			return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return strings.HasSuffix(e.Message, want) })
		})
	}
	w.appctl("reconcile/resync")
	if n := strings.Count(p.Output(), "a program of node node1 listens there"); n != 1 {
		t.Errorf("the log tells %d times", n)
	}
}
