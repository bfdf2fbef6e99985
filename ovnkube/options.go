package main

import (
	"context"
	"path/filepath"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/ovnkube"
	"ovn-k8s/lib/settings"
	"ovn-k8s/lib/vlog"
)

type command struct {
	ConfigFile string `long:"config-file" value-name:"FILE" description:"read this instead of /etc/openvswitch/ovn_k8s.conf"`
	ShowConfig bool   `long:"show-config" description:"print every setting and where it comes from, and exit"`

	Daemon daemon.Options `group:"Daemon options"`
	Log    vlog.Options   `group:"Log options of Open vSwitch's programs"`

	arguments daemon.Arguments
	values    map[string]string // of the other options
}

// Run implements cli.Runner.
func (c *command) Run(ctx context.Context, io cli.IO) error {
	if err := c.completeValues(); err != nil {
		return err
	}
	if err := settings.UseDirectories(c.values); err != nil {
		return err
	}
	p := ovnkube.New(ovnkube.Options{Flags: c.values, Out: io.Out, Err: io.Err})
	if c.ShowConfig {
		return p.ShowConfig(ctx)
	}
	o, err := p.Resolve(ctx)
	if err != nil {
		return err
	}
	log, problem, err := ovnkube.OpenLog(o, c.Log, io.Err)
	if err != nil {
		return err
	}
	defer log.Close()
	if o.Remove != "" {
		return p.Remove(ctx, o.Remove)
	}
	log.TakeKlog()
	p = ovnkube.New(ovnkube.Options{Flags: c.values, Log: log.Module, Out: io.Out, Err: io.Err, Status: c.Daemon.Status(ovnkube.Program, io.Err)})
	if o.Cleanup != "" {
		return p.Clean(ctx, o.Cleanup)
	}
	return daemon.Run(ctx, daemon.Service{
		Name: ovnkube.Program, Version: version, Options: c.Daemon, Arguments: c.arguments,
		Commands: append(p.Commands(), log.Commands()...),
		Log:      log.Module("daemon"),
		Serve: func(ctx context.Context, ready func()) error {
			if problem != nil {
				log.Module(ovnkube.Program).Error(problem)
			}
			for _, text := range o.Advice {
				log.Module(ovnkube.Program).Warn(text)
			}
			return p.Run(ctx, ready)
		},
	})
}

// completeValues adds the options that are no settings, and makes a kubeconfig's path absolute: a daemon changes its
// working directory.
func (c *command) completeValues() error {
	if c.ConfigFile != "" {
		c.values["config-file"] = c.ConfigFile
	}
	file := c.values["k8s-kubeconfig"]
	if file == "" {
		return nil
	}
	path, err := filepath.Abs(file)
	c.values["k8s-kubeconfig"] = path
	return err
}
