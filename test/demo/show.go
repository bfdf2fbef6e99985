package main

import (
	"context"
	"fmt"
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
	endpoints, err := runPods(ctx, w)
	if err != nil {
		return err
	}
	say("%d pods run", len(endpoints))
	nodes, stop, err := w.ServeNodes()
	if err != nil {
		return err
	}
	defer stop()
	endpoints = append(endpoints, nodes...)
	ways := world.Matrix(endpoints, endpoints)
	failed := world.Try(ctx, ways)
	say("%d of %d ways work, by ping, UDP and TCP\n\n%s\n", len(ways)-len(failed), len(ways), world.Table(ways))
	for _, way := range failed {
		say("%v: %v", way, way.Err)
	}
	if err := w.Do(ctx, w.Master(), "ovn-k8s-watcher", "--overlay", "--check"); err != nil {
		return err
	}
	if len(failed) > 0 {
		return errFailed
	}
	return nil
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
