// Package link configures this host's network interfaces by netlink: addresses and routes of an interface, veth pairs
// to containers, and the sysctls and offloads for pods.
//
// Everything is idempotent. A State is the desired state of an interface; Plan lists the necessary changes, and
// Ensure makes them. All functions act in the network namespace of the calling thread: see Namespace.Do.
package link

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// Exists reports whether there is an interface of that name.
func Exists(name string) (bool, error) {
	l, err := find(name)
	return l != nil, err
}

// MAC returns the MAC of an interface in Linux's format, "0a:58:c0:a8:02:03". It is an error if there is no such
// interface, or its MAC is missing or 0.
func MAC(name string) (string, error) {
	l, err := find(name)
	if err != nil {
		return "", err
	}
	if l == nil {
		return "", fmt.Errorf("interface %s not found", name)
	}
	mac := l.Attrs().HardwareAddr
	if len(mac) != 6 || mac.String() == "00:00:00:00:00:00" {
		return "", fmt.Errorf("failed to get mac address of %s", name)
	}
	return mac.String(), nil
}

// Delete deletes an interface. A missing interface is not an error.
func Delete(name string) error {
	l, err := find(name)
	if l == nil || err != nil {
		return err
	}
	if err := netlink.LinkDel(l); err != nil && !gone(err) {
		return fmt.Errorf("deleting interface %s: %w", name, err)
	}
	return nil
}

// KernelName returns the kernel's name of an interface given by that or by an altname. Open vSwitch, sysctls and
// rules do not know altnames. The name of a missing interface is returned as it is.
func KernelName(name string) (string, error) {
	l, err := find(name)
	if l == nil || err != nil {
		return name, err
	}
	return l.Attrs().Name, nil
}

// SetUp sets an interface up.
func SetUp(name string) error {
	l, err := find(name)
	if err != nil {
		return err
	}
	if l == nil {
		return fmt.Errorf("interface %s not found", name)
	}
	if l.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("setting %s up: %w", name, err)
	}
	return nil
}

// find returns the interface of that name, or nil.
func find(name string) (netlink.Link, error) {
	l, err := netlink.LinkByName(name)
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking up interface %s: %w", name, err)
	}
	return l, nil
}

// gone reports whether err means that the interface does not exist.
func gone(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound) || errors.Is(err, errNoDevice)
}

// dumpTries bounds the repetitions of an interrupted dump. The kernel interrupts a dump if the table changes, as
// happens on a host that starts many pods at once.
const dumpTries = 20

// dump repeats a netlink listing until it is consistent.
func dump[T any](list func() ([]T, error)) ([]T, error) {
	for n := 1; ; n++ {
		all, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) || n == dumpTries {
			return all, err
		}
	}
}
