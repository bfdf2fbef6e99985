package nodeport

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/tracked"
)

func TestStaleConnections(t *testing.T) {
	udp := func(s *service.Resolved) { s.Ports[0].Protocol = corev1.ProtocolUDP }
	if !OfHostPorts([]string{"nat: -X OVN-SVC-HOSTPORTS"}) || OfHostPorts([]string{"nat: -A OVN-SVC-WAYS"}) {
		t.Error("rules of hostPorts are not told from others")
	}
	stale := NewTracked(node1, IPv4, web(udp), nil).Stale
	for _, tt := range []struct {
		to, answers string
		want        bool
	}{
		{"192.0.2.1:30080", "172.30.0.10:80", false},
		{"192.0.2.1:30080", "10.128.1.3:8080", false},
		{"192.0.2.1:30080", "10.128.1.9:8080", true},
		{"192.0.2.1:30080", "192.0.2.1:30080", true},
		{"203.0.113.7:80", "10.128.1.9:8080", true},
		{"192.0.2.1:53", "10.128.1.9:53", false},
	} {
		if got := stale(netip.MustParseAddrPort(tt.to), netip.MustParseAddrPort(tt.answers)); got != tt.want {
			t.Errorf("to %s, answered by %s: %v", tt.to, tt.answers, got)
		}
	}
}

// The host's own connections to a ClusterIP go to OVN, or to an endpoint if the host's rules translate them.
func TestOwnStaleConnections(t *testing.T) {
	udp := func(s *service.Resolved) {
		s.Ports[0] = service.Port{Protocol: corev1.ProtocolUDP, Port: 80}
		s.ExternalIPs, s.Ingress = nil, nil
	}
	without := func(s *service.Resolved) { udp(s); s.Endpoints = []service.Endpoints{nil} }
	agent := func(states ...service.State) func(*service.Resolved) {
		return func(s *service.Resolved) {
			udp(s)
			for i, a := range []string{"192.0.2.1", "192.0.2.2"} {
				s.Endpoints[0][i].Host = &service.Host{Addr: addr(a), Node: fmt.Sprintf("node%d", i+1), State: states[i]}
			}
		}
	}
	const byOVN, own, other, pod = "172.30.0.10:80", "192.0.2.1:8080", "192.0.2.2:8080", "10.128.1.3:8080"
	for _, tt := range []struct {
		name       string
		change     func(*service.Resolved)
		translated bool
		good       []string
	}{
		{"no endpoint", without, false, []string{byOVN}},
		{"pods", udp, false, []string{byOVN}},
		{"an endpoint of this host", agent(service.Serving, service.Serving), true, []string{own, other}},
		{"one that ends, beside another", agent(service.Draining, service.Serving), false, []string{byOVN, own}},
		{"the last one ends", func(s *service.Resolved) {
			agent(service.Draining, service.Serving)(s)
			s.Endpoints[0] = s.Endpoints[0][:1]
		}, true, []string{own}},
	} {
		now := NewTracked(node1, IPv4, web(tt.change), nil)
		if now.Translated != tt.translated {
			t.Errorf("%s: translated: %v", tt.name, now.Translated)
		}
		for _, answers := range []string{byOVN, own, other, pod} {
			if got := now.Stale(netip.MustParseAddrPort(byOVN), netip.MustParseAddrPort(answers)); got == slices.Contains(tt.good, answers) {
				t.Errorf("%s: answered by %s: stale: %v", tt.name, answers, got)
			}
		}
	}
	one, two := NewTracked(node1, IPv4, web(udp), nil), NewTracked(node1, IPv4, web(without), nil)
	if !one.Equal(two) || one.Equal(NewTracked(node1, IPv4, web(agent(service.Serving, service.Serving)), nil)) {
		t.Error("connections would be read for each change of pods, or not for one of this host's endpoints")
	}
}

// The host's table is read after a change of endpoints only if the host's rules chose them: OVN balances most Services.
func TestEndpointsThatCountForTheHost(t *testing.T) {
	outside := func(change ...func(*service.Resolved)) tracked.Table {
		return NewTracked(node1, IPv4, web(append([]func(*service.Resolved){func(s *service.Resolved) { s.Ports[0].Protocol = corev1.ProtocolUDP }}, change...)...), nil)
	}
	one := func(s *service.Resolved) { s.Endpoints[0] = s.Endpoints[0][:1] }
	other := func(s *service.Resolved) { s.Endpoints[0] = s.Endpoints[0][1:] }
	none := func(s *service.Resolved) { s.Endpoints = []service.Endpoints{nil} }
	drains := func(s *service.Resolved) {
		s.Endpoints[0][1].Host = &service.Host{Addr: addr("10.128.1.4"), Node: "node1", State: service.Draining}
	}
	local := func(s *service.Resolved) { s.ExternalLocal = true }
	agent := func(s *service.Resolved) {
		s.Endpoints[0][0].Host = &service.Host{Addr: addr("192.0.2.1"), Node: "node1", State: service.Serving}
	}
	sticky := func(s *service.Resolved) { s.Affinity = 1 }
	nothing := func(*service.Resolved) {}
	for _, tt := range []struct {
		name     string
		of       func(*service.Resolved)
		was, now func(*service.Resolved)
		same     bool
	}{
		{"OVN balances: one goes", nothing, nothing, one, true},
		{"OVN balances: one comes", nothing, other, nothing, true},
		{"OVN balances: all differ", nothing, one, other, true},
		{"OVN balances: the last one goes", nothing, one, none, false},
		{"an agent of this host comes", nothing, nothing, agent, false},
		{"the endpoint beside an agent goes", agent, nothing, one, false},
		{"session affinity", sticky, nothing, one, false},
		{"policy Local: that of another node goes", local, nothing, one, true},
		{"policy Local: that of this node goes", local, nothing, other, false},
		{"policy Local: one of this node has drained", local, drains, one, false},
	} {
		was, now := outside(tt.of, tt.was), outside(tt.of, tt.now)
		if was.Equal(now) != tt.same || now.Equal(was) != tt.same {
			t.Errorf("%s: equal: %v, %v", tt.name, was.Equal(now), now.Equal(was))
		}
	}

	// A connection to an endpoint by rules of the past ends with the endpoint.
	const to, left = "192.0.2.1:30080", "10.128.2.3:8080"
	was, now, then := outside(sticky), outside(), outside(one)
	now.Keep(was)
	then.Keep(now)
	stale := func(t tracked.Table) bool { return t.Stale(netip.MustParseAddrPort(to), netip.MustParseAddrPort(left)) }
	if stale(now) || now.Equal(then) || !stale(then) {
		t.Error("a connection by former rules ended before its endpoint, or stays after it")
	}
	again := outside()
	again.Keep(then)
	if stale(again) || !again.Equal(then) {
		t.Error("the endpoint counts again without rules")
	}
	first := outside()
	first.Keep(tracked.Table{})
	if first.Equal(outside(one)) {
		t.Error("at first, an endpoint that an earlier process may have chosen does not count")
	}
}

func TestStaleConnectionsInside(t *testing.T) {
	udp := func(s *service.Resolved) { s.Ports[0].Protocol = corev1.ProtocolUDP }
	if service.StaleUDP(web()) != nil {
		t.Error("there is no way in for UDP")
	}
	stale := service.StaleUDP(web(udp))
	for _, tt := range []struct {
		to, answers string
		want        bool
	}{
		{"192.0.2.7:30080", "10.128.1.3:8080", false},
		{"192.0.2.7:30080", "10.128.1.9:8080", true},
		{"[2001:db8::7]:30080", "[fd00::9]:8080", false}, // a Service of IPv4
		{"203.0.113.7:80", "10.128.1.9:8080", true},
		{"203.0.113.7:30080", "10.128.1.9:8080", true}, // an external address may be a node's
		{"172.30.0.10:80", "10.128.1.9:8080", true},
		{"172.30.0.10:80", "10.128.2.3:8080", false},
		{"192.0.2.7:53", "10.128.1.9:53", false},
	} {
		if got := stale(netip.MustParseAddrPort(tt.to), netip.MustParseAddrPort(tt.answers)); got != tt.want {
			t.Errorf("to %s, answered by %s: %v", tt.to, tt.answers, got)
		}
	}
}
