package ovnkube

import (
	"context"
	"testing"
	"time"

	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// AC-69: with an MTU of 1300, packets of 1300 bytes with DF pass between pods of two nodes, and those of 1301 bytes do not.
func TestCheck69_MTU(t *testing.T) {
	const mtu = 1300
	c := newCluster(t, world.Options{Minions: 1})
	for _, n := range c.Nodes {
		n.SetArguments("-mtu=1300")
	}
	c.run()
	for _, n := range c.Nodes {
		c.must(c.create(c.ctx, "on-"+n.Name, n.Name))
	}
	from, to := c.await("on-master"), c.await("on-minion1")
	for _, a := range to.Addresses {
		p := probe.Probe{Netns: from.Netns, Network: "icmp", Address: probe.Address(a, 0)}
		for size, fits := range map[int]bool{mtu: true, mtu + 1: false} {
			ctx, cancel := context.WithTimeout(c.ctx, limit.Of(20*time.Second))
			delivered, refused, err := p.Sized(ctx, size, false)
			cancel()
			if err != nil || delivered != fits || refused == fits {
				t.Errorf("%v, %d bytes: delivered %v, refused %v, %v", p, size, delivered, refused, err)
			}
		}
	}
}
