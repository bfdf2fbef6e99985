package main

import (
	"context"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/overlay"
)

// gatewayInit is the command gateway-init.
type gatewayInit struct {
	common
	Cluster    *string  `long:"cluster-ip-subnet" value-name:"CIDR[,CIDR]" description:"the subnet of all pods, as given to master-init (required)"`
	Physical   *string  `long:"physical-interface" value-name:"NIC" description:"a NIC for OVN alone: the host loses its addresses on it"`
	Bridge     *string  `long:"bridge-interface" value-name:"BRIDGE" description:"an Open vSwitch bridge with a NIC, shared with the host: see ovn-k8s-util nics-to-bridge"`
	Local      bool     `long:"local" description:"no NIC: leave by this host's own routing and packet filter"`
	PhysicalIP []string `long:"physical-ip" value-name:"IP/LEN[,…]" description:"the gateway's address outside, of each address family (required unless --local); IPv4 also as IP/NETMASK"`
	DefaultGW  []string `long:"default-gw" value-name:"IP[,…]" description:"the router outside, of each address family"`
	VLAN       string   `long:"vlan" value-name:"ID" description:"the VLAN in which the outside is"`
	Rampout    string   `long:"rampout-ip-subnets" value-name:"CIDR,…" description:"subnets of pods that leave by this gateway while it lives; all others are spread over all gateways"`
	Force      bool     `long:"force" description:"go on though the host may lose its network, or another host this gateway"`
}

// Example is for the command's --help.
func (*gatewayInit) Example() string {
	return `ovn-k8s-overlay gateway-init --cluster-ip-subnet=192.168.0.0/16 --physical-interface=eth1 --physical-ip=10.0.0.5/24 --default-gw=10.0.0.1 --node-name=kube-gateway1
		ovn-k8s-overlay gateway-init --cluster-ip-subnet=192.168.0.0/16 --bridge-interface=breth0 --physical-ip=10.0.0.6/24 --default-gw=10.0.0.1 --node-name=kube-minion1
		ovn-k8s-overlay gateway-init --cluster-ip-subnet=192.168.0.0/16 --local --node-name=kube-minion2`
}

// Run implements cli.Runner.
func (o *gatewayInit) Run(ctx context.Context, stdio cli.IO) error {
	required := []option{{"cluster-ip-subnet", o.Cluster}, {"node-name", o.NodeName}}
	if !o.Local {
		var ip *string
		if len(o.PhysicalIP) > 0 {
			ip = &o.PhysicalIP[0]
		}
		required = append(required, option{"physical-ip", ip})
	}
	return o.run(ctx, stdio, required, func() overlay.Command {
		return overlay.Gateway{
			NodeName: *o.NodeName, ClusterSubnet: *o.Cluster,
			PhysicalInterface: o.Physical, BridgeInterface: o.Bridge, Local: o.Local,
			PhysicalIPs: o.PhysicalIP, DefaultGateways: o.DefaultGW, VLAN: o.VLAN, Rampout: o.Rampout, Force: o.Force,
		}
	})
}

// gatewayRemove is the command gateway-remove.
type gatewayRemove struct{ common }

// Example is for the command's --help.
func (*gatewayRemove) Example() string {
	return `ovn-k8s-overlay gateway-remove --node-name=kube-gateway1`
}

// Run implements cli.Runner.
func (o *gatewayRemove) Run(ctx context.Context, stdio cli.IO) error {
	return o.run(ctx, stdio, []option{{"node-name", o.NodeName}}, func() overlay.Command {
		return overlay.GatewayRemoval{NodeName: *o.NodeName}
	})
}
