// Prepare prepares this machine for the tests and the demo: it installs missing
// Debian or Ubuntu packages, prints the versions of OVN and Open vSwitch, and builds
// the control plane.
//
// Without root it does not install packages, but prints the command and exits with
// status 1. With the argument "packages" it only installs packages, and with the
// argument "machine" those of virtual machines (make test-kernel) as well, or with
// "usermode" those for building a user mode Linux. With the argument "firewalls" it also
// downloads, but does not install, those of test/firewalls.
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

	"ovn-k8s/lib/platform"
	"ovn-k8s/test/boot"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/ovntest"
)

// A tool is a program and its package.
type tool struct{ name, pkg string }

// debian has the packages of hosts. Ubuntu's have the same names.
var debian = platform.Of("ID=debian").Packages

// tools are the programs needed by the tests, the demo or our programs.
var tools = []tool{
	{"ovsdb-server", "openvswitch-common"},
	{"ovs-pki", "openvswitch-common"},
	{"ovs-vswitchd", debian[platform.OpenVSwitch]},
	{"ovn-nbctl", "ovn-common"},
	{"ovn-northd", debian[platform.OVNCentral]},
	{"ovn-controller", debian[platform.OVNHost]},
	{"ip", "iproute2"},
	{"iptables", debian[platform.IPTables]},
	{"nft", debian[platform.NFTables]},
	{"ethtool", "ethtool"},
	{"ping", "iputils-ping"},
	{"sysctl", "procps"},
	{"unshare", "util-linux"},
	{"pivot_root", "util-linux-extra"}, // in util-linux until Debian 13
	{"openssl", "openssl"},
	{"kubectl", "kubernetes-client"},
	{"/lib/systemd/systemd", "systemd"},
	{"dbus-daemon", "dbus"},
	{"curl", "curl"},
}

// machineTools are those of test/kernel.
var machineTools = []tool{
	{"qemu-system-x86_64", "qemu-system-x86"},
	{"/usr/lib/qemu/virtiofsd", "qemu-system-common"},
	{"modprobe", "kmod"},
}

// userModeTools build the kernel of test/kernel.
var userModeTools = []tool{
	{"gcc", "build-essential"}, // with the headers of the C library
	{"make", "build-essential"},
	{"flex", "flex"},
	{"bison", "bison"},
	{"bc", "bc"},
	{"xz", "xz-utils"},
}

// firewalls are the packages of test/firewalls.
var firewalls = []string{"firewalld", "ufw", "docker.io"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "prepare: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	wanted := tools
	if slices.Contains(args, "machine") {
		wanted = slices.Concat(wanted, machineTools)
	}
	if slices.Contains(args, "usermode") {
		wanted = slices.Concat(wanted, userModeTools)
	}
	if err := installPackages(ctx, wanted); err != nil {
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
	say(fmt.Sprintf("OVN %s, Open vSwitch %s", ovntest.Version("ovn-northd"), ovntest.Version("ovs-vswitchd")))
	if err := boot.Prepare(ctx, say); err != nil {
		return err
	}
	if slices.Contains(args, "firewalls") {
		if err := boot.Fetch(ctx, say, firewalls...); err != nil {
			return err
		}
	}
	_, err := kubetest.Build(ctx, say)
	return err
}

// installPackages installs the missing packages, or returns an error with the command for it.
func installPackages(ctx context.Context, wanted []tool) error {
	missing := missingPackages(wanted)
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
	if missing = missingPackages(wanted); len(missing) > 0 {
		return fmt.Errorf("installed, and still without the programs of %s", strings.Join(missing, " "))
	}
	return nil
}

// missingPackages returns the packages of the tools missing on PATH.
func missingPackages(wanted []tool) []string {
	var missing []string
	for _, t := range wanted {
		if _, err := exec.LookPath(t.name); err != nil && !slices.Contains(missing, t.pkg) {
			missing = append(missing, t.pkg)
		}
	}
	return missing
}
