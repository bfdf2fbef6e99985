// Ovn-k8s-watcher follows the Kubernetes API and writes its objects as rows into the Northbound database of OVN.
package main

import (
	"os"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/watcher"
)

// version is set by the Makefile.
var version = "development"

func main() { os.Exit(run(os.Args[1:], cli.OS())) }

func run(args []string, io cli.IO) int {
	return cli.Main(cli.Program{
		Name:    watcher.Program,
		Version: version,
		Summary: "Follows the Kubernetes API and writes pods, Services, NetworkPolicies and gateways into the Northbound database of OVN.\n" +
			"Several may run: one of them is active. Run it where the Kubernetes API and the database can be reached.",
		Example: watcher.Program + " --overlay --pidfile --log-file -vfile:info -vconsole:emer --detach\n" +
			watcher.Program + " --overlay --check",
		Options: &options{},
	}, args, io)
}
