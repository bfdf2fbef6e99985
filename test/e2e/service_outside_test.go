package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// An entry is a node and its gateway.
type entry struct {
	mode    string
	node    *world.Node
	gateway []netip.Addr
}

// TestServicesFromOutside makes every node a gateway, each in a different mode, and
// connects to Services from outside through each of them, with both traffic
// policies.
func TestServicesFromOutside(t *testing.T) {
	p := pods(t, map[string]string{
		"web-0": "master", "web-1": "minion1", "web-2": "minion2", "hostweb-0": "master", "hostweb-1": "minion1", "hostweb-2": "minion2",
		"first-0": "master", "second-0": "minion1", "client": "minion2",
	}, func(pod *corev1.Pod) {
		if strings.HasPrefix(pod.Name, "hostweb") {
			pod.Spec.HostNetwork = true
			pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: hostPort, HostPort: hostPort}}
		}
	})
	var entries []entry
	for i, mode := range world.Modes() {
		n := cluster.Nodes[i]
		entries = append(entries, entry{mode, n, addGateway(t, n, mode)})
	}
	t.Run("every frontend", func(t *testing.T) { fromOutside(t, p, entries) })
	t.Run("no endpoint here", func(t *testing.T) { notHere(t, p, entries) })
	t.Run("endpoints that drain", func(t *testing.T) { drainsHere(t, p, entries) })
	t.Run("source ranges", func(t *testing.T) { sourceRanges(t, p["client"], p["first-0"], entries) })
}

func localPolicy(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

// selecting makes a Service select the pods of another app.
func selecting(app string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Selector = map[string]string{world.AppLabel: app} }
}

// An exposed is a Service, the kind of its backends, and its traffic policy.
type exposed struct {
	world.Service
	hosted, local bool
}

// String describes the case.
func (x exposed) String() string {
	words := map[bool]string{false: "pod, Cluster", true: "pod, Local"}
	if x.hosted {
		words = map[bool]string{false: "hostNetwork, Cluster", true: "hostNetwork, Local"}
	}
	return words[x.local]
}

// fromOutside tests all frontends that must work.
func fromOutside(t *testing.T, p map[string]world.Endpoint, entries []entry) {
	var services []exposed
	for i, name := range []string{"web", "hostweb"} {
		port := []int{kubelet.DefaultPort, hostPort}[i]
		all := createService(t, name, port, 2*i+1, nil)
		local := createService(t, name+"-local", port, 2*i+2, func(s *corev1.Service) { selecting(name)(s); localPolicy(s) })
		for n := range entries {
			all.Backends = append(all.Backends, p[fmt.Sprintf("%s-%d", name, n)])
		}
		local.Backends = all.Backends
		services = append(services, exposed{all, i == 1, false}, exposed{local, i == 1, true})
	}
	var all []world.Service
	for _, s := range services {
		all = append(all, s.Service)
	}
	awaitServices(t, all)
	var attempts []world.Attempt
	for i, e := range entries {
		var through []world.Attempt
		for _, s := range services {
			here := s.Backends
			if s.local {
				here = here[i : i+1]
			}
			through = append(through, outsideWays(s, here, e)...)
		}
		routeWhile(t, all, e, func() { try(t, through) })
		attempts = append(attempts, through...)
	}
	t.Logf("%d attempts: the address that the backend saw\n\n%s", len(attempts), world.Table(attempts))
	frontends := map[string]string{"node:NodePort": "node's NodePort", "gateway:NodePort": "gateway's NodePort", "externalIP": "external IP", "LB IP": "load balancer's IP"}
	row := strings.NewReplacer(world.Dedicated+",", "a NIC of its own,", world.Shared+",", "a shared NIC,", "pod,", "pods,")
	compareCells(t, cells(t, "## From outside", 3), attempts, func(w world.Attempt) cell { return cell{row.Replace(w.Row), frontends[w.Column]} })
}

// outsideWays returns the Attempts through one entry to the given backends. With the
// policy Local they see the client itself, unless their answers would leave on
// another path than the client's: a gateway with its own NIC is parallel to its
// host, not in front of it.
func outsideWays(s exposed, answers []world.Endpoint, e entry) (attempts []world.Attempt) {
	client := cluster.OutsideClient()
	for _, attempt := range cluster.ServiceAttempts(s.Service, cluster.Frontends(s.Service, e.gateway), []world.Client{client}) {
		frontend, _, isNodePort := strings.Cut(attempt.Column, ":")
		atNode := frontend == e.node.Name
		if isNodePort && !atNode && frontend != "gateway" {
			continue // belongs to another entry
		}
		attempt.Row, attempt.Column = fmt.Sprintf("%s, %v", e.mode, s), strings.Replace(attempt.Column, e.node.Name, "node", 1)
		attempt.Answers = answers
		if s.local && (e.mode != world.Dedicated || atNode == s.hosted) {
			attempt.Seen = client.Addresses
		}
		attempts = append(attempts, attempt)
	}
	return attempts
}

// notHere checks that a gateway without an endpoint of a Service with the policy
// Local drops packets to it, without answering or returning them.
func notHere(t *testing.T, p map[string]world.Endpoint, entries []entry) {
	for number, name := range []string{"first", "second"} { // with backends on these entries
		s := exposed{createService(t, name, kubelet.DefaultPort, 5+number, localPolicy), false, true}
		answers := []world.Endpoint{p[name+"-0"]}
		s.Backends = answers
		awaitServices(t, []world.Service{s.Service})
		routeWhile(t, []world.Service{s.Service}, entries[number], func() { // programmed by then
			try(t, outsideWays(s, answers, entries[number]))
		})
		for i, e := range entries {
			if i != number {
				routeWhile(t, []world.Service{s.Service}, e, func() { silentWays(t, outsideWays(s, answers, e)) })
			}
		}
	}
}

// drainsHere checks that with the policy Local a terminating endpoint gets
// connections while it is the only one on its node, although others are ready.
func drainsHere(t *testing.T, p map[string]world.Endpoint, entries []entry) {
	ready, drains := conditions(true, true, false), conditions(false, true, true)
	s := exposed{createService(t, "draining", kubelet.DefaultPort, 7, func(s *corev1.Service) { withoutSelector(s); localPolicy(s) }), false, true}
	for i, e := range entries {
		here, elsewhere := p[fmt.Sprint("web-", i)], p[fmt.Sprint("web-", (i+1)%len(entries))]
		setEndpoints(t, "draining", states{here.Addresses[0]: drains, elsewhere.Addresses[0]: ready})
		attempts := ofIPv4(outsideWays(s, []world.Endpoint{here}, e))
		routeWhile(t, []world.Service{s.Service}, e, func() { try(t, attempts) })
	}
	here := entries[1]
	setEndpoints(t, "draining", states{p["web-1"].Addresses[0]: drains, p["second-0"].Addresses[0]: ready})
	routeWhile(t, []world.Service{s.Service}, here, func() {
		answer(t, cluster.OutsideClient().Endpoint, netip.AddrPortFrom(s.ExternalIPs[0], world.ServicePort), p["second-0"])
	})
}

func ofIPv4(attempts []world.Attempt) []world.Attempt {
	return slices.DeleteFunc(attempts, func(w world.Attempt) bool { return w.Address.Addr().Is6() })
}

// routeWhile routes the external and load-balancer IPs of services to an entry
// during do.
func routeWhile(t *testing.T, services []world.Service, e entry, do func()) {
	t.Helper()
	withdraw, err := cluster.RouteServices(services, e.gateway)
	if err != nil {
		t.Fatal(err)
	}
	defer withdraw()
	do()
}

// silentWays waits until requests are dropped: not answered, not refused, and not
// looping (a loop would cause an ICMP error).
func silentWays(t *testing.T, attempts []world.Attempt) {
	t.Helper()
	var wg sync.WaitGroup
	for _, w := range attempts {
		wg.Go(func() {
			if answer, err := becomesSilent(t.Context(), w); err != nil {
				t.Errorf("%v: answer %q, %v; want silence", w, answer, err)
			}
		})
	}
	wg.Wait()
}

var errAnswered = errors.New("answered")

// becomesSilent sends requests until nothing comes back.
func becomesSilent(ctx context.Context, w world.Attempt) (answer string, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		once, cancel := context.WithTimeout(ctx, limit.Of(time.Second))
		answer, err = probe.Probe{Netns: w.From.Netns, Network: w.Network, Address: w.Address}.Once(once)
		cancel()
		if err != nil && (strings.Contains(err.Error(), "timeout") || strings.Contains(err.Error(), "deadline")) {
			return "", nil
		}
		if time.Now().After(end) {
			return answer, cmp.Or(err, errAnswered)
		}
	}
}

// moreIngress gives a Service another load balancer address of each family.
func moreIngress(t *testing.T, name string) []netip.Addr {
	api := cluster.Kube.Client().CoreV1().Services(metav1.NamespaceDefault)
	s, err := api.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	more := []netip.Addr{netip.MustParseAddr("203.0.113.200"), netip.MustParseAddr("2001:db8::c8")}
	for _, a := range more {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
	}
	if _, err := api.UpdateStatus(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return more
}

// sourceRanges checks that only allowed clients reach the address of a load
// balancer: outside, through each entry, and inside.
func sourceRanges(t *testing.T, pod, backend world.Endpoint, entries []entry) {
	outside := cluster.OutsideClient()
	ranges := func(addrs []netip.Addr) (out []string) {
		for _, a := range addrs {
			out = append(out, netip.PrefixFrom(a, a.BitLen()).String())
		}
		return out
	}
	s := createService(t, "first", kubelet.DefaultPort, 8, func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = ranges(outside.Addresses) })
	s.Backends = []world.Endpoint{backend}
	s.LoadBalancerIPs = append(s.LoadBalancerIPs, moreIngress(t, s.Name)...) // one term of the ACLs with the first
	// Only through the load balancer's addresses: other frontends are not restricted.
	of := func(c world.Client, gateway []netip.Addr) []world.Attempt {
		return slices.DeleteFunc(cluster.ServiceAttempts(s, cluster.Frontends(s, gateway), []world.Client{c}), func(w world.Attempt) bool { return w.Column != "LB IP" })
	}
	inside := of(world.Client{Row: "pod", Endpoint: pod}, nil)
	for _, e := range entries {
		routeWhile(t, []world.Service{s}, e, func() { try(t, of(outside, e.gateway)) })
	}
	silentWays(t, inside)
	change(t, "first", func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = ranges(pod.Addresses) })
	try(t, inside)
	for _, e := range entries {
		routeWhile(t, []world.Service{s}, e, func() { silentWays(t, of(outside, e.gateway)) })
	}
}
