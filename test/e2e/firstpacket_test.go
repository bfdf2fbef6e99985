package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// P1: UDP from outside to a pod's own address survives the moment in which OVN has the gateway and the helper has not
// seen it yet. If the bridge gave the first datagram to the host, that would route it to the pod, and the gateway router
// would take the answer for a connection of the pod's own: with its own address from then on, however often the client
// asks again.
func TestDatagramsBeforeTheHelperKnowsTheGateway(t *testing.T) {
	ofPrograms(t, "lib/ovnkube/node") // one process makes the gateway and its flows
	list := pods(t, map[string]string{"web-a": "minion1", "web-b": "minion2"})
	n := cluster.Node("minion1")
	outside := surround(t).Outside
	settledHost(t, n)
	t.Cleanup(func() {
		if err := cluster.RemoveGateway(context.Background(), n); err != nil {
			t.Error(err)
		}
	})
	if err := cluster.StartHelper(t.Context(), n, "--physical-bridge=breth0", "--physical-interface=eth0"); err != nil {
		t.Fatal(err)
	}
	settledHost(t, n)
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { check(n.Thaw(context.Background(), world.HelperPidfile)) })
	check(n.Freeze(t.Context(), world.HelperPidfile))
	seen, err := cluster.GatewayInit(t.Context(), n, world.Shared)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range list {
		for i, a := range p.Addresses {
			withdraw, err := cluster.Fabric.Route(netip.PrefixFrom(a, a.BitLen()), seen[i])
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(withdraw)
			delivered := make(chan error, 1)
			go func() { delivered <- asks(t.Context(), outside.Netns, a) }()
			answered := false
			var connections string
			eventually(t, fmt.Sprintf("%s at %v has been asked", name, a), func() bool {
				select {
				case err := <-delivered:
					delivered <- err
					answered = true
				default:
				}
				connections = sh(t, n, "ovs-appctl --target=ovs-vswitchd dpctl/dump-conntrack")
				return answered || strings.Contains(connections, fmt.Sprintf("udp,orig=(src=%v,", a))
			}, &connections)
			check(n.Thaw(t.Context(), world.HelperPidfile))
			if err := <-delivered; err != nil {
				t.Errorf("%s at %v: %v", name, a, err)
			}
			check(n.Freeze(t.Context(), world.HelperPidfile))
		}
	}
}

// asks sends datagrams from one port until there is an answer.
func asks(ctx context.Context, netns string, to netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, patience/4)
	defer cancel()
	p := probe.Probe{Netns: netns, Network: "udp", Address: probe.Address(to, kubelet.DefaultPort)}
	began := time.Now()
	delivered, _, err := p.Sized(ctx, podMTU, false)
	if err == nil && !delivered {
		err = fmt.Errorf("no answer within %v", time.Since(began))
	}
	return err
}
