package main

import (
	"context"
	"errors"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/settings"
	"ovn-k8s/lib/vlog"
	"ovn-k8s/lib/watcher"
)

type options struct {
	Overlay   bool `long:"overlay" description:"pods get logical ports on the switch of their node"`
	Underlay  bool `long:"underlay" description:"not implemented"`
	OpenStack bool `long:"openstack" description:"not implemented"`
	Check     bool `long:"check" description:"compare the database with the API server once, print what differs, and exit 0 or 1"`

	Settings settings.Flags `group:"Configuration"`
	Daemon   daemon.Options `group:"Daemon"`
	Log      vlog.Options   `group:"Logging"`
}

// Run implements cli.Runner.
func (o *options) Run(ctx context.Context, io cli.IO) error {
	if err := o.mode(); err != nil && !o.Settings.ShowConfig {
		return err
	}
	if err := settings.UseDirectories(o.Settings.Map()); err != nil {
		return err
	}
	log, err := vlog.New(watcher.Program, o.Log, io.Err)
	if err != nil {
		return err
	}
	defer log.Close()
	log.TakeKlog()
	w := &watcher.Watcher{Options: watcher.Options{Flags: o.Settings.Map(), Log: log.Module, Out: io.Out, Status: o.Daemon.Status(watcher.Program, io.Err)}}
	switch {
	case o.Settings.ShowConfig:
		return w.ShowConfig(ctx, io.Out)
	case o.Check:
		return check(ctx, w, io)
	}
	return daemon.Run(ctx, daemon.Service{
		Name: watcher.Program, Version: version, Options: o.Daemon,
		Commands: append(w.Commands(), log.Commands()...),
		Log:      log.Module("daemon"),
		Serve:    w.Run,
	})
}

// mode checks the kind of network. The texts are those of the Python era: scripts may match them.
func (o *options) mode() error {
	switch {
	case o.Overlay:
		return nil
	case o.Underlay:
		//lint:ignore ST1005 scripts may match it
		return errors.New("Underlay mode not implemented")
	case o.OpenStack:
		return errors.New("OpenStack mode not implemented")
	}
	//lint:ignore ST1005 scripts may match it
	return errors.New("Atleast one of --overlay, --underlay or --openstack needed")
}

// differs is the error of a check with differences, already printed.
type differs struct{}

func (differs) Error() string { return "the database differs from the API server" }
func (differs) Silent() bool  { return true }

func check(ctx context.Context, w *watcher.Watcher, io cli.IO) error {
	same, err := w.Check(ctx, io.Out)
	if err == nil && !same {
		err = differs{}
	}
	return err
}
