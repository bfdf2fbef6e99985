package world

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// PrepareOVNKube installs ovnkube and its plugin from the directory bin on the hosts of a World without them, with the
// accounts of all nodes. It starts nothing.
func (w *World) PrepareOVNKube(ctx context.Context, bin string) error {
	var files []string
	for _, p := range OVNKube() {
		files = append(files, filepath.Join(bin, p))
	}
	if err := each(w, func(n *Node) error { return n.Install(files...) }); err != nil {
		return err
	}
	return ovnkube{w}.prepare(ctx)
}

// Retire ends the daemons of a node that ovnkube replaces, as systemctl stop does.
func (n *Node) Retire(ctx context.Context) error {
	for _, p := range []string{HelperPidfile, WatcherPidfile} {
		if _, err := os.Stat(n.Path(p)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := n.end(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// end ends the daemon of a pidfile as systemctl stop does, and waits until it has removed the file.
func (n *Node) end(ctx context.Context, pidfile string) error {
	if _, err := n.Script(ctx, `kill -TERM "$(cat "$1")"`, pidfile); err != nil {
		return err
	}
	return n.AwaitRemoved(ctx, pidfile)
}

// TakeOver starts ovnkube on a node after Retire, with more args. From the master on, it is a World of ovnkube.
func (w *World) TakeOver(ctx context.Context, n *Node, args ...string) error {
	w.ovnkube = true
	return w.RestartOVNKube(ctx, n, args...)
}
