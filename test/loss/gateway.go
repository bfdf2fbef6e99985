package main

import (
	"context"
	"fmt"
	"time"

	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

const (
	outsidePort = 8081
	// cutTime is the time without a gateway, and the time with it again.
	cutTime = 15 * time.Second
)

// gateways cuts off one of three gateways, while pods on the others' nodes connect to a host outside.
func gateways(ctx context.Context, f *field) error {
	for _, n := range f.w.Nodes[:2] {
		if _, err := f.w.AddGateway(ctx, n, world.Dedicated); err != nil {
			return err
		}
	}
	server, err := probe.Serve(f.w.Outside.Netns(), "outside", outsidePort)
	if err != nil {
		return err
	}
	defer server.Close()
	var places []place
	for _, n := range f.w.Nodes[:2] {
		for _, a := range f.w.Outside.Addresses {
			places = append(places, place{"pod on " + n.Name + " to outside", f.clients[n.Name].Netns, probe.Address(a.Addr(), outsidePort)})
		}
	}
	if err := f.settle(ctx, places); err != nil {
		return err
	}
	return f.cut(ctx, places, f.w.Nodes[2])
}

// cut unplugs a node's cables and plugs them in again, f.rounds times, and prints how long connections failed after
// either.
func (f *field) cut(ctx context.Context, places []place, n *world.Node) error {
	a := f.ask(ctx, places, func(*try) {})
	for round := range f.rounds {
		for _, step := range []struct {
			name string
			do   func() error
		}{{"cut", n.Cut}, {"back", n.Mend}} {
			began := time.Now()
			if err := step.do(); err != nil {
				a.stop()
				return err
			}
			wait(ctx, cutTime)
			f.say("round %d of %d: %s: %s", round+1, f.rounds, step.name, a.gap(began))
		}
	}
	f.result(a, fmt.Sprintf("%d cuts", f.rounds))
	return ctx.Err()
}
