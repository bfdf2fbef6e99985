package main

import (
	"context"
	"fmt"
	"strings"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/overlay"
	"ovn-k8s/lib/settings"
)

// common are the options of all commands. Required options are pointers, because an empty option is another mistake
// than a missing one, and --show-config does not need them.
type common struct {
	cli.Base
	NodeName *string        `long:"node-name" value-name:"NAME" description:"the node's name in Kubernetes (required)"`
	DryRun   bool           `long:"dry-run" description:"print what would be changed, and change nothing"`
	Wait     bool           `long:"wait" description:"wait for Open vSwitch and the Northbound database as long as it takes: for systemd units"`
	Config   settings.Flags `group:"Configuration options, which override external_ids of Open vSwitch and ovn_k8s.conf"`
}

// run shows the configuration if requested, or else runs the command if no required option is missing.
func (c common) run(ctx context.Context, stdio cli.IO, required []option, command func() overlay.Command) error {
	deps := overlay.Dependencies{Settings: settings.Source(c.Config.Map()), DryRun: c.DryRun, Wait: c.Wait, Out: stdio.Out, Err: stdio.Err}
	if c.Config.ShowConfig {
		return overlay.Run(ctx, deps, overlay.ShowConfig{})
	}
	var missing []string
	for _, o := range required {
		if o.value == nil {
			missing = append(missing, "--"+o.name)
		}
	}
	if len(missing) > 0 {
		return usageError(fmt.Sprintf("missing required option %s (try '%s --help')", strings.Join(missing, ", "), program))
	}
	return overlay.Run(ctx, deps, command())
}

// An option is a required option.
type option struct {
	name  string
	value *string
}

// A usageError is a wrong command line.
type usageError string

func (e usageError) Error() string { return string(e) }

// ExitStatus is the status for a wrong command line.
func (usageError) ExitStatus() int { return 2 }
