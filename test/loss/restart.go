package main

import (
	"context"
	"fmt"
	"time"

	"ovn-k8s/test/world"
)

// settleTime is the time between a restart of Open vSwitch and the next one.
const settleTime = 20 * time.Second

// controllers kills ovn-controller and starts it again, on a gateway and on another node.
func controllers(ctx context.Context, f *field) error {
	if err := f.deploy(ctx, preStop); err != nil {
		return err
	}
	return f.disturb(ctx, f.places(), func(n *world.Node) error {
		if err := n.StopController(ctx); err != nil {
			return err
		}
		if err := n.StartController(ctx, f.w.Central.SBTCP); err != nil {
			return err
		}
		return f.flowed()
	})
}

// switches kills Open vSwitch and starts it again, on a gateway and on another node.
func switches(ctx context.Context, f *field) error {
	if err := f.deploy(ctx, preStop); err != nil {
		return err
	}
	return f.disturb(ctx, f.places(), func(n *world.Node) error {
		if err := n.StopOVS(ctx); err != nil {
			return err
		}
		wait(ctx, f.absence)
		if err := n.StartOVS(ctx); err != nil {
			return err
		}
		if err := f.flowed(); err != nil {
			return err
		}
		wait(ctx, settleTime)
		return ctx.Err()
	})
}

// disturb calls do for each kind of node, and prints the counts of each round.
func (f *field) disturb(ctx context.Context, places []place, do func(*world.Node) error) error {
	for _, n := range []*world.Node{f.w.Nodes[1], f.w.Nodes[2]} {
		kind := map[bool]string{false: "node", true: "gateway"}[n == f.w.Nodes[2]]
		a := f.ask(ctx, places, f.explain)
		var err error
		for round := 0; round < f.rounds && err == nil; round++ {
			began := time.Now()
			err = do(n)
			f.say("%s: round %d of %d: %s", kind, round+1, f.rounds, a.gap(began))
		}
		if err != nil {
			a.stop()
			return err
		}
		f.result(a, fmt.Sprintf("%d restarts on a %s", f.rounds, kind))
		if err := f.settle(ctx, places); err != nil {
			return err
		}
	}
	return nil
}

// flowed waits until all nodes have their flows.
func (f *field) flowed() error {
	_, err := f.w.Central.NBCtl("--wait=hv", "sync")
	return err
}

// wait waits for some time, or the end of ctx.
func wait(ctx context.Context, long time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(long):
	}
}
