// The program ovn-k8s-cni-shim is a small CNI plugin: it hands the calls of a container runtime to the CNI server of
// ovnkube. On hosts it is installed under the name of the plugin, ovn-k8s-cni-overlay. See package lib/cni/shim.
package main

import (
	"os"

	"ovn-k8s/lib/cni/shim"
)

// version is set by the Makefile.
var version = "development"

func main() { os.Exit(shim.Main(version)) }
