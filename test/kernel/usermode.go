package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"

	"ovn-k8s/test/debian"
)

// A user mode Linux is a kernel that runs as a program
// (Documentation/virt/uml/user_mode_linux_howto_v2.rst). Debian's package has no
// nf_tables of IPv4, and one CPU; so one is built, of a release with seccomp mode
// (6.16) and several CPUs (7.0).
const (
	sourceRelease = "trixie-backports"
	sourcePackage = "linux-source"
	keyring       = "/usr/share/keyrings/debian-archive-keyring.gpg"
)

// near and far are the ends of the link to a user mode Linux; near has the address outside. The kernel's driver for TAP devices
// fails with several CPUs (vector_reset_stats in 7.2).
const near, far = "ovnk8s-uml", "ovnk8s-uml-far"

//go:embed usermode.config
var userModeConfig []byte

// buildUserMode builds the kernel, unless there is one of this configuration.
func (p place) buildUserMode(ctx context.Context, say sayer) error {
	built, _ := os.ReadFile(p.path("linux.config"))
	if slices.Equal(built, userModeConfig) {
		return nil
	}
	dir := p.path("build")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	say("downloading %s of %s", sourcePackage, sourceRelease)
	source, err := fetchSource(ctx, dir)
	if err != nil {
		return fmt.Errorf("fetching the kernel's source: %w", err)
	}
	say("building %s: ten minutes on two CPUs", filepath.Base(source))
	if err := p.compile(ctx, source); err != nil {
		return fmt.Errorf("building the kernel: %w", err)
	}
	return replace(p.path("linux.config"), userModeConfig, 0o644)
}

// fetchSource downloads the kernel's source and unpacks it below dir. It does not
// change this machine's lists of packages.
func fetchSource(ctx context.Context, dir string) (string, error) {
	lists, list := filepath.Join(dir, "lists"), filepath.Join(dir, "sources.list")
	if err := os.MkdirAll(filepath.Join(lists, "partial"), 0o755); err != nil {
		return "", err
	}
	line := fmt.Sprintf("deb [signed-by=%s] %s %s main\n", keyring, debian.Source(ctx), sourceRelease)
	if err := os.WriteFile(list, []byte(line), 0o644); err != nil {
		return "", err
	}
	apt := func(program string, args ...string) (string, error) {
		return output(ctx, dir, program, append([]string{"-q", "-o", "Dir::Etc::sourcelist=" + list, "-o", "Dir::Etc::sourceparts=/dev/null",
			"-o", "Dir::State::lists=" + lists, "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="}, args...)...)
	}
	if _, err := apt("apt-get", "update"); err != nil {
		return "", err
	}
	depends, err := apt("apt-cache", "depends", sourcePackage)
	if err != nil {
		return "", err
	}
	name, ok := current(depends)
	if !ok {
		return "", fmt.Errorf("there is no package %s in %s", sourcePackage, sourceRelease)
	}
	if _, err := apt("apt-get", "download", name); err != nil {
		return "", err
	}
	_, err = output(ctx, dir, "sh", "-c", `dpkg-deb --fsys-tarfile "$1"_*.deb | tar x --wildcards './usr/src/*.tar.xz' && tar xf usr/src/"$1".tar.xz`, "sh", name)
	return filepath.Join(dir, name), err
}

// compile builds the kernel in its source.
func (p place) compile(ctx context.Context, source string) error {
	config := filepath.Join(filepath.Dir(source), "config")
	if err := os.WriteFile(config, userModeConfig, 0o644); err != nil {
		return err
	}
	for _, command := range [][]string{
		{"make", "ARCH=um", "defconfig"}, {"scripts/kconfig/merge_config.sh", "-m", ".config", config}, {"make", "ARCH=um", "olddefconfig"},
		{"nice", "make", "ARCH=um", fmt.Sprintf("-j%d", runtime.NumCPU()), "linux"}, {"strip", "-g", "-o", p.path("linux"), "linux"},
	} {
		if _, err := output(ctx, source, command[0], command[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// userModeCommand returns the command of a machine. Its standard output has the
// kernel's messages, too.
func (p place) userModeCommand(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nice", "-n", "5", p.path("linux"), fmt.Sprintf("mem=%dM", memory), fmt.Sprintf("ncpus=%d", p.cpus()), "seccomp=on",
		"root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "init="+p.path("kernel"), "con=null", "con0=null,fd:1",
		"vec0:transport=raw,ifname="+far+",depth=64,gro=1", "quiet", "panic=-1", "rcupdate.rcu_expedited=1",
		consoleVariable+"=/dev/tty0", workVariable+"="+p.work, sourceVariable+"="+p.source)
	// Its processes are processes outside.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Env = append(os.Environ(), "HOME="+p.work)
	return cmd
}

// addLink adds the link to a user mode Linux, instead of a former one.
func addLink() (remove func(), err error) {
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: near}, PeerName: far}
	remove = func() { _ = netlink.LinkDel(link) }
	remove()
	if err := netlink.LinkAdd(link); err != nil {
		return nil, fmt.Errorf("adding %s: %w", near, err)
	}
	address, err := netlink.ParseAddr(outside + "/24")
	if err == nil {
		err = netlink.AddrAdd(link, address)
	}
	for _, name := range []string{near, far} {
		if err == nil {
			err = netlink.LinkSetUp(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}})
		}
	}
	if err != nil {
		remove()
		return nil, fmt.Errorf("setting %s up: %w", near, err)
	}
	return remove, nil
}
