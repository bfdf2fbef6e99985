// The program ovn-k8s-util moves a NIC's addresses to a bridge, and back: see
// package lib/nicbridge.
package main

import (
	"os"

	"ovn-k8s/lib/cli"
)

func main() { os.Exit(run(os.Args[1:], cli.OS())) }

func run(args []string, stdio cli.IO) int {
	return cli.Main(cli.Program{
		Name: program, Version: version,
		Summary: "Moves what a host has on a NIC to an Open vSwitch bridge with the NIC as its port, or back: " +
			"addresses, routes, rules, neighbours and settings. " +
			"A move that does not work is undone, and one that was interrupted is undone by the next run, or with --recover.",
		Example: `ovn-k8s-util nics-to-bridge eth0 --confirm-within=60s
			ovn-k8s-util confirm
			ovn-k8s-util bridges-to-nic breth0`,
		Options: &commands{},
	}, args, stdio)
}

// program is the name in messages.
const program = "ovn-k8s-util"

// version is set by the Makefile.
var version = "development"

type commands struct {
	NICsToBridge nicsToBridge `command:"nics-to-bridge" description:"move what NICs have to bridges"`
	BridgesToNIC bridgesToNIC `command:"bridges-to-nic" description:"move it back, and delete the bridges"`
	Confirm      confirm      `command:"confirm" description:"keep what was moved with --confirm-within"`
	Watchdog     watchdog     `command:"watchdog" hidden:"yes" description:"undo a move that is not confirmed in time"`
}
