package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The kernel passes unknown parameters of its command line to its first process, in
// the environment.
const (
	workVariable   = "OVNK8S_KERNEL_WORK"
	sourceVariable = "OVNK8S_KERNEL_SOURCE"
	// enteredVariable is set in the root file system, see enter.
	enteredVariable = "OVNK8S_KERNEL_ENTERED"
	// consoleVariable names the device of the job's output.
	consoleVariable = "OVNK8S_KERNEL_CONSOLE"
)

const (
	orderFile   = "order" // modules of the initial file system, one a line
	jobsCommand = "jobs"
	endMark     = "@@ the job ended: "
)

//go:embed guest.sh
var guestScript string

func guestPlace() (place, error) {
	p := place{source: os.Getenv(sourceVariable), work: os.Getenv(workVariable)}
	if p.source == "" || p.work == "" {
		return p, errors.New("not in the virtual machine")
	}
	return p, nil
}

// boot is the first process of the machine: in the initial file system, or in this
// machine's seen by a user mode Linux, it makes the root file system and runs itself
// again; there it runs the job, and turns the machine off.
func boot() error {
	p, err := guestPlace()
	if err == nil {
		_, gone := os.Stat("/" + orderFile)
		switch {
		case gone == nil:
			if err = insertModules(); err == nil {
				err = p.enter("/", virtioFS)
			}
		case os.Getenv(enteredVariable) == "":
			err = p.enter("/mnt", hostFS)
		default:
			err = runAsInit(p.path("kernel"), jobsCommand)
		}
	}
	fmt.Fprintln(os.Stderr, "test-kernel:", err)
	unix.Sync()
	return errors.Join(err, unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}

// A mountPoint is an argument of mount(2).
type mountPoint struct{ source, target, kind, data string }

func (m mountPoint) mount(flags uintptr) error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.kind, flags, m.data); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", m.source, m.target, err)
	}
	return nil
}

// virtioFS and hostFS mount a directory of this machine, shared by QEMU with a tag, or seen by a user mode Linux.
func virtioFS(tag, _, target string) mountPoint { return mountPoint{tag, target, "virtiofs", ""} }
func hostFS(_, dir, target string) mountPoint   { return mountPoint{"none", target, "hostfs", dir} }

// enter mounts the outer root file system, read-only, with a tmpfs above it, and the
// shared directories, in a directory, and executes this program there.
func (p place) enter(at string, shared func(tag, dir, target string) mountPoint) error {
	upper, lower, root := filepath.Join(at, "upper"), filepath.Join(at, "lower"), filepath.Join(at, "new")
	before := mountPoint{"dev", "/dev", "devtmpfs", ""}
	if at != "/" { // the kernel has mounted devtmpfs (CONFIG_DEVTMPFS_MOUNT)
		before = mountPoint{"at", at, "tmpfs", ""}
	}
	for _, m := range []mountPoint{before, {"upper", upper, "tmpfs", "size=80%"}} {
		if err := m.mount(0); err != nil {
			return err
		}
	}
	if err := shared("root", "/", lower).mount(unix.MS_RDONLY); err != nil {
		return err
	}
	for _, dir := range []string{"u", "w"} {
		if err := os.Mkdir(filepath.Join(upper, dir), 0o755); err != nil {
			return err
		}
	}
	layers := fmt.Sprintf("lowerdir=%s,upperdir=%s/u,workdir=%s/w", lower, upper, upper)
	for _, m := range []mountPoint{
		{"overlay", root, "overlay", layers}, shared("work", p.work, root+p.work), shared("source", p.source, root+p.source),
		shared(kubeShare, p.path(kubeShare), root+p.path(kubeShare)),
	} {
		if err := m.mount(0); err != nil {
			return err
		}
	}
	return p.changeRoot(root)
}

// changeRoot makes a directory the root file system, and executes this program there.
func (p place) changeRoot(root string) error {
	for _, move := range [][2]string{{"/dev", root + "/dev"}, {root, "/"}} {
		if err := os.Chdir(move[0]); err != nil {
			return err
		}
		if err := unix.Mount(move[0], move[1], "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("moving %s: %w", move[0], err)
		}
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return unix.Exec(p.path("kernel"), []string{"kernel"}, append(os.Environ(), enteredVariable+"=1"))
}

func insertModules() error {
	order, err := os.ReadFile("/" + orderFile)
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(order)) {
		f, err := os.Open("/" + name)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("inserting %s: %w", name, err)
		}
	}
	return nil
}

// runAsInit runs a program and reaps orphans until it ends.
func runAsInit(name string, args ...string) error {
	out, err := os.OpenFile(os.Getenv(consoleVariable), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	child, err := os.StartProcess(name, append([]string{"kernel"}, args...), &os.ProcAttr{
		Env: os.Environ(), Dir: "/", Files: []*os.File{out, out, out},
	})
	if err != nil {
		return err
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if pid == child.Pid || err == unix.ECHILD {
			return nil
		}
	}
}

// runJobs sets the machine up and runs its job.
func runJobs() error {
	p, err := guestPlace()
	if err != nil {
		return err
	}
	setup := exec.Command("/bin/sh", "-c", guestScript, "sh", p.path("root", "lib", "modules"))
	setup.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	setup.Stdout, setup.Stderr = os.Stdout, os.Stdout
	if err := setup.Run(); err != nil {
		return fmt.Errorf("setting up the virtual machine: %w", err)
	}
	text, err := os.ReadFile(p.path("job"))
	if err != nil {
		return err
	}
	var job Job
	if err := json.Unmarshal(text, &job); err != nil {
		return err
	}
	status := job.run(p)
	fmt.Println(endMark + status)
	return nil
}

// run runs the job and describes its end.
func (j Job) run(p place) string {
	ctx, cancel := context.WithTimeout(context.Background(), j.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, j.Args[0], j.Args[1:]...)
	cmd.Dir = j.Dir
	cmd.Env = append(j.Env, workVariable+"="+p.work, sourceVariable+"="+p.source)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	switch err := cmd.Run(); {
	case ctx.Err() != nil:
		return "after its time limit"
	case err != nil:
		return filepath.Base(j.Args[0]) + ": " + err.Error()
	}
	return okEnd
}
