package hosts

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/bench/field"
	"ovn-k8s/test/bench/run"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

const (
	// connectTime is the time of opening connections to one target.
	connectTime = 2 * time.Second
	// connectors open them, one after the other each.
	connectors = 8
	// turns is the number of turns of each target in a round.
	turns = 3
)

// endpointsEach is the number of endpoints of a Service.
const endpointsEach = 10

// A target is the destination of a pod of its own: if one pod connected to a backend by several frontends, Open
// vSwitch would have no free ports to distinguish its connections.
type target struct {
	name    string
	address netip.AddrPort
	client  world.Endpoint
	opened  atomic.Int64
}

// MeasureConnections opens TCP connections from pods to a pod of another node, by turns directly and by the
// frontends of Services. Each asks one line. The hosts have the userspace datapath of Open vSwitch.
func MeasureConnections(ctx context.Context, b *run.Bench) error {
	w, end, err := b.World(ctx, "connections", world.Options{})
	if err != nil {
		return err
	}
	defer end()
	if err := w.StartKubelets(ctx); err != nil {
		return err
	}
	targets, err := connectionTargets(ctx, w)
	if err != nil {
		return err
	}
	rates := make([][]float64, len(targets))
	for round := range b.Rounds {
		for _, t := range targets {
			t.opened.Store(0)
		}
		for range turns {
			for _, t := range targets {
				if err := t.connect(ctx); err != nil {
					return err
				}
			}
		}
		var line []string
		for i, t := range targets {
			rate := float64(t.opened.Load()) / (turns * connectTime.Seconds())
			rates[i] = append(rates[i], rate)
			line = append(line, fmt.Sprintf("%s %.0f/s", t.name, rate))
		}
		b.Say("connections: round %d of %d: %s", round+1, b.Rounds, strings.Join(line, ", "))
	}
	for i, t := range targets[1:] {
		b.Report.Beside("connections by "+t.name, "/s", 0, rates[i+1], rates[0]).
			Explain("yardstick: the same pod directly; %d clients, a line each; more is better", connectors)
	}
	return nil
}

// connectionTargets makes clients, and backends on the other node. The first backend is also asked directly.
func connectionTargets(ctx context.Context, w *world.World) ([]*target, error) {
	var direct world.Endpoint
	for i := range endpointsEach {
		labels := map[string]string{world.AppLabel: "ten"}
		if i == 0 {
			labels["one"] = "yes"
		}
		e, err := createRunning(ctx, w, fmt.Sprint("web-", i), w.Master(), labels)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			direct = e
		}
	}
	one, err := w.CreateService(ctx, "one", kubelet.DefaultPort, 1, func(s *corev1.Service) { s.Spec.Selector = map[string]string{"one": "yes"} })
	if err != nil {
		return nil, err
	}
	ten, err := w.CreateService(ctx, "ten", kubelet.DefaultPort, 2, nil)
	if err != nil {
		return nil, err
	}
	targets := []*target{
		{name: "the pod itself", address: probe.Address(direct.Addresses[0], kubelet.DefaultPort)},
		{name: "a ClusterIP with 1 endpoint", address: probe.Address(one.ClusterIPs[0], world.ServicePort)},
		{name: fmt.Sprintf("a ClusterIP with %d endpoints", endpointsEach), address: probe.Address(ten.ClusterIPs[0], world.ServicePort)},
		{name: "a NodePort of the own node", address: probe.Address(w.Nodes[1].IPv4(), one.NodePorts["tcp"])},
	}
	for i, t := range targets {
		if t.client, err = createRunning(ctx, w, fmt.Sprint("client-", i), w.Nodes[1], nil); err != nil {
			return nil, err
		}
		if err := t.await(ctx); err != nil {
			return nil, err
		}
	}
	_, err = w.Central.NBCtl("--wait=hv", "sync")
	return targets, err
}

// createRunning creates a pod and waits until it runs.
func createRunning(ctx context.Context, w *world.World, name string, on *world.Node, labels map[string]string) (world.Endpoint, error) {
	_, err := w.Kube.CreatePod(ctx, "default", name, on.Name, func(p *corev1.Pod) { p.Labels = labels })
	if err != nil {
		return world.Endpoint{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, field.Patience)
	defer cancel()
	return w.AwaitPod(ctx, "default", name)
}

// await waits until the target answers its client.
func (t *target) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, field.Patience)
	defer cancel()
	if _, err := (probe.Probe{Netns: t.client.Netns, Network: "tcp", Address: t.address}).Until(ctx); err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	return nil
}

// connect opens connections for connectTime, and counts the answered ones. Connections cut off by the end did not
// fail.
func (t *target) connect(ctx context.Context) error {
	end := time.Now().Add(connectTime)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for range connectors {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := probe.Probe{Netns: t.client.Netns, Network: "tcp", Address: t.address}.Once(ctx)
				switch {
				case err == nil:
					t.opened.Add(1)
				case ctx.Err() == nil && time.Now().Before(end):
					failed.Store(&err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return fmt.Errorf("connecting to %s: %w", t.name, *err)
	}
	return nil
}
