package nodeport

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nftables"
)

// Parts of a host left out by ChangeOf stay the same.
func TestChangeOfLeavesOutWhatStays(t *testing.T) {
	left := map[string]int{}
	for seed := range uint64(700) {
		r := rand.New(rand.NewPCG(seed, 11))
		in := randomInputs(r)
		in.change(r)
		was, now := randomNamed(r, 1), randomNamed(r, 1)
		if r.IntN(2) == 0 {
			for _, s := range []*service.Resolved{&was, &now} { // for pods only
				s.ExternalIPs, s.Ingress, s.Outside, s.Ports = nil, nil, nil, slices.Clone(s.Ports)
				for i := range s.Ports {
					s.Ports[i].NodePort = 0
				}
			}
		}
		if r.IntN(2) == 0 { // most changes are of endpoints
			now.Service = was.Service
			now.Endpoints = make([]service.Endpoints, len(was.Ports))
			for i := range now.Endpoints {
				now.Endpoints[i] = slices.Clone(was.Endpoints[i])[:r.IntN(len(was.Endpoints[i])+1)]
			}
		}
		versions := [2]*service.Resolved{&was, &now}
		if r.IntN(5) == 0 {
			versions[r.IntN(2)] = nil
		}
		c := ChangeOf(in.host, versions[0], versions[1])
		var states [2]map[string]any
		for i, v := range versions {
			var all []*service.Resolved
			if v != nil {
				all = append(all, v)
			}
			list := service.AllFrontends(all, network().Network)
			b := bridgeflows.Bridge{Physical: 1, Overlay: 2, MAC: "02:00:00:00:00:01", Zone: 64000, Addrs: in.host.Addrs, NodePorts: in.host.Addrs}
			s := map[string]any{"udp": service.UDPAnswers(list), "health": HealthChecks(in.host.Node, all), "frontends": outsideOf(list)}
			s["flows"] = bridgeflows.Flows(b, list, in.pods)
			for _, family := range []netip.Addr{IPv4, IPv6} {
				rules := NewRules(in.host, family, list, in.pods)
				s["rules"] = fmt.Sprint(s["rules"], nftables.Describe(rules.Table()), rules.Chains(true))
			}
			states[i] = s
		}
		for part, touched := range map[string]bool{"udp": c.UDP, "health": c.Health, "frontends": c.Frontends, "rules": c.Rules, "flows": c.Rules} {
			if touched {
				continue
			}
			left[part]++
			if !reflect.DeepEqual(states[0][part], states[1][part]) {
				t.Fatalf("seed %d: %s differ, and are left out:\n%v\n%v\nof %+v\nand %+v", seed, part, states[0][part], states[1][part], versions[0], versions[1])
			}
		}
	}
	for _, part := range []string{"udp", "health", "frontends", "rules", "flows"} {
		if left[part] < 50 {
			t.Errorf("%s are left out %d times only", part, left[part])
		}
	}
}

// outsideOf lists what conflicts with programs of the host are found by.
func outsideOf(list service.List) (out []string) {
	for f := range list.Outside() {
		out = append(out, fmt.Sprint(f.UID, f.Kind, f.Claim()))
	}
	return out
}

// An endpoint of a Service that OVN balances for pods only changes nothing on a host, one in its own network does.
func TestChangeOfEndpoints(t *testing.T) {
	of := func(protocol corev1.Protocol, nodePort uint16, at string) *service.Resolved {
		return &service.Resolved{
			Service:   service.Service{ClusterIPs: []netip.Addr{addr("172.16.1.10")}, Ports: []service.Port{{Protocol: protocol, Port: 80, NodePort: nodePort}}},
			Endpoints: []service.Endpoints{{{Host: &service.Host{Addr: addr(at)}, Port: 8080}}},
		}
	}
	h := Host{Addrs: []netip.Addr{addr("192.0.2.1")}, Routed: []netip.Prefix{netip.MustParsePrefix("172.16.0.0/16")}}
	elsewhere := h
	elsewhere.Routed = []netip.Prefix{netip.MustParsePrefix("172.17.0.0/16")}
	for _, c := range []struct {
		name     string
		host     Host
		was, now *service.Resolved
		want     Change
	}{
		{"TCP", h, of("TCP", 0, "10.0.1.3"), of("TCP", 0, "10.0.1.4"), Change{}},
		{"new", h, nil, of("TCP", 0, "10.0.1.4"), Change{}},
		{"UDP", h, of("UDP", 0, "10.0.1.3"), of("UDP", 0, "10.0.1.4"), Change{UDP: true}},
		{"NodePort", h, of("TCP", 30080, "10.0.1.3"), of("TCP", 30080, "10.0.1.4"), Change{Rules: true}},
		{"another NodePort", h, of("TCP", 30080, "10.0.1.3"), of("TCP", 30081, "10.0.1.3"), Change{Rules: true, Frontends: true}},
		{"removed NodePort", h, of("TCP", 30080, "10.0.1.3"), nil, Change{Rules: true, Frontends: true}},
		{"host's endpoint", h, of("TCP", 0, "10.0.1.3"), of("TCP", 0, "192.0.2.1"), Change{Rules: true}},
		{"former host's endpoint", h, of("TCP", 0, "192.0.2.1"), of("TCP", 0, "10.0.1.3"), Change{Rules: true}},
		{"not routed", elsewhere, of("TCP", 0, "10.0.1.3"), of("TCP", 0, "10.0.1.4"), Change{Rules: true}},
	} {
		if got := ChangeOf(c.host, c.was, c.now); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
