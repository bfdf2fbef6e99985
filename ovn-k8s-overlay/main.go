// The program ovn-k8s-overlay builds the cluster's network, one node after the
// other: see package lib/overlay.
package main

import (
	"os"

	"ovn-k8s/lib/cli"
)

func main() { os.Exit(run(os.Args[1:], cli.OS())) }

func run(args []string, stdio cli.IO) int {
	return cli.Main(cli.Program{
		Name: program, Version: version,
		Summary: "Builds the network of a Kubernetes cluster in OVN, one node after the other. " +
			"Every command can be repeated: it changes what differs from what it is asked for. " +
			"Everything is checked before anything is changed. " +
			"Standard output is the result only; warnings, and what takes longer than two seconds, go to standard error.",
		Example: `ovn-k8s-overlay master-init --cluster-ip-subnet=192.168.0.0/16 --master-switch-subnet=192.168.1.0/24 --node-name=kube-master
			ovn-k8s-overlay minion-init --cluster-ip-subnet=192.168.0.0/16 --minion-switch-subnet=192.168.2.0/24 --node-name=kube-minion1
			ovn-k8s-overlay gateway-init --cluster-ip-subnet=192.168.0.0/16 --bridge-interface=breth0 --physical-ip=10.0.0.6/24 --default-gw=10.0.0.1 --node-name=kube-minion1
			ovn-k8s-overlay node-remove --node-name=kube-minion1`,
		Options: &commands{},
	}, args, stdio)
}

// program is the name in messages.
const program = "ovn-k8s-overlay"

// version is set by the Makefile.
var version = "development"

type commands struct {
	MasterInit masterInit `command:"master-init" description:"make the cluster router, and this node's switch and management port"`
	MinionInit minionInit `command:"minion-init" description:"make this node's switch and management port, and set up CNI"`
	NodeRemove nodeRemove `command:"node-remove" description:"take a node away again"`

	GatewayInit   gatewayInit   `command:"gateway-init" description:"make this host a gateway between pods and the outside"`
	GatewayRemove gatewayRemove `command:"gateway-remove" description:"take a gateway away again"`
}
