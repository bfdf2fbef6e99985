package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"ovn-k8s/test/world"
)

// packages of Debian and Ubuntu with the tools that the test worlds use.
var packages = map[string]string{
	"ovsdb-server":   "openvswitch-switch",
	"ovs-vswitchd":   "openvswitch-switch",
	"ovsdb-tool":     "openvswitch-switch",
	"ovs-vsctl":      "openvswitch-switch",
	"ovs-appctl":     "openvswitch-switch",
	"ovn-northd":     "ovn-central",
	"ovn-nbctl":      "ovn-central",
	"ovn-sbctl":      "ovn-central",
	"ovn-trace":      "ovn-central",
	"ovn-appctl":     "ovn-central",
	"ovn-controller": "ovn-host",
	"ip":             "iproute2",
	"iptables":       "iptables",
	"nft":            "nftables",
	"ethtool":        "ethtool",
	"sysctl":         "procps",
	"unshare":        "util-linux",
	"nsenter":        "util-linux",
}

// setup installs what is missing, as root on a system with apt-get, or says what
// to install.
func setup(ctx context.Context, say sayer) error {
	var missing []string
	for tool, pkg := range packages {
		if _, err := exec.LookPath(tool); err != nil && !slices.Contains(missing, pkg) {
			missing = append(missing, pkg)
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		if err := install(ctx, missing, say); err != nil {
			return err
		}
	}
	if what := world.Missing(); what != "" {
		return fmt.Errorf("missing: %s", what)
	}
	return nil
}

func install(ctx context.Context, missing []string, say sayer) error {
	command := "apt-get install -y --no-install-recommends " + strings.Join(missing, " ")
	_, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("missing packages: run as root: %s", command)
	}
	say("installing %s", strings.Join(missing, " "))
	for _, line := range []string{"apt-get update", command} {
		words := strings.Fields(line)
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("running %s: %w: %s", line, err, out)
		}
	}
	return nil
}
