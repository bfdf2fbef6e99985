package link

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// HasOpenVSwitch reports whether the kernel has the datapath of Open vSwitch. The kernel loads the module for this
// question if it is installed, as it does for ovs-vswitchd.
func HasOpenVSwitch() (bool, error) {
	_, err := netlink.GenlFamilyGet("ovs_datapath")
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking the kernel for the datapath of Open vSwitch: %w", err)
	}
	return true, nil
}

// HasGeneve reports whether the kernel has Geneve tunnels. The kernel loads the module for this question if it is
// installed, as it does for ovs-vswitchd.
func HasGeneve() (bool, error) { return hasKind("geneve") }

// probeName is the name of the interface to ask for.
const probeName = "ovn-k8s-probe"

// hasKind reports whether the kernel has a kind of tunnels: it refuses one without a VNI with EINVAL, or an unknown
// kind with EOPNOTSUPP (__rtnl_newlink in net/core/rtnetlink.c), and makes none.
func hasKind(kind string) (bool, error) {
	err := netlink.LinkAdd(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: probeName}, LinkType: kind})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return false, nil
	case errors.Is(err, unix.EINVAL):
		return true, nil
	case err == nil: // a kernel that needs no VNI
		return true, Delete(probeName)
	}
	return false, fmt.Errorf("asking the kernel for tunnels of kind %s: %w", kind, err)
}
