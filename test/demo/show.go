package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"ovn-k8s/test/world"
)

// pods says how many pods each node gets. Two on one node try the way between
// neighbours.
var pods = map[string]int{"master": 1, "minion1": 2, "minion2": 2}

// podsTimeout is how long all pods may take to run.
const podsTimeout = time.Minute

// show brings a cluster up in dir and tries it. It returns the cluster whenever
// there is one, which the caller must Close.
func show(ctx context.Context, dir, bin string, say sayer) (*world.World, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	w, err := world.New(ctx, world.Options{Dir: dir, Log: func(line string) { say("%s", line) }})
	if err != nil {
		return nil, err
	}
	return w, try(ctx, w, bin, say)
}

// try installs the suite on w, runs pods and prints who reaches whom.
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
	if err := w.Do(ctx, w.Master(), "ovn-k8s-watcher", "--overlay", "--check"); err != nil {
		return err
	}
	if within+out+in > 0 {
		return errFailed
	}
	return nil
}

// addGateways makes each node a gateway, each in another mode, and returns by mode
// the addresses that the outside sees pods with.
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

// outward are the ways from pods to who is no pod: nodes see the pods' own
// addresses, others those of gateways.
func outward(pods []world.Endpoint, hosts *world.Hosts, gateways []netip.Addr) []world.Way {
	ways := world.Matrix(pods, hosts.Nodes)
	for _, p := range pods {
		for _, e := range []world.Endpoint{hosts.Neighbour, hosts.Outside} {
			ways = append(ways, world.Ways(p, e, gateways)...)
		}
	}
	return ways
}

// tryAll tries ways, shows them as a table, and counts those that fail.
func tryAll(ctx context.Context, w *world.World, where string, ways []world.Way, say sayer) (failed int, err error) {
	if err := w.Try(ctx, ways); err != nil {
		return 0, err
	}
	return tell(where, "by ping, UDP and TCP", ways, say), nil
}

// tell shows ways that were tried as a table, and counts those that failed.
func tell(where, how string, ways []world.Way, say sayer) (failed int) {
	for _, way := range ways {
		if way.Err != nil {
			failed++
		}
	}
	say("%d of %d ways %s work, %s\n\n%s\n", len(ways)-failed, len(ways), where, how, world.Table(ways))
	for _, way := range ways {
		if way.Err != nil {
			say("%v: %v", way, way.Err)
		}
	}
	return failed
}

// runPods creates the pods and waits until they run.
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
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
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
