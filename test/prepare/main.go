// Prepare makes this machine fit for the tests and the demo: it installs the
// Debian or Ubuntu packages that are missing and builds the control plane.
//
// It needs root only where something is missing; otherwise it says what to
// install, and exits with status 1. The argument "packages" leaves it at that.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"ovn-k8s/test/boot"
	"ovn-k8s/test/kubetest"
)

// tools are the programs that the tests, the demo or our programs run, each with
// the package that has it.
var tools = []struct{ name, pkg string }{
	{"ovsdb-server", "openvswitch-common"},
	{"ovs-pki", "openvswitch-common"},
	{"ovs-vswitchd", "openvswitch-switch"},
	{"ovn-nbctl", "ovn-common"},
	{"ovn-northd", "ovn-central"},
	{"ovn-controller", "ovn-host"},
	{"ip", "iproute2"},
	{"iptables", "iptables"},
	{"nft", "nftables"},
	{"ethtool", "ethtool"},
	{"ping", "iputils-ping"},
	{"sysctl", "procps"},
	{"unshare", "util-linux"},
	{"openssl", "openssl"},
	{"kubectl", "kubernetes-client"},
	{"/lib/systemd/systemd", "systemd"},
	{"dbus-daemon", "dbus"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "prepare: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if err := installPackages(ctx); err != nil {
		return err
	}
	if slices.Contains(args, "packages") {
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("networks of namespaces need root: run it as root, or with sudo -E env PATH=\"$PATH\" make …")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return fmt.Errorf("the userspace datapath needs /dev/net/tun: try modprobe tun (%w)", err)
	}
	say := func(line string) { fmt.Println(line) }
	if err := boot.Prepare(ctx, say); err != nil {
		return err
	}
	_, err := kubetest.Build(ctx, say)
	return err
}

// installPackages installs what is missing, or says what to install.
func installPackages(ctx context.Context) error {
	missing := missingPackages()
	if len(missing) == 0 {
		return nil
	}
	install := append([]string{"install", "-y", "--no-install-recommends"}, missing...)
	byHand := "apt-get update && apt-get " + strings.Join(install, " ")
	if os.Geteuid() != 0 {
		return fmt.Errorf("packages are missing; as root, run: %s", byHand)
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("packages are missing, and there is no apt-get; what Debian calls %s", strings.Join(missing, " "))
	}
	fmt.Println("installing", strings.Join(missing, " "))
	for _, args := range [][]string{{"-q", "update"}, install} {
		if err := apt(ctx, os.Stdout, args...); err != nil {
			return err
		}
	}
	if missing = missingPackages(); len(missing) > 0 {
		return fmt.Errorf("installed, and still without the programs of %s", strings.Join(missing, " "))
	}
	return nil
}

// missingPackages lists the packages of tools that are not on PATH.
func missingPackages() []string {
	var missing []string
	for _, t := range tools {
		if _, err := exec.LookPath(t.name); err != nil && !slices.Contains(missing, t.pkg) {
			missing = append(missing, t.pkg)
		}
	}
	return missing
}
