package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// change edits a Service.
func change(t *testing.T, name string, edit func(*corev1.Service)) *corev1.Service {
	t.Helper()
	api := cluster.Kube.Client().CoreV1().Services("default")
	s, err := api.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	edit(s)
	if s, err = api.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// states are the conditions of a Service's endpoints.
type states map[netip.Addr]discoveryv1.EndpointConditions

// conditions returns the conditions of an endpoint.
func conditions(ready, serving, terminating bool) discoveryv1.EndpointConditions {
	return discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
}

// setEndpoints sets the IPv4 endpoints of a Service without selector, with the
// ports tcp and udp.
func setEndpoints(t *testing.T, name string, all states) {
	t.Helper()
	s := endpointSlice(name, name, discoveryv1.AddressTypeIPv4)
	for a, c := range all {
		e := discoveryv1.Endpoint{Addresses: []string{a.String()}, Conditions: c}
		for _, n := range cluster.Nodes { // found by the third byte of a pod's address
			if a.As4()[2] == n.Management[0].As4()[2] {
				e.NodeName = &n.Name
			}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	api := cluster.Kube.Client().DiscoveryV1().EndpointSlices("default")
	_, err := api.Update(t.Context(), s, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(t.Context(), s, metav1.CreateOptions{})
		t.Cleanup(func() { _ = api.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
	if err != nil {
		t.Fatal(err)
	}
}

// endpointSlice returns an empty EndpointSlice of a Service, with the ports tcp and udp.
func endpointSlice(name, service string, kind discoveryv1.AddressType) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: kind,
	}
	for _, name := range world.Networks() {
		p, port := world.Protocol(name), int32(kubelet.DefaultPort)
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Protocol: &p, Port: &port})
	}
	return s
}

func withoutSelector(s *corev1.Service) { s.Spec.Selector = nil }

// answer waits until exactly the endpoints in want answer.
func answer(t *testing.T, from world.Endpoint, to netip.AddrPort, want ...world.Endpoint) {
	t.Helper()
	var names []string
	for _, e := range want {
		names = append(names, e.Name)
	}
	var last string
	eventually(t, fmt.Sprintf("at %v only %q answer", to, names), func() bool {
		seen := map[string]bool{}
		for range 12 * len(want) {
			if last = ask(t, from, "tcp", to); !slices.Contains(names, last) {
				return false
			}
			seen[last] = true
		}
		return len(seen) == len(want)
	}, &last)
}

// KEP-1669: a terminating endpoint gets no new connections while another one is
// ready, keeps its connections, and is used if there is no other.
func TestTerminatingEndpoints(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion1", "web-b": "minion2", "client": "minion1"})
	a, b := p["web-a"], p["web-b"]
	ready, drains, ends := conditions(true, true, false), conditions(false, true, true), conditions(false, false, true)
	s := service(t, "web", withoutSelector)
	to := netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIPs[0]), 80)

	setEndpoints(t, "web", states{b.Addresses[0]: ready})
	answer(t, p["client"], to, b)
	session, err := probe.OpenSession(t.Context(), p["client"].Netns, to)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	setEndpoints(t, "web", states{a.Addresses[0]: ready, b.Addresses[0]: drains})
	answer(t, p["client"], to, a)
	before := session.Typed()
	setEndpoints(t, "web", states{a.Addresses[0]: drains, b.Addresses[0]: drains})
	answer(t, p["client"], to, a, b)
	setEndpoints(t, "web", states{a.Addresses[0]: ends, b.Addresses[0]: drains})
	answer(t, p["client"], to, b)
	setEndpoints(t, "web", states{a.Addresses[0]: ends, b.Addresses[0]: ends})
	refused(t, p["client"], to)
	if err := session.Undisturbed(before); err != nil {
		t.Error(err)
	}
}

// A pod that is not ready gets connections only with publishNotReadyAddresses.
func TestPublishNotReadyAddresses(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion1", "client": "minion2"}, func(pod *corev1.Pod) {
		if pod.Name == "web-a" {
			pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/never"}}
		}
	})
	s := service(t, "web", nil)
	to := netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIPs[0]), 80)
	refused(t, p["client"], to)
	change(t, "web", func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true })
	answer(t, p["client"], to, p["web-a"])
	change(t, "web", func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = false })
	refused(t, p["client"], to)
}

// While endpoints are added and removed, no request fails and no connection breaks.
func TestEndpointChurnUnderLoad(t *testing.T) {
	where := map[string]string{"web-a": "minion1", "web-b": "minion1", "web-c": "minion2", "web-d": "minion2", "client": "minion1", "far": "master"}
	p := pods(t, where)
	ready := conditions(true, true, false)
	s := service(t, "web", withoutSelector)
	to := netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIPs[0]), 80)
	setEndpoints(t, "web", states{p["web-a"].Addresses[0]: ready})
	var sessions []*probe.Session
	for _, from := range []string{"client", "far"} {
		answer(t, p[from], to, p["web-a"])
		session, err := probe.OpenSession(t.Context(), p[from].Netns, to)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		sessions = append(sessions, session)
	}
	load := startLoad(t, to, p["client"], p["far"])
	for round := range 40 {
		now := states{p["web-a"].Addresses[0]: ready} // survives
		for i, name := range []string{"web-b", "web-c", "web-d"} {
			if (round+i)%3 > 0 {
				now[p[name].Addresses[0]] = ready
			}
		}
		setEndpoints(t, "web", now)
		time.Sleep(150 * time.Millisecond) // the watcher writes this change, not only the last one
		eventually(t, "some requests between two changes", func() bool { return load.requests.Load() >= int64(3*(round+1)) })
	}
	load.stop()
	requests, failed := load.requests.Load(), load.failed.Load()
	t.Logf("%d requests while endpoints changed 40 times, %d failed", requests, failed)
	if failed > 0 {
		t.Errorf("%d of %d requests failed", failed, requests)
	}
	for _, session := range sessions {
		if err := session.Undisturbed(probe.Typed{}); err != nil {
			t.Error(err)
		}
	}
}

// AC-81: UDP clients, each on one socket: clients of a remaining endpoint lose nothing
// while others are added and removed, and clients of a removed endpoint soon get
// another one. The removed endpoint still runs and would answer.
func TestEndpointChurnUnderUDP(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion1", "web-b": "minion1", "web-c": "minion2", "client": "minion1", "far": "master"})
	ready := conditions(true, true, false)
	stays, all := states{p["web-a"].Addresses[0]: ready}, states{}
	for _, name := range []string{"web-a", "web-b", "web-c"} {
		all[p[name].Addresses[0]] = ready
	}
	s := service(t, "web", func(s *corev1.Service) { withoutSelector(s); s.Spec.Type = corev1.ServiceTypeNodePort })
	doors := []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIPs[0]), 80)}
	setEndpoints(t, "web", all)
	for _, from := range []string{"client", "far"} {
		answer(t, p[from], doors[0], p["web-a"], p["web-b"], p["web-c"])
	}
	callers := map[*probe.Caller]string{}
	for i := range 24 {
		from, to := p["client"], doors[0]
		switch i % 3 {
		case 1:
			from = p["far"]
		case 2: // by the NodePort of its own node
			to = netip.AddrPortFrom(nodeAddrs("minion1")[0], uint16(s.Spec.Ports[1].NodePort))
		}
		c, err := probe.Call(from.Netns, to)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		eventually(t, "an answer", func() bool { return c.Called().By != "" })
		callers[c] = fmt.Sprintf("%s to %v", from.Name, to)
	}
	happy := map[*probe.Caller]probe.Called{}
	for c := range callers {
		if now := c.Called(); now.By == p["web-a"].Name {
			happy[c] = now
		}
	}
	for range 4 {
		setEndpoints(t, "web", stays)
		for c, who := range callers {
			eventually(t, who+" has left an endpoint that is gone", func() bool { return c.Called().By == p["web-a"].Name })
		}
		setEndpoints(t, "web", all)
	}
	for c, before := range happy {
		if now := c.Called(); now.Lost != before.Lost || now.Moves > 0 || now.Asked == before.Asked {
			t.Errorf("%s, whose endpoint stayed: %+v, before %+v", callers[c], now, before)
		}
	}
	t.Logf("%d clients, %d of them with the endpoint that stayed", len(callers), len(happy))
	if len(happy) == 0 || len(happy) == len(callers) {
		t.Error("chance has not tried both kinds of clients")
	}
}

// Adding and removing a second family does not disturb the first.
func TestEditsOfFamilies(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion1", "client": "minion2"})
	client, backend, own := p["client"], []world.Endpoint{p["web-a"]}, nodeAddrs("minion2")
	policies := []corev1.IPFamilyPolicy{corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicySingleStack}
	edit := func(policy corev1.IPFamilyPolicy) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.IPFamilyPolicy, s.Spec.Type = &policy, corev1.ServiceTypeNodePort
			if policy == corev1.IPFamilyPolicySingleStack && len(s.Spec.ClusterIPs) > 1 {
				s.Spec.ClusterIPs, s.Spec.IPFamilies = s.Spec.ClusterIPs[:1], s.Spec.IPFamilies[:1]
			}
		}
	}
	s := service(t, "web", edit(policies[0]))
	first := netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIPs[0]), 80)
	answer(t, client, first, backend...)
	load := startLoad(t, first, client)
	for _, policy := range policies[1:] {
		before := s
		s = change(t, "web", edit(policy))
		at := addrs(s.Spec.ClusterIPs)
		try(t, waysTo(client, at, 80, backend, client.Addresses))
		try(t, nodePortWays(client, own[:len(at)], s, backend, client.Addresses))
		if len(at) == 1 {
			refused(t, client, netip.AddrPortFrom(addrs(before.Spec.ClusterIPs)[1], 80))
			refused(t, client, netip.AddrPortFrom(own[1], uint16(s.Spec.Ports[0].NodePort)))
		}
	}
	load.stop()
	if requests, failed := load.requests.Load(), load.failed.Load(); failed > 0 || requests < 10 {
		t.Errorf("of the first family %d of %d requests failed", failed, requests)
	}
	consistent(t)
}

// A load counts the requests that clients send until it is stopped.
type load struct {
	requests, failed atomic.Int64 // failed of requests
	stop             func()       // and wait for the last answers
}

// startLoad makes clients send requests continuously, each on a new connection.
func startLoad(t *testing.T, to netip.AddrPort, from ...world.Endpoint) *load {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	var l load
	var wg sync.WaitGroup
	for _, client := range from {
		wg.Go(func() {
			for ctx.Err() == nil {
				try, done := context.WithTimeout(t.Context(), limit.Of(20*time.Second)) // TCP may retransmit
				_, err := probe.Probe{Netns: client.Netns, Network: "tcp", Address: to}.Once(try)
				done()
				if l.requests.Add(1); err != nil {
					l.failed.Add(1)
					t.Logf("%s: %v", client.Name, err)
				}
			}
		})
	}
	l.stop = func() {
		cancel()
		wg.Wait()
	}
	return &l
}

// Every edit of a Service takes effect, and removed frontends no longer answer.
func TestCheck53EditsOfWaysIn(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion1", "web-b": "minion2", "client": "minion2"})
	client, backends := p["client"], []world.Endpoint{p["web-a"], p["web-b"]}
	own, external := nodeAddrs("minion2"), []string{"203.0.113.9", "2001:db8:113::9"}
	s := service(t, "web", nil)
	cluster4 := netip.AddrPortFrom(netip.MustParseAddr(s.Spec.ClusterIPs[0]), 80)

	// For a short time the host may have programmed a NodePort before OVN.
	seen := slices.Concat(client.Addresses, cluster.Node("minion2").Management)

	s = change(t, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	try(t, nodePortWays(client, own, s, backends, seen))
	old := s.Spec.Ports[0].NodePort
	// In the static band of NodePorts: dynamic allocation takes it last.
	s = change(t, "web", func(s *corev1.Service) { s.Spec.Ports[0].NodePort, s.Spec.Ports[1].NodePort = 30044, 30045 })
	try(t, nodePortWays(client, own, s, backends, seen))
	refused(t, client, netip.AddrPortFrom(own[0], uint16(old)))

	change(t, "web", func(s *corev1.Service) { s.Spec.ExternalIPs = external })
	try(t, waysTo(client, addrs(external), 80, backends, client.Addresses))
	change(t, "web", func(s *corev1.Service) { s.Spec.ExternalIPs = nil })
	eventually(t, "the external IP is gone", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), limit.Of(time.Second))
		defer cancel()
		_, err := probe.Probe{Netns: client.Netns, Network: "tcp", Address: netip.AddrPortFrom(addrs(external)[0], 80)}.Once(ctx)
		return err != nil
	})

	change(t, "web", sticky(time.Hour))
	settledSticky(t, "web", 2)
	stays(t, client, append(nodePortsAt(s, own), frontend{"tcp", cluster4}))
	change(t, "web", func(s *corev1.Service) {
		s.Spec.SessionAffinity, s.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	})
	answer(t, client, cluster4, backends...)

	change(t, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
	refused(t, client, netip.AddrPortFrom(own[0], 31771))
	answer(t, client, cluster4, backends...)
	consistent(t)
}
