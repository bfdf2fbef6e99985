package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// P9: the loss of the first packet of a connection costs a second, not the connection. At a gateway's NodePort it would
// cost the connection on the userspace datapath, without the timeouts of the gateway helper (ovncontroller.Settings.ExpireSYNs).
// They also apply after a restart of Open vSwitch.
func TestALostSYNCostsNoConnection(t *testing.T) {
	list := pods(t, map[string]string{"web-a": "minion1", "client": "minion2"})
	surround(t)
	gateway := cluster.Node("minion2")
	seen := addGateway(t, gateway, world.Dedicated)
	s := service(t, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	web, client, outside := list["web-a"], list["client"], cluster.Outside.Netns()
	port := int(s.Spec.Ports[0].NodePort)
	if s.Spec.Ports[0].Protocol != corev1.ProtocolTCP {
		t.Fatalf("the first port is %v", s.Spec.Ports[0])
	}
	loseSYN(t, web, "ClusterIP", probe.Probe{Netns: client.Netns, Address: probe.Address(netip.MustParseAddr(s.Spec.ClusterIPs[0]), 80)})
	loseSYN(t, web, "ClusterIP, IPv6", probe.Probe{Netns: client.Netns, Address: probe.Address(netip.MustParseAddr(s.Spec.ClusterIPs[1]), 80)})
	loseSYN(t, web, "NodePort of a node", probe.Probe{Netns: outside, Address: probe.Address(cluster.Node("minion1").IPv4(), port)})
	for _, state := range []string{"", ", after a restart"} {
		if state != "" {
			if err := gateway.RestartOVS(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		settledTimeouts(t, gateway)
		loseSYN(t, web, "NodePort of a gateway"+state, probe.Probe{Netns: outside, Address: probe.Address(seen[0], port)})
		loseSYN(t, web, "NodePort of a gateway, IPv6"+state, probe.Probe{Netns: outside, Address: probe.Address(seen[1], port)})
	}
}

// loseSYN makes a TCP connection to a pod whose first SYN is lost.
func loseSYN(t *testing.T, to world.Endpoint, name string, p probe.Probe) {
	t.Helper()
	p.Network = "tcp"
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	if _, err := p.Until(ctx); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	cancel()
	stop := lose(t, to, "input", "tcp flags & (syn | ack) == syn quota 100 bytes drop") // a SYN has 60 or 80
	ctx, cancel = context.WithTimeout(t.Context(), limit.Of(10*time.Second))
	_, err := p.Once(ctx)
	cancel()
	stop()
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// settledTimeouts waits until ovs-vswitchd of a gateway applies the timeouts of its zone.
func settledTimeouts(t *testing.T, gateway *world.Node) {
	t.Helper()
	if host.Datapath() == host.Kernel {
		return // it has none
	}
	var trace string
	eventually(t, "a timeout for the connections of the gateway's zone", func() bool {
		trace = sh(t, gateway, `zone=$(ovs-vsctl list-zone-tp netdev | sed -n 's/^Zone:\([0-9]*\),.*/\1/p')
			ovs-appctl ofproto/trace-packet-out br-int in_port=LOCAL,tcp "ct(commit,zone=$zone)" 2>&1 || :`)
		return strings.Contains(trace, "timeout=")
	}, &trace)
}

// P9: the timeout of unanswered SYNs on gateways does not cost a pod's connection that is answered later: here its SYN
// is sent once, and the third SYN-ACK arrives, after three seconds.
func TestALateAnswerCostsNoConnection(t *testing.T) {
	client := pods(t, map[string]string{"client": "minion1"})["client"]
	around := surround(t)
	addGateway(t, cluster.Node("minion2"), world.Dedicated)
	for i, answers := range []int{130, 170} { // IPv4, IPv6: bytes of more than two SYN-ACKs, of 60 or 80 each
		p := probe.Probe{Netns: client.Netns, Network: "tcp", Address: probe.Address(around.Outside.Addresses[i], sessionPort)}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if _, err := p.Until(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		stop1 := lose(t, client, "output", "tcp flags & (syn | ack) == syn quota over 100 bytes drop")
		stop2 := lose(t, around.Neighbour, "forward", fmt.Sprintf("tcp flags & (syn | ack) == syn | ack quota %d bytes drop", answers))
		began := time.Now()
		ctx, cancel = context.WithTimeout(t.Context(), limit.Of(20*time.Second))
		_, err := p.Once(ctx)
		cancel()
		stop1()
		stop2()
		if took := time.Since(began); err != nil || took < time.Second {
			t.Errorf("%v after %v: %v", p, took, err)
		}
	}
}

// lose has nftables apply a rule in a network namespace, until stop is called.
func lose(t *testing.T, e world.Endpoint, hook, rule string) (stop func()) {
	t.Helper()
	inPod(t, e, fmt.Sprintf(`nft -f - <<NFT
table inet lose {
	chain packets {
		type filter hook %s priority 0
		%s
	}
}
NFT`, hook, rule))
	return func() { inPod(t, e, "nft delete table inet lose") }
}
