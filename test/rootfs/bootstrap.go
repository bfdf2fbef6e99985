package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"ovn-k8s/test/build"
	"ovn-k8s/test/debian"
)

// releasePattern matches names of Debian's releases.
var releasePattern = regexp.MustCompile(`^[a-z]+$`)

// bootstrap returns the root file system of a release. If it is missing, it is made.
// test/prepare adds the packages of tests.
func bootstrap(ctx context.Context, release string) (string, error) {
	if !releasePattern.MatchString(release) {
		return "", fmt.Errorf("%q is not a release of Debian, such as trixie", release)
	}
	dir, err := build.Roots()
	if err != nil {
		return "", err
	}
	unlock, err := build.Lock(filepath.Join(dir, release+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	root := filepath.Join(dir, release)
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	unfinished := root + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return "", err
	}
	if err := installDebootstrap(ctx); err != nil {
		return "", err
	}
	source := debian.Source(ctx)
	fmt.Printf("making the root file system of %s from %s in %s\n", release, source, root)
	cmd := exec.CommandContext(ctx, "debootstrap", "--variant=minbase", "--include=ca-certificates,git,make", release, unfinished, source)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, said.String())
	}
	if err := configure(unfinished); err != nil {
		return "", err
	}
	return root, os.Rename(unfinished, root)
}

// configure configures the package management of a root file system: packages do not
// start their daemons, and a mirror of unstable may lag behind for 90 days (apt.conf(5)).
func configure(root string) error {
	if err := os.WriteFile(filepath.Join(root, "usr/sbin/policy-rc.d"), []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "etc/apt/apt.conf.d/90lag"), []byte("Acquire::Min-ValidTime \"7776000\";\n"), 0o644)
}

// installDebootstrap installs debootstrap if it is missing.
func installDebootstrap(ctx context.Context) error {
	if _, err := exec.LookPath("debootstrap"); err == nil {
		return nil
	}
	for _, args := range [][]string{{"-q", "update"}, {"install", "-y", "--no-install-recommends", "debootstrap", "debian-archive-keyring"}} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("installing debootstrap: %w: %s", err, out)
		}
	}
	return nil
}
