package main

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/probe"
)

// Host and router have one MAC and one address, and each gets its own replies.
func TestCheck74_DataPath(t *testing.T) {
	w := newWorld(t)
	w.service("web", func(s *corev1.Service) {
		dual(s)
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 80, NodePort: 30082})
	})
	w.start(shared...)
	router := w.router()
	w.eventually("flows", w.right)
	for _, s := range []struct {
		netns, name string
		port        int
	}{{w.Netns(), "host", 2222}, {router, "router", 30082}, {w.fabric.Netns(), "outside", 7000}} {
		server, err := probe.Serve(s.netns, s.name, s.port)
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
	}
	nodes := []netip.Addr{w.IPv4(), w.IPv6()}
	for f, node := range nodes {
		for _, network := range []string{"tcp", "udp"} {
			w.answers("outside to NodePort "+network, w.fabric.Netns(), network, netip.AddrPortFrom(node, 30082), "router", outside(f))
			w.answers("outside to host "+network, w.fabric.Netns(), network, netip.AddrPortFrom(node, 2222), "host", outside(f))
			for _, from := range []string{router, w.Netns()} {
				w.answers("to outside "+network, from, network, netip.AddrPortFrom(outside(f), 7000), "outside", node)
			}
		}
		for _, from := range []string{router, w.Netns()} {
			ctx, cancel := context.WithTimeout(w.ctx, patience)
			if _, err := (probe.Probe{Netns: from, Network: "icmp", Address: netip.AddrPortFrom(outside(f), 0)}).Until(ctx); err != nil {
				t.Error(err)
			}
			cancel()
		}
	}
}

// After a reboot the offloads that ovn-k8s-util has switched off are on again. Names that the NIC does not know are no obstacle.
func TestOffloadsAreOffAfterAReboot(t *testing.T) {
	w := newWorld(t)
	gro := func() string { return w.script("ethtool -k eth0 | sed -n 's/^generic-receive-offload: //p'") }
	w.script("ethtool -K eth0 gro on")
	p := w.start(shared...)
	if got := strings.TrimSpace(gro()); got != "on" {
		t.Fatalf("GRO is %s, though nobody has switched it off", got)
	}
	p.Stop()
	w.script("ovs-vsctl set Bridge breth0 external_ids:ovn-k8s-nic-offloads=rx-gro,rx-lro,rx-unknown")
	w.start(shared...)
	if got := strings.TrimSpace(gro()); got != "off" {
		t.Errorf("GRO is %s", got)
	}
}
