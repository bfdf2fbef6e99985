package main

import (
	"context"
	"fmt"
	"time"

	"ovn-k8s/test/world"
)

// absence is how long a killed Open vSwitch is away.
const absence = time.Second

// controllers kills ovn-controller and starts it again, on a gateway and on a node that is none.
func controllers(ctx context.Context, f *field) error {
	if err := f.deploy(ctx, preStop); err != nil {
		return err
	}
	return f.disturb(ctx, f.places(), func(n *world.Node) error {
		if err := n.StopController(ctx); err != nil {
			return err
		}
		return n.StartController(ctx, f.w.Central.SBTCP)
	})
}

// switches kills Open vSwitch and starts it again, on a gateway and on a node that is none.
func switches(ctx context.Context, f *field) error {
	if err := f.deploy(ctx, preStop); err != nil {
		return err
	}
	return f.disturb(ctx, f.places(), func(n *world.Node) error {
		if err := n.StopOVS(ctx); err != nil {
			return err
		}
		time.Sleep(absence)
		return n.StartOVS(ctx)
	})
}

// disturb does something to each kind of node, with a pause afterwards, and says what each round cost.
func (f *field) disturb(ctx context.Context, places []place, do func(*world.Node) error) error {
	for _, n := range []*world.Node{f.w.Nodes[1], f.w.Nodes[2]} {
		kind := map[bool]string{false: "node", true: "gateway"}[n == f.w.Nodes[2]]
		a := f.ask(ctx, places, f.explain)
		watching, end := context.WithCancel(ctx)
		go f.inspect(watching, a)
		var err error
		for round := 0; round < f.rounds && err == nil; round++ {
			began := time.Now()
			if err = do(n); err == nil {
				err = f.pause(ctx)
			}
			f.say("%s: round %d of %d: %s", kind, round+1, f.rounds, a.gap(began))
		}
		end()
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

// pause waits until all nodes have their flows, and longer than the longest wait of a SYN to be sent again.
func (f *field) pause(ctx context.Context) error {
	if _, err := f.w.Central.NBCtl("--wait=hv", "sync"); err != nil {
		return err
	}
	wait(ctx, 8*time.Second)
	return ctx.Err()
}

// wait waits for some time, or the end of ctx.
func wait(ctx context.Context, long time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(long):
	}
}
