// Rootfs runs a command in the root file system of another release of Debian, such
// as "trixie" or "sid", to test with its versions of OVN and Open vSwitch:
//
//	go run ./test/rootfs trixie make test
//
// The first run makes the root file system from packages, with debootstrap and the
// package source of this machine, in the user's cache directory; see build.Roots. To get newer
// packages, remove it. The command runs in the working directory, with this machine's
// Go and its caches, network, devices and environment, and with process IDs of its own:
// everything it started ends with it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"ovn-k8s/test/build"
)

// inside is the environment variable with the root file system's directory. If it is
// set, this program is the first process of new namespaces.
const inside = "OVNK8S_TEST_ROOTFS_INSIDE"

func main() {
	status, err := 0, error(nil)
	if root := os.Getenv(inside); root != "" {
		status, err = enter(root, os.Args[1:])
	} else {
		status, err = run(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "rootfs: %v\n", err)
		os.Exit(1)
	}
	os.Exit(status)
}

// run runs a command in a release and returns its exit status.
func run(args []string) (int, error) {
	if len(args) < 2 {
		return 0, fmt.Errorf("a release and a command are needed, such as trixie make test")
	}
	if os.Geteuid() != 0 {
		return 0, fmt.Errorf("mounts need root: run it as root, or with sudo -E env PATH=\"$PATH\"")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := bootstrap(ctx, args[0])
	if err != nil {
		return 0, fmt.Errorf("making the root file system of %s: %w", args[0], err)
	}
	binds, err := shared(ctx)
	if err != nil {
		return 0, err
	}
	runtime.LockOSThread() // Pdeathsig concerns the thread
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args[1:]...)
	cmd.Env = append(environment(), inside+"="+root, bindsKey+"="+strings.Join(binds, ":"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() < 0 {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

// shared lists the directories of this machine that the command sees: Go with its
// caches, the source with its git directory, and the directory of test programs.
func shared(ctx context.Context) ([]string, error) {
	source, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOMODCACHE", "GOCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("asking go for its directories: %w", err)
	}
	bin, err := build.Dir()
	if err != nil {
		return nil, err
	}
	all := append(strings.Fields(string(out)), source, bin)
	git, err := exec.CommandContext(ctx, "git", "rev-parse", "--path-format=absolute", "--git-common-dir").Output()
	if dir := strings.TrimSpace(string(git)); err == nil && !strings.HasPrefix(dir, source) {
		all = append(all, dir)
	}
	for _, dir := range all {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// environment is this process's environment, without variables that name
// directories of this machine.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"PATH", "TMPDIR", "GOTMPDIR", "XDG_RUNTIME_DIR"}, name)
	})
}
