package e2e

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/host"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// newConnections continuously opens TCP connections with several probes in parallel, and counts those without an
// answer.
type newConnections struct {
	tried, failed atomic.Int64
	end           context.CancelFunc
	wg            sync.WaitGroup
}

// connecting starts it, with a pause between the connections of a probe.
func connecting(t *testing.T, pause time.Duration, probes ...probe.Probe) *newConnections {
	c := &newConnections{}
	ctx, end := context.WithCancel(t.Context())
	c.end = end
	for _, p := range probes {
		c.wg.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for ctx.Err() == nil {
				c.wg.Go(func() {
					try, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit.Of(8*time.Second))
					defer cancel()
					c.tried.Add(1)
					if _, err := p.Once(try); err != nil {
						c.failed.Add(1)
						t.Log(err)
					}
				})
				<-tick.C
			}
		})
	}
	return c
}

// stop ends it and returns the number of connections and of failed ones.
func (c *newConnections) stop() (tried, failed int64) {
	c.end()
	c.wg.Wait()
	return c.tried.Load(), c.failed.Load()
}

// P8: a restarting ovn-controller keeps the old flows until it has new ones, so no connection is lost: neither on the
// node of a client or an endpoint, nor on a gateway.
func TestControllerRestarts(t *testing.T) {
	list := pods(t, map[string]string{"web-a": "minion1", "web-b": "minion2", "client": "minion1"})
	surround(t)
	gateway := cluster.Node("minion2")
	seen := addGateway(t, gateway, world.Dedicated)
	s := service(t, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	client := list["client"]
	var probes []probe.Probe
	for _, a := range s.Spec.ClusterIPs {
		probes = append(probes, probe.Probe{Netns: client.Netns, Network: "tcp", Address: probe.Address(netip.MustParseAddr(a), 80)})
	}
	for _, d := range nodePortsAt(s, seen) {
		if d.network == "tcp" {
			probes = append(probes, probe.Probe{Netns: cluster.Outside.Netns(), Network: "tcp", Address: d.at})
		}
	}
	for _, p := range probes {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := p.Until(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	settled := func() {
		if _, err := cluster.Central.NBCtl("--wait=hv", "sync"); err != nil {
			t.Fatal(err)
		}
	}
	settled()
	c := connecting(t, 50*time.Millisecond, probes...)
	for _, n := range []*world.Node{gateway, cluster.Node("minion1")} {
		if err := n.StopController(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := n.StartController(t.Context(), cluster.Central.SBTCP); err != nil {
			t.Fatal(err)
		}
		settled() // it has computed flows again
	}
	tried, failed := c.stop()
	t.Logf("%d connections", tried)
	if failed > 0 {
		t.Errorf("%d of %d connections failed", failed, tried)
	}
}

// P10: a restarted ovs-vswitchd has no flows to keep: ovn-controller writes them without its wait, and has the wait again afterwards.
func TestSwitchRestarts(t *testing.T) {
	list := pods(t, map[string]string{"web-a": "minion1", "client": "minion1"})
	s := service(t, "web", nil)
	node := cluster.Node("minion1")
	log := node.Path("/var/log/openvswitch/ovn-controller.log")
	before, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := node.RestartOVS(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p := probe.Probe{Netns: list["client"].Netns, Network: "tcp", Address: probe.Address(netip.MustParseAddr(s.Spec.ClusterIPs[0]), 80)}
	if _, err := p.Until(ctx); err != nil {
		t.Error(err)
	}
	var ids string
	eventually(t, "ovn-controller waits again when it restarts", func() bool {
		ids = sh(t, node, "ovs-vsctl get Open_vSwitch . external_ids")
		return strings.Contains(ids, `ovn-ofctrl-wait-before-clear="8000"`) && !strings.Contains(ids, "ovn-k8s-wait-before-clear")
	}, &ids)
	after, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	const wait = "ofctrl-wait-before-clear is now " // from OVN 25.09 on it waits for its rows instead, without a setting
	if strings.Contains(string(before), wait) && !strings.Contains(string(after[len(before):]), wait+"0 ms") {
		t.Errorf("ovn-controller has waited with no flows:\n%s", after[len(before):])
	}
	// The same again: ovn-controller heard of the wait since, so its pause before it connects is 1 s once more. Only ovn-controller
	// 25.03 has a second connection, for the schema alone (vswitch_cs in lib/features.c): no row changes there, so its pause grows.
	if err := node.RestartOVS(t.Context()); err != nil {
		t.Fatal(err)
	}
	var since string
	eventually(t, "ovn-controller is connected again", func() bool {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		_, since, _ = strings.Cut(string(text[len(after):]), "db.sock: connection closed by peer\n")
		return strings.Contains(since, "db.sock: connected")
	}, &since)
	if first, _, _ := strings.Cut(since, "db.sock: connecting"); longPauses(first) > strings.Count(first, "db.sock: connection closed") {
		t.Errorf("ovn-controller's pause has grown:\n%s", since)
	}
	eventually(t, "ovn-controller has its wait again", func() bool {
		ids = sh(t, node, "ovs-vsctl get Open_vSwitch . external_ids")
		return !strings.Contains(ids, "ovn-k8s-wait-before-clear")
	}, &ids)
}

// A restarted ovn-controller keeps the flows while it computes new ones, also a moment after a restart of ovs-vswitchd, as in an
// upgrade. One that has deleted its tunnels at its end, as by the unit of its package, does not: flows do not know the new
// tunnels.
func TestFlowsThatARestartedControllerKeeps(t *testing.T) {
	list := pods(t, map[string]string{"near": "minion1", "far": "minion2", "client": "minion1"})
	node := cluster.Node("minion1")
	answers := func(name string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if _, err := (probe.Probe{Netns: list["client"].Netns, Network: "tcp", Address: probe.Address(list[name].Addresses[0], kubelet.DefaultPort)}).Until(ctx); err != nil {
			t.Error(err)
		}
	}
	var ids string
	has := func(what, wait string) {
		t.Helper()
		eventually(t, what, func() bool {
			ids = sh(t, node, "ovs-vsctl get Open_vSwitch . external_ids")
			return strings.Contains(ids, `ovn-ofctrl-wait-before-clear="`+wait+`"`)
		}, &ids)
	}
	resume := func() {
		t.Helper()
		if err := node.ResumeController(t.Context()); err != nil {
			t.Fatal(err)
		}
		answers("near")
		answers("far")
	}

	if err := node.RestartOVS(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers("near")
	has("there are flows to keep", "8000")
	if err := node.StopController(t.Context()); err != nil {
		t.Fatal(err)
	}
	log := node.Path("/var/log/openvswitch/ovn-controller.log")
	before, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	resume()
	const line = "ofctrl-wait-before-clear is now " // from OVN 25.09 on it waits for its rows instead, without a setting
	eventually(t, "ovn-controller waits", func() bool {
		after, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return !strings.Contains(string(before), line) || strings.Contains(string(after[len(before):]), line+"8000 ms")
	})

	if err := node.ExitController(t.Context()); err != nil {
		t.Fatal(err)
	}
	has("flows are of no use", "0")
	resume()
	has("the tunnels are back", "8000")
	eventually(t, "nothing is left", func() bool {
		ids = sh(t, node, "ovs-vsctl get Open_vSwitch . external_ids")
		return !strings.Contains(ids, "ovn-k8s-wait-before-clear")
	}, &ids)
}

// longPauses counts connections of a log of ovn-controller that wait longer than 1 s.
func longPauses(log string) int {
	return strings.Count(log, "db.sock: waiting") + strings.Count(log, "db.sock: continuing to reconnect")
}

// A starting ovs-vswitchd keeps the kernel's flows until br-int has its own, so established connections go on. The
// userspace datapath has none to keep. Afterwards nothing of it is left in the database.
func TestVswitchdRestarts(t *testing.T) {
	list := pods(t, map[string]string{"web-a": "minion1", "client": "minion1"})
	s := service(t, "web", nil)
	node, to := cluster.Node("minion1"), probe.Address(netip.MustParseAddr(s.Spec.ClusterIPs[0]), 80)
	p := probe.Probe{Netns: list["client"].Netns, Network: "tcp", Address: to}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := p.Until(ctx); err != nil {
		t.Fatal(err)
	}
	session, err := p.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	log := node.Path(logOf(helper()))
	before, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := node.RestartVswitchd(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Until(ctx); err != nil {
		t.Error(err)
	}
	var config string
	eventually(t, "ovs-vswitchd forwards by its own flows", func() bool {
		config = sh(t, node, "ovs-vsctl get Open_vSwitch . external_ids other_config")
		return !strings.Contains(config, "flow-restore-wait")
	}, &config)
	after, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	kernel, lines := host.Datapath() == host.Kernel, string(after[len(before):])
	if kept := strings.Contains(lines, "it keeps the kernel's flows"); kept != kernel {
		t.Errorf("kept %v on the datapath %s:\n%s", kept, host.Datapath(), lines)
	}
	if _, late, ended := strings.Cut(lines, "keeps the kernel's flows no longer"); ended && strings.Contains(late, "br-int has no flows") {
		t.Errorf("not kept until br-int had flows:\n%s", lines)
	}
	if !kernel {
		return
	}
	typed := session.Typed()
	eventually(t, "the session goes on", func() bool { return session.Typed().Lines > typed.Lines })
	if err := session.Undisturbed(typed); err != nil {
		t.Error(err)
	}
	t.Logf("longest silence %v", session.Typed().Silence)
}
