package link

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// NeedRoot returns an error if this process may not change interfaces and routes: without root's rights, or root without
// the capability CAP_NET_ADMIN (capabilities(7)), as in a container.
func NeedRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("this needs root: it works on interfaces and routes of the host")
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3} // of this thread
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("reading the capabilities of this process: %w", err)
	}
	if sets[0].Effective&(1<<unix.CAP_NET_ADMIN) == 0 {
		return errors.New("this needs the capability CAP_NET_ADMIN, because it works on interfaces and routes of the host: run it outside of this container, or give the container that capability and the host's network")
	}
	return nil
}
