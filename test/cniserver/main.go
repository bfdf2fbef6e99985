// Cniserver is the CNI server of a node as a program of its own, for tests and measurements. It composes the server as
// ovnkube does.
//
//	cniserver NODE LOGFILE [PIDFILE]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/kube/client"
	"ovn-k8s/lib/ovnkube/cniserver"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
	"ovn-k8s/lib/vlog"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 || len(args) > 3 {
		return errors.New("usage: cniserver NODE LOGFILE [PIDFILE]")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if len(args) == 3 {
		if err := os.WriteFile(args[2], fmt.Append(nil, os.Getpid()), 0o600); err != nil {
			return err
		}
	}
	log, err := vlog.New("ovnkube", vlog.Options{Verbose: []string{"file:dbg", "console:off"}, LogFile: args[1]}, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	return serve(ctx, args[0], log)
}

// serve serves the pods of a node until ctx ends.
func serve(ctx context.Context, node string, log *vlog.Log) error {
	source := settings.Source(nil)
	rundir, err := source.RunDir()
	if err != nil {
		return err
	}
	sw, err := vswitch.Connect(ctx, rundir, nil)
	if err != nil {
		return err
	}
	defer sw.Close()
	c, err := source.Load(ctx, sw)
	if err != nil {
		return err
	}
	api, err := client.FromConfig(c, "ovnkube").REST()
	if err != nil {
		return err
	}
	cluster, err := kube.NewCluster(api, "ovnkube", kube.Share())
	if err != nil {
		return err
	}
	defer cluster.Close()
	pods := cniserver.NewPods()
	go pods.Follow(ctx, cluster, node, log.Module("kube"))
	return cniserver.New(cniserver.Options{Settings: source, Pods: pods, Switch: sw, Log: log.Module("cni")}).Serve(ctx)
}
