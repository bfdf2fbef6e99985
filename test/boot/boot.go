// Package boot creates machines for tests of booting: Debian with systemd as its first
// process, in namespaces over an overlay of this machine's root file system. Units,
// the journal and systemctl are real. Files on the disk survive a reboot and a power
// cut; links, sysctls, processes, /run and /tmp do not.
//
// A Machine is off at first: put programs, files and enabled units on its disk, then
// Boot it. Hardware is missing, so udev and logind are masked. Open vSwitch has the
// datapath of package host.
//
// Everything ends with the program that created it, as in package host.
package boot

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"ovn-k8s/test/host"
)

//go:embed keeper.sh
var keeperScript string

//go:embed setup.sh
var setupScript string

//go:embed outer.sh
var outerScript string

//go:embed boot.sh
var bootScript string

// systemd is the program of the machine's first process.
const systemd = "/lib/systemd/systemd"

// pollInterval is the interval between two checks of a condition.
const pollInterval = 50 * time.Millisecond

// Options are the parameters of a Machine.
type Options struct {
	// Name is the machine's name.
	Name string
	// Fabric connects it by eth0, without an address yet: see Machine.Port. Without it,
	// a machine has only a loopback interface.
	Fabric *host.Fabric
	// SecondNIC adds an eth1 in a network of its own: see Machine.Second.
	SecondNIC bool
	// Packages are Debian packages on the machine, with their dependencies, even if
	// this machine lacks them. Each is one of Packages, or was fetched by Fetch.
	Packages []string
	// Programs are copied to /usr/local/bin.
	Programs []string
}

// A Machine is a disk, NICs, and, while it is on, systemd with all its processes.
type Machine struct {
	Name string
	// Port is the fabric's port of eth0, with the addresses for eth0.
	Port *host.Port
	// Second is the port of eth1, nil without Options.SecondNIC.
	Second *host.Port

	keeper  *process
	cgroup  string
	mu      sync.Mutex
	running *process // nil while the machine is off
}

// Missing names the requirements of New and Boot that this machine lacks, or is "".
func Missing() string {
	if why := host.Missing(); why != "" {
		return why
	}
	for _, tool := range []string{systemd, "systemctl", "dbus-daemon", "tar", "pivot_root"} {
		if _, err := exec.LookPath(tool); err != nil {
			return tool
		}
	}
	return MissingPackages(Packages...)
}

// MissingPackages names one of some packages for a Machine that was not fetched, or is "".
func MissingPackages(names ...string) string {
	for _, p := range names {
		if _, err := os.Stat(archive(p)); err != nil {
			return fmt.Sprintf("package %s for machines: run make prepare, or make test-firewalls", p)
		}
	}
	return ""
}

// New returns a machine that is off. The caller must Close it.
func New(o Options) (*Machine, error) {
	m := &Machine{Name: o.Name, cgroup: "ovn-k8s-boot-" + rand.Text()}
	args := []string{"--mount", "sh", "-c", keeperScript, "sh", m.cgroup}
	for _, p := range o.Packages {
		args = append(args, archive(p))
	}
	var err error
	if m.keeper, err = start(exec.Command("unshare", args...)); err != nil {
		return nil, fmt.Errorf("making machine %s: %w", o.Name, err)
	}
	if o.Fabric != nil {
		m.Port = o.Fabric.NewPort()
		if o.SecondNIC {
			m.Second = o.Fabric.NewSecondPort()
		}
	}
	if err := m.setUp(o.Programs); err != nil {
		m.Close()
		return nil, fmt.Errorf("making machine %s: %w", o.Name, err)
	}
	return m, nil
}

// setUp prepares the disk.
func (m *Machine) setUp(programs []string) error {
	if out, err := exec.Command("sh", "-c", setupScript, "sh", m.disk(""), m.Name, host.Datapath()).CombinedOutput(); err != nil {
		return fmt.Errorf("preparing the disk: %w: %s", err, out)
	}
	for _, p := range programs {
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if err := os.WriteFile(m.disk("/usr/local/bin/"+filepath.Base(p)), text, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the machine and removes its disk.
func (m *Machine) Close() {
	m.PowerOff()
	m.keeper.close()
}

// disk returns the path of a file of the disk from outside, whether the machine is
// on or off.
func (m *Machine) disk(inside string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root/run/root", m.keeper.pid), inside)
}

// Enable makes systemd start units at each boot from the next one on.
func (m *Machine) Enable(units ...string) error {
	return m.systemctl("enable", units)
}

func (m *Machine) systemctl(verb string, units []string) error {
	args := append([]string{"--root=" + m.disk(""), verb}, units...)
	if out, err := exec.Command("systemctl", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl %s %s: %w: %s", verb, strings.Join(units, " "), err, out)
	}
	return nil
}

// Write writes a file of the disk, and creates its directory if it is missing.
func (m *Machine) Write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(m.disk(path)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(m.disk(path), []byte(text), 0o644)
}

// Boot switches the machine on and returns when systemd answers. Units may still be
// starting: see Settle.
func (m *Machine) Boot(ctx context.Context) error {
	if m.PID() != 0 {
		return fmt.Errorf("machine %s is on", m.Name)
	}
	if err := m.powerOn(); err != nil {
		return fmt.Errorf("booting machine %s: %w", m.Name, err)
	}
	return m.await(ctx, func() error {
		r, err := m.Try("systemctl is-system-running")
		if state := strings.TrimSpace(r.Out); err == nil && (state == "" || state == "offline" || state == "unknown") {
			err = fmt.Errorf("systemd does not answer: %s", r.Err)
		}
		return err
	})
}

// powerOn starts the first process, plugs in the NICs, and lets it become systemd.
func (m *Machine) powerOn() error {
	p, err := start(exec.Command("nsenter", "--target", strconv.Itoa(m.keeper.pid), "--mount", "--",
		"unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child",
		"sh", "-c", outerScript, "sh", m.cgroup, "sh", "-c", bootScript, "sh", m.Name))
	if err != nil {
		return err
	}
	if m.Port != nil {
		err = m.Port.Plug(p.pid, "eth0")
	}
	if err == nil && m.Second != nil {
		err = m.Second.Plug(p.pid, "eth1")
	}
	if err == nil {
		_, err = io.WriteString(p.stdin, "plugged\n")
	}
	if err == nil {
		err = p.becomes("systemd")
	}
	if err != nil {
		p.kill()
		return err
	}
	m.mu.Lock()
	m.running = p
	m.mu.Unlock()
	return nil
}

// Settle waits until no unit is starting any more, whether they succeeded or not. A
// unit that waits for something counts as starting.
func (m *Machine) Settle(ctx context.Context) error {
	_, _, err := host.RunCommand(ctx, m.Command("systemctl", "is-system-running", "--wait"))
	if ctx.Err() == nil {
		return nil // status 1: a unit has failed
	}
	jobs, _ := m.Try("systemctl list-jobs --no-pager; systemctl --failed --no-pager")
	return errors.Join(err, errors.New(jobs.Out))
}

// PowerOff cuts the power: every process ends at once, and writes nothing more. A
// machine that is off stays off.
func (m *Machine) PowerOff() {
	m.mu.Lock()
	p := m.running
	m.running = nil
	m.mu.Unlock()
	if p == nil {
		return
	}
	p.kill()
	for _, port := range []*host.Port{m.Port, m.Second} {
		if port != nil {
			port.Unplug()
		}
	}
}

// ShutDown makes systemd stop all units. The machine is off then.
func (m *Machine) ShutDown(ctx context.Context) error {
	if _, err := m.Script(ctx, "systemctl reboot"); err != nil {
		return err
	}
	m.mu.Lock()
	p := m.running
	m.mu.Unlock()
	select {
	case <-p.ended:
	case <-ctx.Done():
		return fmt.Errorf("machine %s does not go down: %w", m.Name, ctx.Err())
	}
	m.PowerOff()
	return nil
}

// Reboot makes systemd stop all units and boots the machine again.
func (m *Machine) Reboot(ctx context.Context) error {
	if err := m.ShutDown(ctx); err != nil {
		return err
	}
	return m.Boot(ctx)
}

// PowerCycle cuts the power and boots the machine again.
func (m *Machine) PowerCycle(ctx context.Context) error {
	m.PowerOff()
	return m.Boot(ctx)
}

// PID returns systemd's process ID, or 0 while the machine is off.
func (m *Machine) PID() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running == nil {
		return 0
	}
	return m.running.pid
}

// Netns returns the path of the network namespace of a machine that is on.
func (m *Machine) Netns() string { return fmt.Sprintf("/proc/%d/ns/net", m.PID()) }

// Path returns the path from outside of a file of a machine that is on, /run included.
func (m *Machine) Path(inside string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", m.PID()), inside)
}

// Command returns a command to run on a machine that is on, in its root directory and
// with a small environment. Do not kill it: use Script.
func (m *Machine) Command(name string, args ...string) *exec.Cmd {
	in := []string{"--target", strconv.Itoa(m.PID()), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--", name}
	cmd := exec.Command("nsenter", append(in, args...)...)
	cmd.Env = host.Environment()
	return cmd
}

// Script runs a shell script on the machine and returns its standard output. The end
// of ctx kills it.
func (m *Machine) Script(ctx context.Context, script string) (string, error) {
	out, _, err := host.RunCommand(ctx, m.Command("sh", "-c", script))
	return out, err
}

// Try runs a line of shell on the machine, whatever its exit status.
func (m *Machine) Try(line string) (host.Result, error) {
	return host.TryCommand(m.Command("sh", "-c", line))
}

// await polls until done returns no error or ctx ends. Then it returns the last error.
func (m *Machine) await(ctx context.Context, done func() error) error {
	for {
		err := done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pollInterval):
		}
	}
}

// A process prints its process ID first.
type process struct {
	pid   int
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{}
	said  bytes.Buffer // standard error, valid when ended is closed
}

func start(cmd *exec.Cmd) (*process, error) {
	cmd.Env = host.Environment()
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stderr = &p.said
	var stdout io.ReadCloser
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if stdout, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	go func() {
		_ = cmd.Wait() // it has ended, with any status
		close(p.ended)
	}()
	if err == nil {
		p.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("%w: %s", err, &p.said)
	}
	return p, nil
}

// becomes waits until the process runs another program.
func (p *process) becomes(program string) error {
	for {
		select {
		case <-p.ended:
			return fmt.Errorf("its first process ended: %s", &p.said)
		case <-time.After(pollInterval / 10):
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid))
		if err == nil && strings.TrimSpace(string(name)) == program {
			return nil
		}
	}
}

// close closes the standard input of the process, which ends then.
func (p *process) close() {
	_ = p.stdin.Close() // if it has ended already, so much the better
	<-p.ended
}

// kill kills the process with its namespace.
func (p *process) kill() {
	if proc, err := os.FindProcess(p.pid); err == nil {
		_ = proc.Kill() // if it has ended already, so much the better
	}
	p.close()
}
