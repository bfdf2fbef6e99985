package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// kernelPackage depends on the current package of a kernel for virtual machines. It
// has all modules: openvswitch, geneve, sctp, 8021q, bonding, virtiofs.
const kernelPackage = "linux-image-cloud-amd64"

// early are the modules for reaching the root file system.
var early = []string{"virtio_pci", "virtiofs", "overlay", "virtio_rng", "virtio_console"}

// prepare provides the machine's kernel, and its first process.
func (p place) prepare(ctx context.Context, say sayer) error {
	self, err := p.installSelf(ctx)
	if err != nil {
		return err
	}
	if p.userMode {
		return p.buildUserMode(ctx, say)
	}
	return p.fetchKernel(ctx, self, say)
}

// fetchKernel unpacks a kernel without installing it, Debian's unless told, and makes
// the initial file system.
func (p place) fetchKernel(ctx context.Context, self string, say sayer) error {
	if _, err := os.Stat(p.path("root")); err != nil {
		deb := p.kernel
		if deb == "" {
			say("downloading %s", kernelPackage)
			if deb, err = p.downloadKernel(ctx, p.path("download")); err != nil {
				return fmt.Errorf("fetching a kernel: %w", err)
			}
			defer os.RemoveAll(filepath.Dir(deb))
		}
		if err := p.unpackKernel(ctx, deb); err != nil {
			return fmt.Errorf("unpacking a kernel: %w", err)
		}
	}
	release, err := releaseIn(p.path("root"))
	if err != nil {
		return err
	}
	if err := p.initramfs(ctx, release, self); err != nil {
		return fmt.Errorf("making the initial file system: %w", err)
	}
	say("kernel %s", release)
	return nil
}

// releaseIn is the release of an unpacked kernel, such as "6.1.0-40-cloud-amd64".
func releaseIn(root string) (string, error) {
	found, err := filepath.Glob(filepath.Join(root, "lib", "modules", "*", "kernel"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("no kernel with modules in %s", root)
	}
	return filepath.Base(filepath.Dir(found[0])), nil
}

var dependsLine = regexp.MustCompile(`(?m)^ *Depends: (linux-(?:image|source)-\S+)`)

// current returns the package of Linux that another one depends on, from the output of "apt-cache depends".
func current(depends string) (string, bool) {
	found := dependsLine.FindStringSubmatch(depends)
	if found == nil {
		return "", false
	}
	return found[1], true
}

// downloadKernel downloads the current package of kernelPackage into dir.
func (p place) downloadKernel(ctx context.Context, dir string) (string, error) {
	depends, err := output(ctx, p.work, "apt-cache", "depends", kernelPackage)
	name, ok := current(depends)
	if err != nil || !ok {
		return "", fmt.Errorf("there is no package %s (apt-get update)", kernelPackage)
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if _, err := output(ctx, dir, "apt-get", "-q", "download", name); err != nil {
		return "", err
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return "", fmt.Errorf("downloading %s: %d files", name, len(debs))
	}
	return debs[0], nil
}

// unpackKernel unpacks a package of a kernel.
func (p place) unpackKernel(ctx context.Context, deb string) error {
	root := p.path("unpacked")
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	if _, err := output(ctx, p.work, "dpkg-deb", "-x", deb, root); err != nil {
		return err
	}
	// From Debian 13 on, /lib is a link of another package.
	if err := os.Symlink("usr/lib", filepath.Join(root, "lib")); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	release, err := releaseIn(root)
	if err != nil {
		return err
	}
	if _, err = output(ctx, p.work, "depmod", "-b", root, release); err != nil {
		return err
	}
	return os.Rename(root, p.path("root"))
}

// installSelf builds this program to where the machine finds it, under all its names.
// It is static, unlike that of "go run" perhaps.
func (p place) installSelf(ctx context.Context) (string, error) {
	to := p.path("kernel")
	if err := p.gotool(ctx, "build", "-trimpath", "-o", to, "./test/kernel"); err != nil {
		return "", err
	}
	for _, name := range []string{filepath.Join("path", "go"), filepath.Join("bin", "kcluster")} {
		if err := os.MkdirAll(filepath.Dir(p.path(name)), 0o755); err != nil {
			return "", err
		}
		_ = os.Remove(p.path(name))
		if err := os.Symlink(to, p.path(name)); err != nil {
			return "", err
		}
	}
	return to, nil
}

// replace writes a new file: programs that run keep the old one.
func replace(path string, text []byte, mode os.FileMode) error {
	_ = os.Remove(path)
	return os.WriteFile(path, text, mode)
}

// initramfs writes the initial file system: this program, and the early modules in
// the order of their dependencies.
func (p place) initramfs(ctx context.Context, release, self string) error {
	var a archive
	var order []string
	for _, module := range early {
		lines, err := output(ctx, p.work, "modprobe", "-d", p.path("root"), "-S", release, "--show-depends", module)
		if err != nil {
			return err
		}
		for line := range strings.Lines(lines) {
			f := strings.Fields(line)
			if len(f) < 2 || f[0] != "insmod" { // built in
				continue
			}
			name := filepath.Base(f[1])
			if strings.Contains("\n"+strings.Join(order, "\n")+"\n", "\n"+name+"\n") {
				continue
			}
			order = append(order, name)
			if err := a.copy(f[1], name); err != nil {
				return err
			}
		}
	}
	a.add(orderFile, 0o100644, []byte(strings.Join(order, "\n")))
	if err := a.copy(self, "init"); err != nil {
		return err
	}
	return replace(p.path("initramfs"), a.end(), 0o644)
}

// An archive is a cpio archive of the format "newc", for the kernel
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	bytes.Buffer
	files int
}

func (a *archive) copy(from, name string) error {
	text, err := os.ReadFile(from)
	if err == nil {
		a.add(name, 0o100755, text)
	}
	return err
}

// add adds a file. mode includes the file's type.
func (a *archive) add(name string, mode int, text []byte) {
	a.files++
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.files, mode, 0, 0, 1, 0, len(text), 0, 0, 0, 0, len(name)+1, 0, name)
	a.pad()
	a.Write(text)
	a.pad()
}

func (a *archive) pad() { a.Write(make([]byte, (4-a.Len()%4)%4)) }

func (a *archive) end() []byte {
	a.add("TRAILER!!!", 0, nil)
	return a.Bytes()
}

// output runs a program in a directory and returns its standard output.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("running %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}
