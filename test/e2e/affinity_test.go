package e2e

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// sticky adds NodePorts and ClientIP affinity with a timeout to a Service.
func sticky(timeout time.Duration) func(*corev1.Service) {
	seconds := int32(timeout / time.Second)
	return func(s *corev1.Service) {
		s.Spec.Type, s.Spec.SessionAffinity = corev1.ServiceTypeNodePort, corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
}

// nodePortsAt returns the NodePorts of a Service at addresses, by protocol.
func nodePortsAt(s *corev1.Service, addrs []netip.Addr) (out []frontend) {
	for _, p := range s.Spec.Ports {
		for _, a := range addrs {
			out = append(out, frontend{strings.ToLower(string(p.Protocol)), netip.AddrPortFrom(a, uint16(p.NodePort))})
		}
	}
	return out
}

// A frontend is one of a Service.
type frontend struct {
	network string
	at      netip.AddrPort
}

// stays sends several requests to each frontend, checks that one endpoint answers, each time at the first try, and
// returns it. The first packet between two hosts may be lost during ARP: see acquainted.
func stays(t *testing.T, from world.Endpoint, frontends []frontend) map[frontend]string {
	t.Helper()
	out := map[frontend]string{}
	for _, d := range frontends {
		for range 4 {
			name := askOnce(t, from, d)
			if out[d] != "" && out[d] != name {
				t.Errorf("%v from %s: answers of %s and of %s", d, from.Name, out[d], name)
			}
			out[d] = name
		}
	}
	return out
}

// opened waits until hosts have opened NodePorts: the master's own requests to them get answers.
func opened(t *testing.T, ports []frontend) {
	t.Helper()
	for _, p := range ports {
		ask(t, world.Endpoint{Name: "master", Netns: cluster.Node("master").Netns()}, p.network, p.at)
	}
}

// askOnce sends one request and returns the endpoint's name.
func askOnce(t *testing.T, from world.Endpoint, d frontend) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit.Of(10*time.Second))
	defer cancel()
	text, err := probe.Probe{Netns: from.Netns, Network: d.network, Address: d.at}.Once(ctx)
	if err != nil {
		t.Errorf("from %s, no answer at the first try: %v", from.Name, err)
		return ""
	}
	name, _, err := probe.Answer(text)
	if err != nil {
		t.Error(err)
	}
	return name
}

// acquainted sends requests to all endpoints and nodes directly, so hosts learn each other's MACs.
func acquainted(t *testing.T, from world.Endpoint, all map[string]world.Endpoint) {
	t.Helper()
	for _, e := range all {
		for _, a := range e.Addresses {
			if e.Name != from.Name {
				ask(t, from, "tcp", netip.AddrPortFrom(a, kubelet.DefaultPort))
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, n := range cluster.Nodes {
		for _, a := range nodeAddrs(n.Name) {
			if _, err := (probe.Probe{Netns: from.Netns, Network: "icmp", Address: probe.Address(a, 0)}).Until(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// answersAgain waits for the affinity's timeout, and checks that the first try gets an answer again. A load balancer
// selects the same endpoint, the kernel of another node may select another one.
func answersAgain(t *testing.T, from world.Endpoint, stayed map[frontend]string, timeout time.Duration) {
	t.Helper()
	time.Sleep(timeout + 2*time.Second)
	for d := range stayed {
		askOnce(t, from, d)
	}
}

// P12: a client keeps its endpoint at every frontend, from the first packet on. Two
// of three endpoints are on its node.
func TestAffinity(t *testing.T) {
	timeout := limit.Of(3 * time.Second)
	p := pods(t, map[string]string{"web-a": "minion1", "web-b": "minion2", "web-c": "minion2", "client": "minion2"})
	local, near := corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceTrafficDistributionPreferSameNode
	var frontends []frontend
	for name, edit := range map[string]func(*corev1.Service){
		"web":    func(s *corev1.Service) {},
		"outer":  func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal },
		"inner":  func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = &local },
		"nearby": func(s *corev1.Service) { s.Spec.TrafficDistribution = &near },
	} {
		if name == "nearby" && !kubetest.Has(sameNode) {
			continue
		}
		s := service(t, name, func(s *corev1.Service) {
			sticky(timeout)(s)
			s.Spec.Selector = map[string]string{world.AppLabel: "web"}
			edit(s)
		})
		switch name {
		case "inner":
			settledRow(t, "service/default/"+name+"/tcp/node4", 3)
		case "nearby":
			settledFamilies(t, "service/default/"+name+"/tcp/near/node/minion2", 2*2)
		default:
			settledSticky(t, name, 3)
			ports := nodePortsAt(s, slices.Concat(nodeAddrs("minion1"), nodeAddrs("minion2")))
			opened(t, ports)
			frontends = append(frontends, ports...)
		}
		for _, a := range addrs(s.Spec.ClusterIPs) {
			frontends = append(frontends, frontend{"tcp", netip.AddrPortFrom(a, 80)}, frontend{"udp", netip.AddrPortFrom(a, 80)})
		}
	}
	acquainted(t, p["client"], p)
	answersAgain(t, p["client"], stays(t, p["client"], frontends), timeout)
}

// settledSticky is settled for a Service with affinity and NodePorts.
func settledSticky(t *testing.T, name string, endpoints int) {
	t.Helper()
	settledFamilies(t, "service/default/"+name+"/tcp", 2*endpoints)
	settledRow(t, "service/default/"+name+"/tcp/node6", endpoints)
}

// settledFamilies is settledRow for a load balancer with affinity and frontends of both families. Those of IPv6 have
// one of their own before OVN 25.03.
func settledFamilies(t *testing.T, name string, backends int) {
	t.Helper()
	settledRows(t, backends, name, name+"/ip6")
}

// The same for clients outside, with both traffic policies. The other hosts'
// addresses are in the gateway's subnet, and it must not answer ARP for them.
func TestAffinityThroughAGateway(t *testing.T) {
	timeout := limit.Of(3 * time.Second)
	pods(t, map[string]string{"web-a": "minion1", "web-b": "minion1", "web-c": "minion1"})
	at := addGateway(t, cluster.Node("minion1"), world.Shared)
	outside := surround(t).Outside
	for _, policy := range []corev1.ServiceExternalTrafficPolicy{corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal} {
		t.Run(string(policy), func(t *testing.T) {
			s := service(t, "web", func(s *corev1.Service) {
				sticky(timeout)(s)
				s.Spec.ExternalTrafficPolicy = policy
				s.Spec.ExternalIPs = []string{"203.0.113.9", "2001:db8:113::9"}
			})
			external := addrs(s.Spec.ExternalIPs)
			withdraw, err := cluster.RouteServices([]world.Service{{ExternalIPs: external}}, at)
			if err != nil {
				t.Fatal(err)
			}
			defer withdraw()
			settledFamilies(t, "service/default/web/tcp", 2*2*3)
			frontends := nodePortsAt(s, at)
			for _, a := range external {
				frontends = append(frontends, frontend{"tcp", netip.AddrPortFrom(a, 80)}, frontend{"udp", netip.AddrPortFrom(a, 80)})
			}
			for _, d := range frontends {
				ask(t, outside, d.network, d.at) // the router outside learns the gateway's MAC
			}
			answersAgain(t, outside, stays(t, outside, frontends), timeout)
			notClaimed(t, nodeAddrs("minion2"))
		})
	}
}

// notClaimed checks that no router answers ARP for addresses of hosts: a router has
// address sets of the load balancer addresses it answers for.
func notClaimed(t *testing.T, hosts []netip.Addr) {
	t.Helper()
	sets, err := cluster.Central.SBCtl("--format=csv", "--no-headings", "--columns=name,addresses", "list", "Address_Set")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(sets) {
		for _, a := range hosts {
			if strings.Contains(line, "rtr_lb_") && strings.Contains(line, a.String()) {
				t.Errorf("a router answers for host %s: %s", a, line)
			}
		}
	}
}
