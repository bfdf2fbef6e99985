package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ovn-k8s/lib/names"
)

// CheckDatapath returns an error if this host cannot have the datapath_type of br-int. offered are the types of
// ovs-vswitchd, none if it has not started yet. module reports whether the kernel has the datapath of Open vSwitch.
func CheckDatapath(kind string, offered []string, module func() (bool, error)) error {
	if kind == names.UserspaceDatapath {
		return nil
	}
	const orUserspace = `or set external_ids:ovn-bridge-datapath-type=netdev of Open_vSwitch for the userspace datapath`
	has, err := module()
	switch {
	case err != nil:
		return err
	case !has:
		return errors.New(`this host's kernel lacks the module openvswitch, and br-int has the kernel's datapath: install the kernel's modules and run "modprobe openvswitch", ` + orUserspace)
	case len(offered) > 0 && !slices.Contains(offered, "system"):
		return errors.New("ovs-vswitchd runs with --disable-system, and br-int has the kernel's datapath: start it without this option, " + orUserspace)
	}
	return nil
}

// CheckGeneve returns an error if tunnels need Geneve of this host's kernel, and it has none. kind is the datapath_type of
// br-int: the userspace datapath has tunnels of its own.
func (c Config) CheckGeneve(kind string, module func() (bool, error)) error {
	if kind == names.UserspaceDatapath || !strings.Contains(c.EncapType, "geneve") {
		return nil
	}
	has, err := module()
	if err != nil || has {
		return err
	}
	return fmt.Errorf(`this host's kernel lacks the module geneve, and tunnels to other hosts need it (ovn-encap-type %s): install the kernel's modules and run "modprobe geneve"`, c.EncapType)
}
