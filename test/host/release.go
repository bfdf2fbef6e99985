package host

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"ovn-k8s/test/poll"
)

//go:embed upgrade.sh
var upgradeScript string

// Upgrade gives the host the programs of another root file system with merged /usr. Its daemons are the former ones until
// they start again: RestartOVS and, for a daemon of OVN, its stop and start. A start converts the database.
func (h *Host) Upgrade(ctx context.Context, root string) error {
	if _, err := h.Script(ctx, upgradeScript, root); err != nil {
		return fmt.Errorf("upgrading %s to %s: %w", h.Name, root, err)
	}
	return nil
}

// ExitController ends ovn-controller as ovn-ctl stop_controller does, and so an upgrade of its package: it deletes its
// chassis and its tunnels, and releases its ports.
func (h *Host) ExitController(ctx context.Context) error {
	_, _, err := h.Run(ctx, "ovn-appctl", "--target=ovn-controller", "--timeout=60", "exit")
	if err == nil {
		err = h.AwaitRemoved(ctx, controllerPidfile)
	}
	if err != nil {
		return fmt.Errorf("ending ovn-controller on %s: %w", h.Name, err)
	}
	return nil
}

// AwaitRemoved waits until a file of the host is gone, such as the pidfile of an ending daemon.
func (h machine) AwaitRemoved(ctx context.Context, file string) error {
	return poll.Until(ctx, func() error {
		if _, err := os.Stat(h.Path(file)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is there: %w", file, err)
		}
		return nil
	})
}
