package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ovn-k8s/lib/overlay/cnisetup"
	"ovn-k8s/lib/overlay/files"
	overlayhost "ovn-k8s/lib/overlay/host"
	overlaynode "ovn-k8s/lib/overlay/node"
)

// bootFile has the kernel's boot ID of the time when the CNI configuration was written. It is gone, or has another one,
// after a boot.
const bootFile = "/var/run/ovn-kubernetes/boot"

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("identifying this boot: %w", err)
	}
	return strings.TrimSpace(string(id)) + "\n", nil
}

// disableAfterBoot removes the CNI configuration of the time before a boot: the kubelet would start pods before the host is
// complete. At a mere restart it stays: the kubelet would report the node as not ready, and its pods would leave all
// Services.
func (e *engine) disableAfterBoot() error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(bootFile)
	if err == nil && string(text) == boot {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking for a boot: %w", err)
	}
	setup, _ := cnisetup.FindShim(e.session.Config) // enable reports a missing plugin
	edits, err := setup.Disable()
	if err == nil && len(edits) > 0 {
		e.log.Infof("%v, until the host is complete: it is from the time before a boot", edits[0])
	}
	if err != nil {
		return err
	}
	return files.Apply(edits)
}

// runtimes are the host's container runtimes, from a pass.
type runtimes struct{ *pass }

// enable gives container runtimes the plugin and, last, its configuration, once the CNI server is ready.
func (p runtimes) enable(in input) error {
	switch {
	case p.Server == nil:
		return nil
	case in.unserved != nil:
		return *in.unserved
	case !in.serving && p.found == nil:
		return waiting("the CNI server is not ready")
	case !in.serving:
		p.warn("nothing serves CNI requests of this host: start ovnkube")
	}
	setup, err := cnisetup.FindShim(p.session.Config)
	if p.enabled {
		if p.enabled, _ = setup.Configured(); p.enabled {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("%w: install ovn-k8s-cni-shim into a directory of PATH", err)
	}
	edits, warnings, err := setup.Configure()
	for _, w := range warnings {
		p.warn(w)
	}
	if err != nil {
		return err
	}
	boot, err := bootID()
	if err != nil {
		return err
	}
	marked, err := files.Pending([]files.Edit{{Path: bootFile, Text: boot}})
	if err != nil {
		return err
	}
	edits = append(marked, edits...) // a boot is noticed whenever the configuration is there
	err = p.apply(files.Describe(edits), func() error {
		if err := files.Sweep(p.session.Config.CNIConfDir, p.session.Config.CNIBinDir, filepath.Dir(bootFile)); err != nil {
			return err
		}
		return files.Apply(edits)
	})
	p.enabled = err == nil
	return err
}

// removeFormer removes the CNI files of former settings. A former plugin stays while pods are plugged in: CRI-O removes a pod
// by the configuration with which it was added.
func (p runtimes) removeFormer(ctx context.Context, h *overlayhost.Host) error {
	if p.Server == nil {
		return nil
	}
	setup, _ := cnisetup.FindShim(p.session.Config) // good for removal without a plugin, too
	edits, programs, err := setup.Former(p.sw.ExternalIDs())
	if len(programs) > 0 { // else the database is not asked
		plugged, unread := overlaynode.Plugged(ctx, h)
		if err = unread; len(plugged) == 0 {
			edits = append(edits, programs...)
		}
	}
	if err != nil {
		return err
	}
	return p.apply(files.Describe(edits), func() error {
		defer p.touch() // the next pass leaves them out of the record
		return files.Apply(edits)
	})
}
