// The program ovn-k8s-cni-overlay is the CNI plugin: container runtimes run it
// for each pod. See package lib/cni.
package main

import (
	"os"

	"ovn-k8s/lib/cni"
)

// version is set by the Makefile.
var version = "development"

func main() { os.Exit(cni.Main(version)) }
