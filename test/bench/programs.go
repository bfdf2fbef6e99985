package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"ovn-k8s/test/world"
)

// modulePath is the path of this module.
const modulePath = "ovn-k8s"

// The reference plugins are built in their published version, with their own dependencies.
const (
	referenceModule  = "github.com/containernetworking/plugins"
	referenceVersion = "v1.9.0"
)

// programs are the measured programs, in a directory of their own.
type programs struct{ dir string }

// build builds the measured programs from the source, and takes those of another build from the directory beside, unless it
// is empty. All are copies: pages of a file just written by the linker count for 6 MB more in VmRSS than those of a copy.
func build(ctx context.Context, beside string, say sayer) (*programs, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	p := &programs{dir}
	say("building the programs")
	if err := p.fill(ctx, beside); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *programs) fill(ctx context.Context, beside string) error {
	linked, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(linked)
	args := []string{"build", "-trimpath", "-o", linked + "/"}
	for _, o := range append(world.Programs(), "test/bench/minimal") {
		args = append(args, modulePath+"/"+o)
	}
	if err := p.gotool(ctx, args...); err != nil {
		return err
	}
	if beside != "" {
		if err := os.CopyFS(p.beside(), os.DirFS(beside)); err != nil {
			return fmt.Errorf("copying the programs of -beside: %w", err)
		}
	}
	return os.CopyFS(p.dir, os.DirFS(linked))
}

// beside is the directory of the other build.
func (p *programs) beside() string { return filepath.Join(p.dir, "beside") }

// buildReference builds the reference plugins.
func (p *programs) buildReference(ctx context.Context) error {
	var args []string
	for _, plugin := range []string{"main/ptp", "ipam/host-local"} {
		args = append(args, referenceModule+"/plugins/"+plugin+"@"+referenceVersion)
	}
	return p.gotool(ctx, append([]string{"install", "-trimpath"}, args...)...)
}

func (p *programs) gotool(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+p.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w: %s", args[0], err, out)
	}
	return nil
}

func (p *programs) close() { _ = os.RemoveAll(p.dir) }

// path is the file of a program.
func (p *programs) path(name string) string { return filepath.Join(p.dir, name) }

// A process is a running program: its number in /proc.
type process int

// find returns the one matching process.
func find(what string, match func(exe string, args []string) bool) (process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if err != nil {
			continue // a kernel's thread, or gone
		}
		text, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if match(exe, strings.Split(string(text), "\x00")) {
			return process(pid), nil
		}
	}
	return 0, fmt.Errorf("there is no process of %s", what)
}

// cpu is the CPU time used by a process.
func (p process) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
	if err != nil {
		return 0, err
	}
	// proc_pid_stat(5): the command may hold spaces; utime and stime are the
	// 12th and 13th fields after it, in ticks of 10 ms
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("reading /proc/%d/stat: %q", p, text)
	}
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, err
}

// rss is the resident memory of a process, in MB (VmRSS of proc(5)).
func (p process) rss() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(l, "VmRSS:"); ok {
			var kb float64
			_, err := fmt.Sscan(v, &kb)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", p)
}
