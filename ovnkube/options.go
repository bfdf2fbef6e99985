package main

import (
	"context"
	"errors"
	"os"
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

	Checking check    `command:"check" description:"compare what the roles of the other options keep with what it should be, once, print what differs, and exit 0 or 1; it changes nothing"`
	Watching watchdog `command:"watchdog" hidden:"yes" description:"undo a move of a NIC whose process is killed"`

	arguments daemon.Arguments
	values    map[string]string // of the other options
}

func newCommand(args daemon.Arguments) *command {
	c := &command{arguments: args, values: map[string]string{}}
	c.Checking.command, c.Watching.command = c, c
	return c
}

// Run implements cli.Runner.
func (c *command) Run(ctx context.Context, io cli.IO) error {
	if err := c.prepare(); err != nil {
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

// prepare makes the options complete, and uses their directories.
func (c *command) prepare() error {
	if err := c.completeValues(); err != nil {
		return err
	}
	return settings.UseDirectories(c.values)
}

// completeValues adds the options that are no settings, and makes a kubeconfig's path absolute, also that of the environment:
// a daemon changes its working directory.
func (c *command) completeValues() (err error) {
	if c.ConfigFile != "" {
		c.values["config-file"] = c.ConfigFile
	}
	if file := c.values["k8s-kubeconfig"]; file != "" {
		if c.values["k8s-kubeconfig"], err = filepath.Abs(file); err != nil {
			return err
		}
	}
	if file := os.Getenv("KUBECONFIG"); file != "" {
		if file, err = filepath.Abs(file); err == nil {
			err = os.Setenv("KUBECONFIG", file)
		}
	}
	return err
}

// A check is the command "check", with the options of command.
type check struct {
	cli.Base
	command *command
}

// differs is the error of a check with differences, already printed.
type differs struct{}

func (differs) Error() string { return "this is not as it should be" }
func (differs) Silent() bool  { return true }

// Example implements an interface of lib/cli.
func (c *check) Example() string {
	return "ovnkube check --init-node=node2 --k8s-apiserver=https://192.0.2.10:6443 --k8s-api-token-file=/etc/openvswitch/ovnkube.token --gateway-mode=shared --nodeport"
}

// Run implements cli.Runner.
func (c *check) Run(ctx context.Context, io cli.IO) error {
	if err := c.command.prepare(); err != nil {
		return err
	}
	p := ovnkube.New(ovnkube.Options{Flags: c.command.values, Out: io.Out, Err: io.Err})
	o, err := p.Resolve(ctx)
	if err != nil {
		return err
	}
	if o.Cleanup != "" || o.Remove != "" {
		return errors.New("check needs --init-master=NAME, --init-node=NAME or both, as this host's ovnkube has them")
	}
	same, err := p.Check(ctx)
	if err == nil && !same {
		err = differs{}
	}
	return err
}

// A watchdog is the command of the background process beside a move of a NIC.
type watchdog struct {
	cli.Base
	command *command
	Args    struct {
		Bridge string `positional-arg-name:"BRIDGE" description:"whose move it is"`
	} `positional-args:"yes" required:"yes"`
}

// Run implements cli.Runner.
func (c *watchdog) Run(ctx context.Context, io cli.IO) error {
	if err := c.command.prepare(); err != nil {
		return err
	}
	return ovnkube.New(ovnkube.Options{Flags: c.command.values, Out: io.Out, Err: io.Err}).Watch(ctx, c.Args.Bridge)
}
