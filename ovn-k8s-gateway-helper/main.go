// Ovn-k8s-gateway-helper handles, on each node, connections to Services from outside of pods, and has a host and
// its gateway router share one NIC.
package main

import (
	"os"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/gateway"
)

// version is set by the Makefile.
var version = "development"

func main() { os.Exit(run(os.Args[1:], cli.OS())) }

func run(args []string, io cli.IO) int {
	return cli.Main(cli.Program{
		Name:    gateway.Program,
		Version: version,
		Summary: "Takes in connections to Services that do not come from pods, by rules of the host's iptables and,\n" +
			"where the host shares a NIC with its gateway router, by flows of the bridge. Run it on every node.",
		Example: gateway.Program + " --physical-bridge=breth0 --physical-interface=eth0 --pidfile --detach\n" +
			gateway.Program + " --pidfile --log-file -vfile:info -vconsole:emer --detach",
		Options: &options{},
	}, args, io)
}
