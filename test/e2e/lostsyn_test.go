package e2e

import (
	"context"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// P9: the loss of the first packet of a connection costs a second, not the connection. At a gateway's NodePort it would
// cost the connection on the userspace datapath, without the timeouts of the gateway helper (vswitch.ExpireSYNs).
func TestALostSYNCostsNoConnection(t *testing.T) {
	list := pods(t, map[string]string{"web-a": "minion1", "client": "minion2"})
	surround(t)
	seen := addGateway(t, cluster.Node("minion2"), world.Dedicated)
	s := service(t, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	web, client, outside := list["web-a"], list["client"], cluster.Outside.Netns()
	port := int(s.Spec.Ports[0].NodePort)
	if s.Spec.Ports[0].Protocol != corev1.ProtocolTCP {
		t.Fatalf("the first port is %v", s.Spec.Ports[0])
	}
	for _, c := range []struct {
		name  string
		probe probe.Probe
	}{
		{"ClusterIP", probe.Probe{Netns: client.Netns, Address: probe.Address(netip.MustParseAddr(s.Spec.ClusterIPs[0]), 80)}},
		{"ClusterIP, IPv6", probe.Probe{Netns: client.Netns, Address: probe.Address(netip.MustParseAddr(s.Spec.ClusterIPs[1]), 80)}},
		{"NodePort of a node", probe.Probe{Netns: outside, Address: probe.Address(cluster.Node("minion1").IPv4(), port)}},
		{"NodePort of a gateway", probe.Probe{Netns: outside, Address: probe.Address(seen[0], port)}},
		{"NodePort of a gateway, IPv6", probe.Probe{Netns: outside, Address: probe.Address(seen[1], port)}},
	} {
		c.probe.Network = "tcp"
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if _, err := c.probe.Until(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		// A SYN has 60 or 80 bytes: the first one is dropped.
		inPod(t, web, `nft -f - <<NFT
table inet lose {
	chain in {
		type filter hook input priority 0
		tcp flags & (syn | ack) == syn quota 100 bytes drop
	}
}
NFT`)
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		_, err := c.probe.Once(ctx)
		cancel()
		inPod(t, web, "nft delete table inet lose")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
