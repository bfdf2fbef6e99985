package main

import (
	"context"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/overlay"
)

// masterInit is the command master-init.
type masterInit struct {
	common
	Cluster *string `long:"cluster-ip-subnet" value-name:"CIDR[,CIDR]" description:"the subnet of all pods; for dual stack an IPv4 and an IPv6 one (required)"`
	Switch  *string `long:"master-switch-subnet" value-name:"CIDR[,CIDR]" description:"the subnet of this node's pods, within the cluster's (required)"`
	Force   bool    `long:"force" description:"take addresses away from running pods, if the subnets are others than before"`
}

// Example is for the command's --help.
func (*masterInit) Example() string {
	return `ovn-k8s-overlay master-init --cluster-ip-subnet=192.168.0.0/16 --master-switch-subnet=192.168.1.0/24 --node-name=kube-master
		ovn-k8s-overlay master-init --cluster-ip-subnet=192.168.0.0/16,fd01::/48 --master-switch-subnet=192.168.1.0/24,fd01:0:0:1::/64 --node-name=kube-master --dry-run
		ovn-k8s-overlay master-init --show-config`
}

// Run implements cli.Runner.
func (o *masterInit) Run(ctx context.Context, stdio cli.IO) error {
	required := []option{{"cluster-ip-subnet", o.Cluster}, {"master-switch-subnet", o.Switch}, {"node-name", o.NodeName}}
	return o.run(ctx, stdio, required, func() overlay.Command {
		return overlay.Init{NodeName: *o.NodeName, ClusterSubnet: *o.Cluster, NodeSubnet: *o.Switch, Force: o.Force}
	})
}
