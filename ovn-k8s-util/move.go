package main

import (
	"context"
	"fmt"
	"time"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/nicbridge"
)

// nicsToBridge is the command nics-to-bridge.
type nicsToBridge struct {
	move
	Args struct {
		Names []string `positional-arg-name:"NIC" description:"network interface; its bridge is brNIC"`
	} `positional-args:"yes"`
}

// Example is for the command's --help.
func (*nicsToBridge) Example() string {
	return `ovn-k8s-util nics-to-bridge eth0 --dry-run
		ovn-k8s-util nics-to-bridge eth0 eth1 --probe=10.0.0.1:22 --confirm-within=60s
		ovn-k8s-util nics-to-bridge --recover`
}

// Run implements cli.Runner.
func (o *nicsToBridge) Run(ctx context.Context, stdio cli.IO) error {
	return o.run(ctx, stdio, nicbridge.ToBridge, o.Args.Names)
}

// bridgesToNIC is the command bridges-to-nic.
type bridgesToNIC struct {
	move
	Args struct {
		Names []string `positional-arg-name:"BRIDGE" description:"bridge with a NIC as its only port"`
	} `positional-args:"yes"`
}

// Example is for the command's --help.
func (*bridgesToNIC) Example() string {
	return `ovn-k8s-util bridges-to-nic breth0 --dry-run
		ovn-k8s-util bridges-to-nic breth0 --confirm-within=60s`
}

// Run implements cli.Runner.
func (o *bridgesToNIC) Run(ctx context.Context, stdio cli.IO) error {
	return o.run(ctx, stdio, nicbridge.ToNIC, o.Args.Names)
}

// move holds the options of both commands.
type move struct {
	cli.Base
	DryRun        bool          `long:"dry-run" description:"print what would be changed, and change nothing"`
	Probe         string        `long:"probe" value-name:"ADDRESS" description:"what must answer afterwards if it does now: an IP address (by ping) or HOST:PORT (by TCP); next hops and the API server are asked in any case"`
	ConfirmWithin time.Duration `long:"confirm-within" value-name:"TIME" description:"undo it after TIME, as 60s, unless ovn-k8s-util confirm is run before"`
	Recover       bool          `long:"recover" description:"only undo or complete what an interrupted run left"`
	configFile
}

// configFile locates the API server.
type configFile struct {
	ConfigFile string `long:"config-file" value-name:"FILE" description:"read this instead of /etc/openvswitch/ovn_k8s.conf"`
	APIServer  string `long:"k8s-api-server" value-name:"URL" description:"Kubernetes API server"`
}

// settings are the settings from the command line, see settings.Flags.Map.
func (c configFile) settings() map[string]string {
	m := map[string]string{"config-file": c.ConfigFile, "k8s-api-server": c.APIServer}
	for k, v := range m {
		if v == "" {
			delete(m, k)
		}
	}
	return m
}

func (o *move) run(ctx context.Context, stdio cli.IO, d nicbridge.Direction, names []string) error {
	switch {
	case o.Recover && len(names) > 0:
		return usageError(fmt.Sprintf("--recover is for whatever was interrupted: leave out %s", names[0]))
	case !o.Recover && len(names) == 0:
		return usageError(fmt.Sprintf("nothing to move (try '%s %s --help')", program, d))
	case o.ConfirmWithin != 0 && o.ConfirmWithin < time.Second:
		return usageError(fmt.Sprintf("--confirm-within %v is too short: a second is the least", o.ConfirmWithin))
	}
	c := nicbridge.Command{
		Settings: o.settings(), Names: names, DryRun: o.DryRun, Probe: o.Probe, ConfirmWithin: o.ConfirmWithin,
		Out: stdio.Out, Err: stdio.Err,
	}
	if o.ConfirmWithin > 0 {
		c.Watch = "watchdog"
	}
	if o.Recover {
		return nicbridge.Recover(ctx, c)
	}
	return nicbridge.Move(ctx, d, c)
}

// A usageError is a wrong command line.
type usageError string

func (e usageError) Error() string { return string(e) }

// ExitStatus is the status for a wrong command line.
func (usageError) ExitStatus() int { return 2 }
