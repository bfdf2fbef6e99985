package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/world"
)

// sticky gives a Service NodePorts, and its clients their endpoint for a time.
func sticky(timeout time.Duration) func(*corev1.Service) {
	seconds := int32(timeout / time.Second)
	return func(s *corev1.Service) {
		s.Spec.Type, s.Spec.SessionAffinity = corev1.ServiceTypeNodePort, corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
}

// nodePortsAt are the NodePorts of a Service at addresses, by protocol.
func nodePortsAt(s *corev1.Service, addrs []netip.Addr) (out []door) {
	for _, p := range s.Spec.Ports {
		for _, a := range addrs {
			out = append(out, door{strings.ToLower(string(p.Protocol)), netip.AddrPortFrom(a, uint16(p.NodePort))})
		}
	}
	return out
}

// A door is a way into a Service.
type door struct {
	network string
	at      netip.AddrPort
}

// stays asks at each door several times, checks that one endpoint answers, and
// returns who.
func stays(t *testing.T, from world.Endpoint, doors []door) map[door]string {
	t.Helper()
	out := map[door]string{}
	for _, d := range doors {
		for range 8 {
			name := ask(t, from, d.network, d.at)
			if out[d] != "" && out[d] != name {
				t.Errorf("%v from %s: answers of %s and of %s", d, from.Name, out[d], name)
			}
			out[d] = name
		}
	}
	return out
}

// moves waits, for the affinity's timeout each time, until another endpoint has
// answered at every door. What it asks makes the affinity last longer, so it
// must be silent in between.
func moves(t *testing.T, from world.Endpoint, stayed map[door]string, timeout time.Duration) {
	t.Helper()
	for range 20 {
		time.Sleep(timeout + 2*time.Second) // the datapath looks once a second
		for d, name := range stayed {
			if ask(t, from, d.network, d.at) != name {
				delete(stayed, d)
			}
		}
		if len(stayed) == 0 {
			return
		}
	}
	t.Errorf("%s stays for ever: %v", from.Name, stayed)
}

// A client stays with its endpoint at every way in, and is free after a time. On
// its node are two of three endpoints.
func TestAffinity(t *testing.T) {
	const timeout = 3 * time.Second
	p := pods(t, map[string]string{"web-a": "minion1", "web-b": "minion2", "web-c": "minion2", "client": "minion2"})
	local, near := corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceTrafficDistributionPreferSameNode
	var doors []door
	for name, edit := range map[string]func(*corev1.Service){
		"web":    func(s *corev1.Service) {},
		"outer":  func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal },
		"inner":  func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = &local },
		"nearby": func(s *corev1.Service) { s.Spec.TrafficDistribution = &near },
	} {
		s := service(t, name, func(s *corev1.Service) {
			sticky(timeout)(s)
			s.Spec.Selector = map[string]string{world.AppLabel: "web"}
			edit(s)
		})
		if name == "inner" || name == "nearby" {
			settledRow(t, "service/default/"+name+"/tcp/near/node/minion2", 2*2)
		} else {
			settled(t, name, 3)
			settledNodes(t, name, 3)
			doors = append(doors, nodePortsAt(s, slices.Concat(nodeAddrs("minion1"), nodeAddrs("minion2")))...)
		}
		for _, a := range addrs(s.Spec.ClusterIPs) {
			doors = append(doors, door{"tcp", netip.AddrPortFrom(a, 80)}, door{"udp", netip.AddrPortFrom(a, 80)})
		}
	}
	moves(t, p["client"], stays(t, p["client"], doors), timeout)
}

// settledNodes is settled for NodePorts with affinity.
func settledNodes(t *testing.T, name string, endpoints int) {
	t.Helper()
	hosts := 0
	for _, n := range cluster.Nodes {
		hosts += len(nodeAddrs(n.Name))
	}
	settledRow(t, fmt.Sprintf("service/default/%s/tcp/nodes", name), hosts*endpoints)
}

// Clients outside, too, whatever the traffic policy. The gateway has the other
// hosts' addresses in its subnet then, and must not say that they are its own.
func TestAffinityThroughAGateway(t *testing.T) {
	const timeout = 3 * time.Second
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
			settledRow(t, "service/default/web/tcp", 4*3)
			doors := nodePortsAt(s, at)
			for _, a := range external {
				doors = append(doors, door{"tcp", netip.AddrPortFrom(a, 80)}, door{"udp", netip.AddrPortFrom(a, 80)})
			}
			moves(t, outside, stays(t, outside, doors), timeout)
			notClaimed(t, nodeAddrs("minion2"))
		})
	}
}

// notClaimed checks that no router answers for addresses of hosts: for what it
// does answer as a load balancer it has address sets.
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
