package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// A daemon is killed and started again.
type daemon struct {
	name        string
	stop, start func(context.Context) error
}

func (d daemon) restart(ctx context.Context) error { return errors.Join(d.stop(ctx), d.start(ctx)) }

// daemons are those of the cluster: on a node, on a gateway, and in the centre.
func (f *field) daemons() (all []daemon) {
	for name, n := range map[string]*world.Node{"a node": f.w.Nodes[1], "a gateway": f.w.Nodes[2]} {
		all = append(all,
			daemon{"ovs-vswitchd of " + name, n.StopVswitchd, n.StartVswitchd},
			daemon{"ovn-controller of " + name, n.StopController, n.ResumeController},
			daemon{"the helper of " + name, func(ctx context.Context) error { return n.Kill(ctx, world.HelperPidfile) }, func(ctx context.Context) error { return f.w.StartHelper(ctx, n) }},
		)
	}
	slices.SortFunc(all, func(a, b daemon) int { return strings.Compare(a.name, b.name) })
	c := f.w.Central
	plain := func(do func()) func(context.Context) error {
		return func(context.Context) error { do(); return nil }
	}
	failing := func(do func() error) func(context.Context) error {
		return func(context.Context) error { return do() }
	}
	return append(all,
		daemon{"ovn-northd", plain(c.StopNorthd), failing(c.StartNorthd)},
		daemon{"the Northbound database", plain(c.StopNB), failing(c.StartNB)},
		daemon{"the Southbound database", plain(c.StopSB), failing(c.StartSB)},
		daemon{"the watcher", f.w.KillWatcher, f.w.StartWatcher},
	)
}

// together kills all daemons and then starts all.
func together(all []daemon) daemon {
	each := func(do func(daemon) func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			var g errgroup.Group
			for _, d := range all {
				g.Go(func() error { return do(d)(ctx) })
			}
			return g.Wait()
		}
	}
	return daemon{"all together", each(func(d daemon) func(context.Context) error { return d.stop }), each(func(d daemon) func(context.Context) error { return d.start })}
}

// restarts kills each daemon and starts it again at once, and then all together, beside established connections, and
// prints how many of these were lost, and for how long new ones failed.
func restarts(ctx context.Context, f *field) error {
	if err := f.deploy(ctx, preStop); err != nil {
		return err
	}
	places := append(f.places(), f.direct()...)
	if err := f.settle(ctx, places); err != nil {
		return err
	}
	all := f.daemons()
	for _, d := range append(all, together(all)) {
		if !f.only.MatchString(d.name) {
			continue
		}
		if err := f.restart(ctx, d, places); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	return nil
}

// direct are connections from pods to pods of other nodes, without a Service.
func (f *field) direct() (out []place) {
	for i, n := range f.w.Nodes {
		other := f.clients[f.w.Nodes[(i+1)%len(f.w.Nodes)].Name]
		for _, a := range other.Addresses {
			out = append(out, place{"pod on " + n.Name + " to a pod", f.clients[n.Name].Netns, probe.Address(a, kubelet.DefaultPort)})
		}
	}
	return out
}

// restart restarts a daemon f.rounds times.
func (f *field) restart(ctx context.Context, d daemon, places []place) error {
	h, err := f.hold(ctx, places)
	if err != nil {
		return err
	}
	a := f.ask(ctx, places, func(t *try) {
		if t.err != nil {
			f.say("%s", t)
		}
	})
	for round := 0; round < f.rounds && err == nil; round++ {
		began := time.Now()
		if err = d.restart(ctx); err == nil {
			err = f.flowed()
		}
		back := time.Since(began)
		wait(ctx, settleTime)
		f.say("%s: round %d of %d: back after %.1f s; %s", d.name, round+1, f.rounds, back.Seconds(), a.gap(began))
	}
	tried, failed, again, _ := a.stop()
	lost, reset, silence := h.stop()
	gap, where := a.longest()
	n := 0
	for _, c := range lost {
		n += c
	}
	fmt.Fprintf(f.out, "%s: %s, %d times: %d established: %d lost (%d reset or closed), others silent for at most %.1f s; %d new: %d failed, %d sent packets again, at most for %.2f s (%s)\n",
		f.name, d.name, f.rounds, len(h.all), n, reset, silence.Seconds(), tried, failed, again, gap.Seconds(), cmp.Or(where, "nowhere"))
	for _, name := range slices.Sorted(maps.Keys(lost)) {
		fmt.Fprintf(f.out, "    lost: %s: %d\n", name, lost[name])
	}
	if err == nil {
		err = f.settle(ctx, places)
	}
	return errors.Join(err, ctx.Err())
}
