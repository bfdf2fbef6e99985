package node

import (
	"errors"
	"fmt"
	"path/filepath"

	"ovn-k8s/lib/daemon"
)

// hostFile, in the run directory, has the process with the role of a node, or its clean-up.
const hostFile = "ovnkube-host.pid"

// Hold makes this process the only one that changes this host as a node, until release or its end: two would undo each other's
// changes.
func Hold(rundir string) (release func(), err error) {
	release, err = daemon.Hold(filepath.Join(rundir, hostFile))
	if errors.Is(err, daemon.ErrHeld) {
		err = fmt.Errorf("this host has an ovnkube with --init-node: stop it first: %w", err)
	}
	return release, err
}
