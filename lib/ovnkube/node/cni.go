package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ovn-k8s/lib/overlay/cnisetup"
	"ovn-k8s/lib/overlay/files"
)

// bootFile has the kernel's boot ID of the time when the CNI configuration was written. It is gone, or has another one,
// after a boot.
const bootFile = "/var/run/ovn-kubernetes/boot"

// confDirID is the key of external_ids with the directory of the CNI configuration. It is a setting, too. The role writes it
// before the configuration, so that a clean-up without the option finds the file.
const confDirID = "ovn-k8s-cni-conf-path"

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
	setup, _ := cnisetup.FindShim(e.session.Config) // enableCNI reports a missing plugin
	edits, err := setup.Disable()
	if err == nil && len(edits) > 0 {
		e.log.Infof("%v, until the host is complete: it is from the time before a boot", edits[0])
	}
	if err != nil {
		return err
	}
	return files.Apply(edits)
}

// enableCNI gives container runtimes the plugin and, last, its configuration, once the CNI server is ready.
func (p *pass) enableCNI(in input) error {
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
	var lines []string
	for _, edit := range edits {
		lines = append(lines, fmt.Sprint(edit))
	}
	err = p.apply(lines, func() error {
		if err := files.Sweep(p.session.Config.CNIConfDir, p.session.Config.CNIBinDir, filepath.Dir(bootFile)); err != nil {
			return err
		}
		return files.Apply(edits)
	})
	p.enabled = err == nil
	return err
}
