package main

import (
	"context"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/overlay"
)

// nodeRemove is the command node-remove.
type nodeRemove struct {
	common
	Force bool `long:"force" description:"remove the node even if it has pods"`
}

// Example is for the command's --help.
func (*nodeRemove) Example() string {
	return `kubectl drain kube-minion1 --ignore-daemonsets
		ovn-k8s-overlay node-remove --node-name=kube-minion1`
}

// Run implements cli.Runner.
func (o *nodeRemove) Run(ctx context.Context, stdio cli.IO) error {
	return o.run(ctx, stdio, []option{{"node-name", o.NodeName}}, func() overlay.Command {
		return overlay.Removal{NodeName: *o.NodeName, Force: o.Force}
	})
}
