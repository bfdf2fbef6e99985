package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// P7: OVN 23.03 forgets neighbours that are in use, too, when they are older than mac_binding_age_threshold. The router
// asks again and keeps the packets meanwhile: no connection breaks, and new ones succeed at the first try.
func TestForgottenNeighbours(t *testing.T) {
	surround(t)
	client := pods(t, map[string]string{"client": "minion1"})["client"]
	awaitServices(t, nil) // the helper has its first rules, which addGateway compares
	addGateway(t, cluster.Node("minion2"), world.Dedicated)
	if out, err := cluster.Central.NBCtl("get", "Logical_Router", "GR_minion2", "options:mac_binding_age_threshold"); err != nil || strings.TrimSpace(out) != `"86400"` {
		t.Errorf("mac_binding_age_threshold is %s, %v", out, err)
	}
	var sessions []*probe.Session
	for _, a := range cluster.Outside.Addresses {
		p := probe.Probe{Netns: client.Netns, Network: "tcp", Address: probe.Address(a.Addr(), kubelet.DefaultPort)}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if _, err := p.Until(ctx); err != nil {
			t.Fatal(err)
		}
		s, err := p.Open(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	c := connecting(t, 50*time.Millisecond, outsideProbes(client)...)
	for range 5 {
		forgetNeighbours(t)
	}
	tried, failed := c.stop()
	for _, s := range sessions {
		typed := s.Close()
		t.Logf("%d lines, the longest silence was %v", typed.Lines, typed.Silence)
		if typed.Resets > 0 {
			t.Errorf("a connection broke: %v", typed.Err)
		}
	}
	if t.Logf("%d new connections", tried); failed > 0 {
		t.Errorf("%d of %d new connections failed", failed, tried)
	}
}

// H8: a router outside that is replaced by another one, which announces nothing, gets the packets of pods: OVN would go on
// with the MAC of the former one for a day. So it would after a boot, if that happened while the host was down.
func TestAReplacedRouterIsFound(t *testing.T) {
	surround(t)
	client := pods(t, map[string]string{"client": "minion1"})["client"]
	awaitServices(t, nil) // the helper has its first rules, which addGateway compares
	addGateway(t, cluster.Node("minion2"), world.Dedicated)
	reached := func() {
		t.Helper()
		for _, p := range outsideProbes(client) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if _, err := p.Until(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	reached()
	if err := cluster.Fabric.ReplaceRouter(); err != nil {
		t.Fatal(err)
	}
	reached()
}

// outsideProbes ask the host outside, by both families.
func outsideProbes(from world.Endpoint) (out []probe.Probe) {
	for _, a := range cluster.Outside.Addresses {
		out = append(out, probe.Probe{Netns: from.Netns, Network: "tcp", Address: probe.Address(a.Addr(), kubelet.DefaultPort)})
	}
	return out
}

// forgetNeighbours removes all neighbours that gateways have learned, as ovn-northd does, and waits until they are learned
// again.
func forgetNeighbours(t *testing.T) {
	t.Helper()
	known := func() []string {
		text, err := cluster.Central.SBCtl("--bare", "--columns=_uuid", "find", "MAC_Binding", "logical_port=rtoe-GR_minion2")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(text)
	}
	before := known()
	if _, err := cluster.Central.SBCtl(append([]string{"destroy", "MAC_Binding"}, before...)...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the gateway has learned its neighbours again", func() bool { return len(known()) >= 2 })
}
