// Package programs builds the programs to measure, and reads the costs of running ones.
package programs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"ovn-k8s/test/world"
)

// ModulePath is the path of this module.
const ModulePath = "ovn-k8s"

// The reference plugins are built in their published version, with their own dependencies.
const (
	referenceModule = "github.com/containernetworking/plugins"
	// ReferenceVersion is that version.
	ReferenceVersion = "v1.9.0"
)

// Programs are the measured programs.
type Programs struct {
	Dir string // of their own
}

// All are the directories of the measured programs, and of the measuring ones.
func All() []string {
	return slices.Concat(world.Programs(), world.OVNKube(), []string{"test/cniserver", "test/bench/minimal"})
}

// Build builds the measured programs from the source, and takes those of another build from the directory beside, unless it
// is empty. The caller must Close them. All are copies: pages of a file just written by the linker count for 6 MB more in
// VmRSS than those of a copy.
func Build(ctx context.Context, beside string) (*Programs, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	p := &Programs{dir}
	if err := p.fill(ctx, beside); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Programs) fill(ctx context.Context, beside string) error {
	linked, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(linked)
	args := []string{"build", "-trimpath", "-o", linked + "/"}
	for _, o := range All() {
		args = append(args, ModulePath+"/"+o)
	}
	if err := p.gotool(ctx, args...); err != nil {
		return err
	}
	if beside != "" {
		if err := os.CopyFS(p.Beside(), os.DirFS(beside)); err != nil {
			return fmt.Errorf("copying the programs of -beside: %w", err)
		}
	}
	return os.CopyFS(p.Dir, os.DirFS(linked))
}

// Beside is the directory of the other build.
func (p *Programs) Beside() string { return filepath.Join(p.Dir, "beside") }

// BuildReference builds the reference plugins.
func (p *Programs) BuildReference(ctx context.Context) error {
	var args []string
	for _, plugin := range []string{"main/ptp", "ipam/host-local"} {
		args = append(args, referenceModule+"/plugins/"+plugin+"@"+ReferenceVersion)
	}
	return p.gotool(ctx, append([]string{"install", "-trimpath"}, args...)...)
}

func (p *Programs) gotool(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+p.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w: %s", args[0], err, out)
	}
	return nil
}

// Close removes them.
func (p *Programs) Close() { _ = os.RemoveAll(p.Dir) }

// Path is the file of a program.
func (p *Programs) Path(name string) string { return filepath.Join(p.Dir, name) }

// A Process is a running program: its number in /proc.
type Process int

// Find returns the one matching process.
func Find(what string, match func(exe string, args []string) bool) (Process, error) {
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
			return Process(pid), nil
		}
	}
	return 0, fmt.Errorf("there is no process of %s", what)
}

// CPU is the CPU time used by a process.
func (p Process) CPU() (time.Duration, error) {
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

// RSS is the resident memory of a process, in MB.
func (p Process) RSS() (float64, error) {
	now, _, err := Memory(fmt.Sprintf("/proc/%d/status", p))
	return now, err
}

// Peak is the largest resident memory of a process so far, in MB.
func (p Process) Peak() (float64, error) {
	_, peak, err := Memory(fmt.Sprintf("/proc/%d/status", p))
	return peak, err
}

// memoryLine are lines of /proc/PID/status.
var memoryLine = regexp.MustCompile(`(?m)^Vm(RSS|HWM):\s+(\d+) kB$`)

// Memory returns the present and the largest resident memory in MB: VmRSS and VmHWM of a file /proc/PID/status (proc(5)).
func Memory(file string) (now, peak float64, err error) {
	status, err := os.ReadFile(file)
	if err != nil {
		return 0, 0, err
	}
	size := map[string]float64{}
	for _, m := range memoryLine.FindAllStringSubmatch(string(status), -1) {
		kb, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return 0, 0, err
		}
		size[m[1]] = kb / 1024
	}
	if len(size) < 2 {
		return 0, 0, fmt.Errorf("%s has no VmRSS and VmHWM", file)
	}
	return size["RSS"], size["HWM"], nil
}
