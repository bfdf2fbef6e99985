package boot

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"ovn-k8s/test/build"
)

//go:embed package.sh
var packageScript string

// Packages are the Debian packages available to a Machine even if this machine lacks
// them: the network managers, and udev, which netplan runs.
var Packages = []string{"ifupdown", "network-manager", "netplan.io", "udev", "isc-dhcp-client"}

// successors are packages of the same use, for releases without the former one.
var successors = map[string]string{"isc-dhcp-client": "dhcpcd-base"}

// errNoCandidate is the error of a package that this release of Debian lacks, as unstable lacks isc-dhcp-client.
var errNoCandidate = errors.New("not in this release")

// Prepare downloads the packages reported by Missing, but for those that this release lacks: the tests that install
// them fail. It needs root.
func Prepare(ctx context.Context, say func(line string)) error { return Fetch(ctx, say, Packages...) }

// Fetch downloads packages that were not downloaded yet, or their successors, but for those that this release lacks.
func Fetch(ctx context.Context, say func(line string), names ...string) error {
	for _, p := range names {
		if _, err := os.Stat(archive(p)); err == nil {
			continue
		}
		say("fetching package " + p + " for machines that boot")
		err := fetch(ctx, p, p)
		if next := successors[p]; next != "" && errors.Is(err, errNoCandidate) {
			err = fetch(ctx, p, next)
		}
		if errors.Is(err, errNoCandidate) {
			say(fmt.Sprintf("package %s: %v", p, err))
			continue
		}
		if err != nil {
			return fmt.Errorf("fetching package %s: %w", p, err)
		}
	}
	return nil
}

// fetch creates the archive named after a package, with this one or another.
func fetch(ctx context.Context, name, pkg string) error {
	f, err := os.CreateTemp(filepath.Dir(archive(name)), "package")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // nothing once it is renamed
	defer f.Close()
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", packageScript, "sh", pkg)
	cmd.Stdout = f
	said := &strings.Builder{}
	cmd.Stderr = said
	if err := cmd.Run(); err != nil {
		if strings.Contains(said.String(), "has no installation candidate") {
			return errNoCandidate
		}
		return fmt.Errorf("%w: %s", err, said)
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), archive(name))
}

// archive returns the path of the file of a package, for this version of Debian.
func archive(name string) string {
	dir, err := build.Dir()
	if err != nil {
		return ""
	}
	version, _ := os.ReadFile("/etc/debian_version")
	return filepath.Join(dir, fmt.Sprintf("%s-%s.tar", name, strings.TrimSpace(strings.ReplaceAll(string(version), "/", "-"))))
}
