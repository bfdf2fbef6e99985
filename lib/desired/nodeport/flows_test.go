package nodeport

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/service"
)

func TestFlowsOfFrontends(t *testing.T) {
	b := bridgeflows.Bridge{Physical: 1, Overlay: 2, MAC: "0a:00:00:00:00:01", Zone: 64000, Addrs: []netip.Addr{addr("192.0.2.1"), addr("192.0.2.9"), addr("192.0.2.200"), addr("2001:db8::1")}}
	b.NodePorts = bridgeflows.Served(b.Addrs, []netip.Addr{addr("192.0.2.1")}, []netip.Addr{addr("192.0.2.9"), addr("2001:db8::1"), addr("198.51.100.1")})
	base := len(bridgeflows.Base(b))
	of := func(frontends service.List, b bridgeflows.Bridge) []string {
		var out []string
		for _, f := range bridgeflows.Flows(b, frontends, nil)[base:] {
			out = append(out, f.Match+" -> "+f.Actions)
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff([]string{
		"tcp,in_port=1,nw_dst=192.0.2.1,tp_dst=30080 -> output:2",
		"tcp,in_port=1,nw_dst=192.0.2.9,tp_dst=30080 -> output:2",
		"tcp,in_port=1,nw_dst=203.0.113.7,tp_dst=80 -> output:2",
		"tcp,in_port=1,nw_dst=203.0.113.8,tp_dst=80 -> output:2",
	}, of(web(), b)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	proxy := func(s *service.Resolved) { s.Ingress[0].Proxy = true }
	b.NodePorts = nil
	if diff := cmp.Diff([]string{
		"tcp,in_port=1,nw_dst=203.0.113.7,tp_dst=80 -> output:2",
		"tcp,in_port=1,nw_dst=203.0.113.8,tp_dst=80 -> output:2",
	}, of(web(), b)); diff != "" {
		t.Errorf("the host has the NodePorts at all addresses (-want +got):\n%s", diff)
	}
	b.Router = []netip.Addr{addr("2001:db8::1")}
	if got := of(web(), b); len(got) > 0 {
		t.Errorf("the gateway router has no way back in the family: %q", got)
	}
	b.Router = nil
	b.Addrs = nil
	if diff := cmp.Diff([]string{
		"tcp,in_port=1,nw_dst=203.0.113.7,tp_dst=80 -> output:2",
		"tcp,in_port=1,tp_dst=30080 -> output:2",
	}, of(web(proxy), b)); diff != "" {
		t.Errorf("without addresses, and behind a load balancer (-want +got):\n%s", diff)
	}
	lost := func(s *service.Resolved) {
		s.Lost = service.LostIn(map[service.Claim]service.Key{{Protocol: corev1.ProtocolTCP, Port: 30080}: {Namespace: "a", Name: "b"}})
	}
	if got := of(web(lost), b); slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, "30080") }) {
		t.Errorf("another Service has the NodePort: %q", got)
	}
}

func TestFlowsOfHostPorts(t *testing.T) {
	b := bridgeflows.Bridge{Physical: 1, Overlay: 2, MAC: "0a:00:00:00:00:01", Zone: 64000, Router: []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")}}
	base := len(bridgeflows.Base(b))
	var got []string
	for _, f := range bridgeflows.Flows(b, nil, []hostport.Pod{
		one("web", "", 80, 8080), one("dns", "192.0.2.1", 53, 5353, udp), one("own", "127.0.0.1", 81, 8080), one("other", "192.0.2.9", 82, 8080), one("late", "", 80, 9090),
	})[base:] {
		got = append(got, f.Match+" -> "+f.Actions)
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{
		"tcp,in_port=1,nw_dst=192.0.2.1,tp_dst=80 -> output:2",
		"tcp6,in_port=1,ipv6_dst=2001:db8::1,tp_dst=80 -> output:2",
		"udp,in_port=1,nw_dst=192.0.2.1,tp_dst=53 -> output:2",
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
