package docs_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb/nbdb"
)

// The table of frontends in services.md names all load balancers of Services, and no others.
func TestTableOfFrontends(t *testing.T) {
	patterns := frontendPatterns(t)
	used := map[string]bool{}
	for what, all := range loadBalancers(t) {
		for _, name := range all {
			base := strings.TrimSuffix(name, "/ip6")
			used["/ip6"] = used["/ip6"] || base != name
			i := slices.IndexFunc(patterns, func(p string) bool { return matches(p, base) })
			if i < 0 {
				t.Errorf("%s: services.md does not have load balancer %s", what, name)
				continue
			}
			used[patterns[i]] = true
		}
	}
	for _, p := range append(patterns, "/ip6") {
		if !used[p] {
			t.Errorf("no Service has the load balancer %s of services.md", p)
		}
	}
}

// frontendPatterns are the names of load balancers in the table of services.md, without /ip6.
func frontendPatterns(t *testing.T) (patterns []string) {
	t.Helper()
	_, table, found := strings.Cut(readFile(t, "docs/services.md"), "| frontend | load balancer | applied by |\n")
	if !found {
		t.Fatal("services.md has no table of frontends")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for _, m := range span.FindAllStringSubmatch(table, -1) {
		name, short := strings.CutPrefix(m[1], "…/")
		switch {
		case short:
			name = "service/NAMESPACE/NAME/tcp/" + name
		case !strings.HasPrefix(name, "service/"):
			continue // a field
		}
		if !slices.Contains(patterns, name) {
			patterns = append(patterns, name)
		}
	}
	return patterns
}

// matches reports whether a name has the form of a pattern: its words in capitals stand for names.
func matches(pattern, name string) bool {
	words := regexp.MustCompile(`[A-Z]+`).ReplaceAllString(regexp.QuoteMeta(pattern), `[^/]+`)
	return regexp.MustCompile("^" + words + "$").MatchString(name)
}

// loadBalancers returns the names of load balancers of one Service of each kind, on two nodes with gateways.
func loadBalancers(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for what, change := range servicesOfEachKind() {
		w := twoGateways(t)
		s, slice := webService()
		change(s, slice)
		w.Put(s)
		w.Put(slice)
		for _, u := range w.Units() {
			rows, err := w.Rows(u)
			if err != nil {
				t.Fatalf("%s: %s: %v", what, u, err)
			}
			for _, r := range rows {
				if r.Table == nbdb.LoadBalancerTable && strings.HasPrefix(r.ID, "service/") {
					out[what] = append(out[what], r.ID)
				}
			}
		}
	}
	return out
}

// servicesOfEachKind change a Service with a cluster IP of each family and two endpoints, one on each node.
func servicesOfEachKind() map[string]func(*corev1.Service, *discoveryv1.EndpointSlice) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	nodePort := func(s *corev1.Service) {
		s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30000
	}
	outside := func(s *corev1.Service, policy corev1.ServiceExternalTrafficPolicy, addrs ...string) {
		nodePort(s)
		s.Spec.ExternalIPs, s.Spec.ExternalTrafficPolicy = addrs, policy
	}
	type (
		service = *corev1.Service
		slice   = *discoveryv1.EndpointSlice
	)
	return map[string]func(service, slice){
		"cluster IPs":         func(service, slice) {},
		"external IPs":        func(s service, _ slice) { s.Spec.ExternalIPs = []string{"203.0.113.1"} },
		"addresses of a host": func(s service, _ slice) { s.Spec.ExternalIPs = []string{"192.0.2.1"} },
		"NodePorts":           func(s service, _ slice) { nodePort(s) },
		"affinity":            func(s service, _ slice) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP },
		"internal Local":      func(s service, _ slice) { s.Spec.InternalTrafficPolicy = &local },
		"hints for zones":     func(_ service, e slice) { hint(e, "east", "") },
		"hints for nodes":     func(_ service, e slice) { hint(e, "", "n1") },
		"external Local":      func(s service, _ slice) { outside(s, corev1.ServiceExternalTrafficPolicyLocal, "203.0.113.1") },
		"external Local, IPv6": func(s service, e slice) {
			outside(s, corev1.ServiceExternalTrafficPolicyLocal, "2001:db8:1::1")
			e.AddressType = discoveryv1.AddressTypeIPv6
			for i := range e.Endpoints {
				e.Endpoints[i].Addresses = []string{fmt.Sprintf("fd00:0:0:%d::5", i+1)}
			}
		},
		"Local at a host": func(s service, _ slice) { outside(s, corev1.ServiceExternalTrafficPolicyLocal, "192.0.2.1") },
		"no endpoints": func(s service, e slice) {
			outside(s, corev1.ServiceExternalTrafficPolicyLocal, "203.0.113.1")
			e.Endpoints = nil
		},
		"endpoints of a host": func(s service, e slice) {
			outside(s, corev1.ServiceExternalTrafficPolicyLocal, "203.0.113.1")
			e.Endpoints[0].Addresses = []string{"192.0.2.1"}
		},
		"Cluster at a gateway": func(s service, _ slice) { outside(s, corev1.ServiceExternalTrafficPolicyCluster, "192.0.2.1") },
	}
}

func hint(e *discoveryv1.EndpointSlice, zone, node string) {
	for i := range e.Endpoints {
		h := &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "east"}}}
		if zone != "" {
			h.ForZones[0].Name = zone
		}
		if node != "" {
			h.ForNodes = []discoveryv1.ForNode{{Name: node}}
		}
		e.Endpoints[i].Hints = h
	}
}

// webService is a Service of the cluster, and its slice.
func webService() (*corev1.Service, *discoveryv1.EndpointSlice) {
	tcp, none, port := corev1.ProtocolTCP, "", int32(8080)
	meta := metav1.ObjectMeta{Namespace: "default", Name: "web"}
	ips := []string{"172.16.0.10", "fd02::a"}
	s := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: ips[0], ClusterIPs: ips, Ports: []corev1.ServicePort{{Protocol: tcp, Port: 80}},
	}}
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
	e := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &none, Protocol: &tcp, Port: &port}}}
	for i := range 2 {
		node := fmt.Sprint("n", i+1)
		e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.%d.5", i+1)}, NodeName: &node})
	}
	return s, e
}

// twoGateways is a World of two nodes in two zones, both gateways.
func twoGateways(t *testing.T) *desired.World {
	t.Helper()
	c, err := topology.New("ovn_cluster_router", subnets("10.0.0.0/16,fd00::/48"), subnets("100.64.0.0/16,fd98::/64"))
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes, c.Chassis, c.Gateways = map[string][]netip.Prefix{}, map[string]string{}, map[string]topology.Gateway{}
	w := desired.NewWorld()
	w.Put(servicecidr.Ranges(subnets("172.16.0.0/16,fd02::/112")))
	for i, zone := range []string{"east", "west"} {
		name, addr := fmt.Sprint("n", i+1), fmt.Sprintf("192.0.2.%d", i+1)
		c.Nodes[name] = subnets(fmt.Sprintf("10.0.%d.0/24,fd00:0:0:%d::/64", i+1, i+1))
		c.Chassis[name] = "chassis-" + name
		c.Gateways[name] = topology.Gateway{
			Mode: topology.Physical, Interface: "eth1", Chassis: "chassis-" + name, Node: name, MAC: fmt.Sprintf("02:00:00:00:00:0%d", i+1),
			IPs: subnets(addr + "/24"), NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.254")},
			Join: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("100.64.0.%d", i+2))},
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}}
		w.Put(n)
	}
	w.Put(c)
	return w
}

func subnets(list string) (out []netip.Prefix) {
	for text := range strings.SplitSeq(list, ",") {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}
