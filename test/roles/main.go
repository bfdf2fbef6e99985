// Roles runs the watcher and the gateway helper of a host in one process, for tests: with one configuration, one log and
// one set of informers. Each has a pidfile and a control socket under the name of its program; the watcher's socket has
// the commands of both.
package main

import (
	"context"
	"os"

	"golang.org/x/sync/errgroup"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/gateway"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/settings"
	"ovn-k8s/lib/vlog"
	"ovn-k8s/lib/watcher"
)

type options struct {
	Bridge    string `long:"physical-bridge" value-name:"BRIDGE" description:"of the gateway helper"`
	Interface string `long:"physical-interface" value-name:"NIC" description:"of the gateway helper"`

	Settings settings.Flags `group:"Configuration"`
	Daemon   daemon.Options `group:"Daemon"`
	Log      vlog.Options   `group:"Logging"`
}

func main() {
	os.Exit(cli.Main(cli.Program{Name: "roles", Version: "development", Summary: "Runs a watcher and a gateway helper.", Options: &options{}}, os.Args[1:], cli.OS()))
}

// Run implements cli.Runner.
func (o *options) Run(ctx context.Context, io cli.IO) error {
	log, err := vlog.New(watcher.Program, o.Log, io.Err)
	if err != nil {
		return err
	}
	defer log.Close()
	log.TakeKlog()
	flags, share := o.Settings.Map(), kube.Share()
	w := &watcher.Watcher{Options: watcher.Options{Flags: flags, Log: log.Module, Informers: share}}
	h := &gateway.Helper{Options: gateway.Options{Flags: flags, Log: log.Module, Informers: share, Bridge: o.Bridge, Interface: o.Interface}}
	helper := daemon.Service{
		Name: gateway.Program, Options: daemon.Options{Pidfile: gateway.Program + ".pid"}, Commands: h.Commands(), Log: log.Module("daemon"),
		Serve: func(ctx context.Context, _ func()) error {
			<-ctx.Done()
			return nil
		},
	}
	commands := daemon.Join(daemon.Role{Name: "watcher", Commands: w.Commands()}, daemon.Role{Name: "gateway-helper", Commands: h.Commands()})
	runtime := settings.Runtime{Flags: flags, Log: log.Module, States: settings.NewStates(o.Daemon.Status(watcher.Program, io.Err))}
	return daemon.Run(ctx, daemon.Service{
		Name: watcher.Program, Options: o.Daemon, Commands: append(commands, log.Commands()...), Log: log.Module("daemon"),
		Serve: func(ctx context.Context, ready func()) error {
			all, ctx := errgroup.WithContext(ctx)
			all.Go(func() error { return daemon.Run(ctx, helper) })
			all.Go(func() error { return runtime.Run(ctx, ready, w.Role(), h.Role()) })
			return all.Wait()
		},
	})
}
