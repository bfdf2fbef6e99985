package main

import (
	"context"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/overlay"
)

// minionInit is the command minion-init.
type minionInit struct {
	common
	Cluster *string `long:"cluster-ip-subnet" value-name:"CIDR[,CIDR]" description:"the subnet of all pods, as given to master-init (required)"`
	Switch  *string `long:"minion-switch-subnet" value-name:"CIDR[,CIDR]" description:"the subnet of this node's pods, within the cluster's (required)"`
	Force   bool    `long:"force" description:"take addresses away from running pods, if the subnets are others than before"`
}

// Example is for the command's --help.
func (*minionInit) Example() string {
	return `ovn-k8s-overlay minion-init --cluster-ip-subnet=192.168.0.0/16 --minion-switch-subnet=192.168.2.0/24 --node-name=kube-minion1
		ovn-k8s-overlay minion-init --cluster-ip-subnet=192.168.0.0/16,fd01::/48 --minion-switch-subnet=192.168.2.0/24,fd01:0:0:2::/64 --node-name=kube-minion1`
}

// Run implements cli.Runner.
func (o *minionInit) Run(ctx context.Context, stdio cli.IO) error {
	required := []option{{"cluster-ip-subnet", o.Cluster}, {"minion-switch-subnet", o.Switch}, {"node-name", o.NodeName}}
	return o.run(ctx, stdio, required, func() overlay.Command {
		return overlay.Init{Minion: true, NodeName: *o.NodeName, ClusterSubnet: *o.Cluster, NodeSubnet: *o.Switch, Force: o.Force}
	})
}
