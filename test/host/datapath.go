package host

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/vishvananda/netlink"
)

// The values of datapath_type in Open vSwitch.
const (
	// Userspace is the datapath in ovs-vswitchd. It needs no kernel module.
	Userspace = "netdev"
	// Kernel is the datapath of the kernel module openvswitch.
	Kernel = "system"
)

// datapathVariable selects the datapath of all hosts. Programs in hosts have it, too.
const datapathVariable = "OVNK8S_TEST_DATAPATH"

// Datapath is the datapath_type of the hosts' bridges: OVNK8S_TEST_DATAPATH, or
// Userspace.
func Datapath() string { return cmp.Or(os.Getenv(datapathVariable), Userspace) }

// OnUserspace gives the hosts of a test the userspace datapath, also on a machine with the kernel's.
func OnUserspace(t interface{ Setenv(key, value string) }) { t.Setenv(datapathVariable, Userspace) }

// DatapathDevice is the name of the device with which a datapath appears in its
// network namespace.
func DatapathDevice() string { return "ovs-" + Datapath() }

// VswitchdArgs are the arguments of ovs-vswitchd for the datapath. With the userspace
// datapath it ignores datapaths of the kernel.
func VswitchdArgs() []string {
	if Datapath() == Userspace {
		return []string{"--disable-system"}
	}
	return nil
}

// Refusal is the reason of programs against the kernel's datapath on a host with the userspace datapath: the kernel has none, or
// ovs-vswitchd ignores it, by VswitchdArgs. The kernel loads its module for the question.
func Refusal() string {
	const way = "or set external_ids:ovn-bridge-datapath-type=netdev of Open_vSwitch for the userspace datapath"
	if !inKernel() {
		return `this host's kernel lacks the module openvswitch, and br-int has the kernel's datapath: install the kernel's modules and run "modprobe openvswitch", ` + way
	}
	return "ovs-vswitchd runs with --disable-system, and br-int has the kernel's datapath: start it without this option, " + way
}

// inKernel reports whether the kernel has the datapath of Open vSwitch, built in or as a module.
func inKernel() bool {
	_, err := netlink.GenlFamilyGet("ovs_datapath")
	return err == nil
}

// BridgeSetting is the setting of external_ids for the datapath of br-int, if it is
// not the default.
func BridgeSetting() []string {
	if Datapath() == Userspace {
		return []string{"ovn-bridge-datapath-type=" + Userspace}
	}
	return nil
}

// completeChecksums has the kernel complete checksums of frames for nic, instead of
// leaving that to the NIC: the userspace datapath does not complete them.
func completeChecksums(command func(string, ...string) *exec.Cmd, nic string) error {
	if Datapath() != Userspace {
		return nil
	}
	args := []string{"-K", nic, "tx", "off"}
	_, _, err := run(context.Background(), command("ethtool", args...), "ethtool", args)
	return err
}

// missingDatapath names a prerequisite of the datapath missing on this machine, or
// is "".
func missingDatapath() string {
	switch d := Datapath(); d {
	case Userspace:
		return ""
	case Kernel:
		if !inKernel() {
			return "the kernel module openvswitch (modprobe openvswitch)"
		}
		return ""
	default:
		return fmt.Sprintf("a valid %s: %q is neither %s nor %s", datapathVariable, d, Kernel, Userspace)
	}
}
