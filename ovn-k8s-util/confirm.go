package main

import (
	"context"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/nicbridge"
)

// confirm is the command confirm.
type confirm struct {
	cli.Base
	configFile
}

// Example is for the command's --help.
func (*confirm) Example() string {
	return `ovn-k8s-util nics-to-bridge eth0 --confirm-within=60s
		ovn-k8s-util confirm`
}

// Run implements cli.Runner.
func (o *confirm) Run(ctx context.Context, stdio cli.IO) error {
	return nicbridge.Confirm(ctx, nicbridge.Command{Settings: o.settings(), Out: stdio.Out, Err: stdio.Err})
}

// watchdog runs in the background until a move is confirmed, or undoes it.
type watchdog struct {
	cli.Base
	configFile
	Args struct {
		Bridge string `positional-arg-name:"BRIDGE" description:"whose move it is"`
	} `positional-args:"yes" required:"yes"`
}

// Run implements cli.Runner.
func (o *watchdog) Run(ctx context.Context, stdio cli.IO) error {
	return nicbridge.Watch(ctx, nicbridge.Command{Settings: o.settings(), Out: stdio.Out, Err: stdio.Err}, o.Args.Bridge)
}
