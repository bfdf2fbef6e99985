package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"ovn-k8s/test/limit"
	"ovn-k8s/test/world"
)

// pods is the number of pods of each node. Two on one node test connections within
// a node.
var pods = map[string]int{"master": 1, "minion1": 2, "minion2": 2}

// podsTimeout bounds the start of all pods.
const podsTimeout = time.Minute

// show starts a cluster in dir and tests it. If the returned cluster is not nil,
// even with an error, the caller must Close it.
func show(ctx context.Context, dir, bin string, say sayer) (*world.World, error) {
	ctx, cancel := context.WithTimeout(ctx, limit.Of(timeout))
	defer cancel()
	w, err := world.New(ctx, world.Options{Dir: dir, OVNKube: os.Getenv("OVNKUBE") == "1", Log: func(line string) { say("%s", line) }})
	if err != nil {
		return nil, err
	}
	return w, try(ctx, w, bin, say)
}

// try installs the programs on w, runs pods and prints their connectivity.
func try(ctx context.Context, w *world.World, bin string, say sayer) error {
	if err := w.Install(ctx, bin); err != nil {
		return err
	}
	if err := w.StartKubelets(ctx); err != nil {
		return err
	}
	gateways, err := addGateways(ctx, w)
	if err != nil {
		return err
	}
	endpoints, err := runPods(ctx, w)
	if err != nil {
		return err
	}
	say("%d pods run", len(endpoints))
	hosts, err := w.ServeHosts()
	if err != nil {
		return err
	}
	defer hosts.Close()
	inside := append(endpoints, hosts.Management...)
	within, err := tryAll(ctx, w, "inside the cluster", world.Matrix(inside, inside), say)
	if err != nil {
		return err
	}
	out, err := tryAll(ctx, w, "out of pods", outward(endpoints, hosts, slices.Concat(slices.Collect(maps.Values(gateways))...)), say)
	if err != nil {
		return err
	}
	in, err := tryServices(ctx, w, endpoints, gateways, say)
	if err != nil {
		return err
	}
	if err := w.Check(ctx); err != nil {
		return err
	}
	if within+out+in > 0 {
		return errFailed
	}
	return nil
}

// addGateways makes each node a gateway, each in a different mode. It returns the
// pods' source addresses as seen outside, by mode.
func addGateways(ctx context.Context, w *world.World) (map[string][]netip.Addr, error) {
	all := map[string][]netip.Addr{}
	for i, mode := range world.Modes() {
		seen, err := w.AddGateway(ctx, w.Nodes[i], mode)
		if err != nil {
			return nil, err
		}
		all[mode] = seen
	}
	return all, nil
}

// outward returns the Attempts from pods to other hosts. Nodes see the pods' own
// addresses, other hosts see a gateway's.
func outward(pods []world.Endpoint, hosts *world.Hosts, gateways []netip.Addr) []world.Attempt {
	attempts := world.Matrix(pods, hosts.Nodes)
	for _, p := range pods {
		for _, e := range []world.Endpoint{hosts.Neighbour, hosts.Outside} {
			attempts = append(attempts, world.Attempts(p, e, gateways)...)
		}
	}
	return attempts
}

// tryAll makes attempts, shows them as a table, and counts the failures.
func tryAll(ctx context.Context, w *world.World, where string, attempts []world.Attempt, say sayer) (failed int, err error) {
	if err := w.Try(ctx, attempts); err != nil {
		return 0, err
	}
	return tell(where, "by ping, UDP and TCP", attempts, say), nil
}

// tell shows the results of attempts as a table and counts the failures.
func tell(where, how string, attempts []world.Attempt, say sayer) (failed int) {
	for _, attempt := range attempts {
		if attempt.Err != nil {
			failed++
		}
	}
	say("%d of %d attempts %s work, %s\n\n%s\n", len(attempts)-failed, len(attempts), where, how, world.Table(attempts))
	for _, attempt := range attempts {
		if attempt.Err != nil {
			say("%v: %v", attempt, attempt.Err)
		}
	}
	return failed
}

// runPods creates the pods and waits until they are running.
func runPods(ctx context.Context, w *world.World) ([]world.Endpoint, error) {
	var names []string
	for _, n := range w.Nodes {
		for i := range pods[n.Name] {
			name := fmt.Sprintf("%s-%c", n.Name, 'a'+i)
			if _, err := w.Kube.CreatePod(ctx, "default", name, n.Name, nil); err != nil {
				return nil, err
			}
			names = append(names, name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit.Of(podsTimeout))
	defer cancel()
	endpoints := make([]world.Endpoint, len(names))
	var g errgroup.Group
	for i, name := range names {
		g.Go(func() (err error) {
			endpoints[i], err = w.AwaitPod(ctx, "default", name)
			return err
		})
	}
	return endpoints, g.Wait()
}
