// Ovnkube is the program of a host in a cluster: with --init-master it gives out subnets and writes the Northbound
// database, with --init-node it sets up the host and serves its pods, with both it does both.
package main

import (
	"io"
	"os"
	"strings"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/ovnkube"
	"ovn-k8s/lib/ovnkube/options"
)

// version is set by the Makefile.
var version = "development"

func main() { os.Exit(run(daemon.HideArguments(options.Secret), cli.OS())) }

func run(args daemon.Arguments, stdio cli.IO) int {
	stdio.Err = mask(stdio.Err, args.Secrets)
	o := newCommand(args)
	return cli.Main(cli.Program{
		Name:    ovnkube.Program,
		Version: version,
		Summary: "Runs the network of a Kubernetes cluster on this host: as a master, as a node, or both in one process.\n" +
			"The master gives each Node its subnet, and writes the Northbound database of OVN. The node sets up Open vSwitch, its gateway and its pods.",
		Example: ovnkube.Program + " --init-master=node1 --cluster-subnets=10.128.0.0/14/23 --k8s-service-cidr=172.30.0.0/16 --k8s-kubeconfig=/etc/kubernetes/ovnkube.conf --pidfile --detach\n" +
			ovnkube.Program + " --init-node=node2 --gateway-mode=shared --nodeport --nb-address=tcp:192.0.2.10:6641 --sb-address=tcp:192.0.2.10:6642 --k8s-kubeconfig=/etc/kubernetes/ovnkube.conf --pidfile --detach",
		Options: o,
		Groups:  options.Groups(), Values: o.values, OneDash: true,
	}, args.All, stdio)
}

// mask returns w without secrets that wrong command lines may show.
func mask(w io.Writer, secrets []string) io.Writer {
	var pairs []string
	for _, s := range secrets {
		if len(s) >= shortestSecret {
			pairs = append(pairs, s, "********")
		}
	}
	if len(pairs) == 0 {
		return w
	}
	return masked{w, strings.NewReplacer(pairs...)}
}

// shortestSecret is the length of texts that are words by chance.
const shortestSecret = 6

type masked struct {
	io.Writer
	secrets *strings.Replacer
}

// Write implements io.Writer.
func (m masked) Write(b []byte) (int, error) {
	_, err := m.secrets.WriteString(m.Writer, string(b))
	return len(b), err
}
