// Package host makes hosts for tests: each has network, mount, UTS and process
// namespaces of its own, with a private /run, /etc, /opt, /var and /usr/local, so that
// unmodified programs use their default paths in it. Hosts are connected by a
// Fabric, run a real Open vSwitch with the userspace datapath and a real
// ovn-controller, and need no kernel module of either.
//
// Nothing of a host exists outside of its namespaces: no link, no mount, no file
// and no named namespace. They end, with all processes inside, when the program
// that made them closes them or ends in whatever way. So any number of worlds
// can be up at once, with the same names and addresses.
package host

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ovn-k8s/test/lifeline"
)

//go:embed setup.sh
var setupScript string

//go:embed hide.sh
var hideScript string

// environment is all that programs in a host find in theirs.
var environment = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/root", "LANG=C.UTF-8",
}

// pollInterval is how often a condition is looked at.
const pollInterval = 10 * time.Millisecond

// Options say how to make a Host.
type Options struct {
	// Name is the host's name, its system-id and that of its chassis.
	Name string
	// Fabric connects it, by eth0. A host without has only a loopback interface.
	Fabric *Fabric
	// Outside puts it behind the fabric's router, where no other hosts are.
	Outside bool
	// SecondNIC gives it an eth1 in a network of its own, with addresses but
	// without a default route: a NIC for a gateway.
	SecondNIC bool
	// Logs is a directory that Close copies the host's /var/log to, as
	// Logs/Name, if set.
	Logs string
}

// A Host is a set of namespaces.
type Host struct {
	Name string
	// Addresses are those of eth0, later of breth0: IPv4 and IPv6.
	Addresses []netip.Prefix

	fabric   *Fabric
	ports    []string // the fabric's ends of the NICs
	gateways []netip.Addr
	logs     string
	holder   *holder
}

// Missing names what New, StartOVS and StartController would miss on this
// machine, or is "".
func Missing() string {
	if os.Geteuid() != 0 {
		return "root"
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return "/dev/net/tun"
	}
	for _, tool := range []string{
		"unshare", "nsenter", "ip", "ethtool", "nft", "sysctl",
		"ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-appctl", "ovn-controller", "ovn-sbctl",
	} {
		if _, err := exec.LookPath(tool); err != nil {
			return tool
		}
	}
	return ""
}

// New makes a host and connects it. Its user must Close it.
func New(o Options) (*Host, error) {
	holder, err := hold(setupScript, []string{"--mount", "--net", "--uts", "--ipc", "--pid", "--fork"}, o.Name)
	if err != nil {
		return nil, fmt.Errorf("making host %s: %w", o.Name, err)
	}
	h := &Host{Name: o.Name, logs: o.Logs, holder: holder}
	if o.Fabric == nil {
		return h, nil
	}
	if err := o.Fabric.connect(h, o); err != nil {
		h.Close()
		return nil, fmt.Errorf("connecting host %s: %w", o.Name, err)
	}
	return h, nil
}

// Close kills everything in the host and removes it.
func (h *Host) Close() {
	if h.logs != "" {
		// a copy for whoever looks into a failure: best effort
		_ = os.CopyFS(filepath.Join(h.logs, h.Name), os.DirFS(h.Path("/var/log")))
		h.logs = ""
	}
	if h.fabric != nil {
		// The kernel would do it too, but when it finds the time. An error says
		// that the fabric is gone.
		_ = h.eachPort("link del %s")
		h.fabric = nil
	}
	h.holder.close()
}

// Cut pulls the cables of a host's NICs, until Mend.
func (h *Host) Cut() error { return h.eachPort("link set %s down") }

// Mend plugs in what Cut has pulled.
func (h *Host) Mend() error { return h.eachPort("link set %s up") }

// eachPort does something to the fabric's ends of the host's NICs.
func (h *Host) eachPort(format string) error {
	var lines []string
	for _, p := range h.ports {
		lines = append(lines, fmt.Sprintf(format, p))
	}
	return batch(h.fabric.command, lines...)
}

// PID is the host's first process, whose namespaces are the host's.
func (h *Host) PID() int { return h.holder.pid }

// Netns is the file of the host's network namespace.
func (h *Host) Netns() string { return fmt.Sprintf("/proc/%d/ns/net", h.PID()) }

// FabricNetns is the file of the network namespace of the host's Fabric.
func (h *Host) FabricNetns() string { return h.fabric.Netns() }

// Path is where a file of the host is found from outside. Sockets can be dialed
// there, too.
func (h *Host) Path(inside string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", h.PID()), inside)
}

// Gateways are the next hops of eth0, IPv4 and IPv6.
func (h *Host) Gateways() []netip.Addr { return slices.Clone(h.gateways) }

// Second is eth1 of a host with Options.SecondNIC: its addresses, and the next
// hops there.
func (h *Host) Second() (addresses []netip.Prefix, gateways []netip.Addr) {
	return second.addresses(h.IPv4().As4()[3]), second.gateways()
}

// HideFromKernel makes the host's kernel ignore what a NIC receives, which is then
// for Open vSwitch alone. The userspace datapath reads copies of the frames, and
// the kernel must not answer or forward the originals as well.
func (h *Host) HideFromKernel(ctx context.Context, nic string) error {
	_, err := h.Script(ctx, hideScript, nic)
	return err
}

// IPv4 is the host's underlay address.
func (h *Host) IPv4() netip.Addr { return h.Addresses[0].Addr() }

// IPv6 is the host's underlay address.
func (h *Host) IPv6() netip.Addr { return h.Addresses[1].Addr() }

// Command makes a command that runs in the host, in its root directory and with
// little in its environment. Do not kill it: use Run or Start, which know how.
func (h *Host) Command(name string, args ...string) *exec.Cmd {
	in := []string{"--target", strconv.Itoa(h.PID()), "--mount", "--uts", "--ipc", "--net", "--pid", "--", name}
	cmd := exec.Command("nsenter", append(in, args...)...)
	cmd.Env = environment
	return cmd
}

// Run runs a program in the host and returns what it printed. The error of one
// that fails ends with what it said on standard error. The end of ctx kills it.
func (h *Host) Run(ctx context.Context, name string, args ...string) (stdout, stderr string, err error) {
	return run(ctx, h.Command(name, args...), name, args)
}

// RunCommand runs what Command made, with the standard input and environment
// that it was given since, as Run does.
func RunCommand(ctx context.Context, cmd *exec.Cmd) (stdout, stderr string, err error) {
	_, inside, _ := strings.Cut(strings.Join(cmd.Args, " "), " -- ")
	return run(ctx, cmd, inside, nil)
}

// Environment is what a program in a host finds in its environment.
func Environment() []string { return slices.Clone(environment) }

// Script runs a shell script in the host and returns its standard output.
func (h *Host) Script(ctx context.Context, script string, args ...string) (string, error) {
	cmd := h.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	out, _, err := run(ctx, cmd, "script", args)
	return out, err
}

// A Result is how a command ended, and what it printed.
type Result struct {
	Status   int
	Out, Err string
}

// Try runs a line of shell in the host, whatever its exit status. The error is
// about a shell that could not be run.
func (h *Host) Try(line string) (Result, error) { return TryCommand(h.Command("sh", "-c", line)) }

// TryCommand runs a command, whatever its exit status. The error is about one that
// could not be run.
func TryCommand(cmd *exec.Cmd) (Result, error) {
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return Result{cmd.ProcessState.ExitCode(), out.String(), complaint.String()}, err
}

// Install makes programs, given by their absolute paths, commands of the host:
// links in /usr/local/bin, which is on everybody's path there.
func (h *Host) Install(programs ...string) error {
	for _, p := range programs {
		if _, err := os.Stat(p); err != nil {
			return fmt.Errorf("installing a program on %s: %w", h.Name, err)
		}
		if err := os.Symlink(p, h.Path(filepath.Join("/usr/local/bin", filepath.Base(p)))); err != nil {
			return err
		}
	}
	return nil
}

// Start starts a program in the host that runs until it is stopped.
func (h *Host) Start(name string, args ...string) (*lifeline.Process, error) {
	return lifeline.Start(h.Command, name, args...)
}

// Kill kills the daemon of a pidfile, as by kill -9, and waits for its end. That
// it does not run is not an error.
func (h *Host) Kill(ctx context.Context, pidfile string) error {
	text, err := os.ReadFile(h.Path(pidfile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pid := strings.TrimSpace(string(text))
	gone := func() error {
		if _, err := os.Stat(h.Path("/proc/" + pid)); err == nil {
			return fmt.Errorf("process %s lives", pid)
		}
		return nil
	}
	if gone() == nil {
		return nil
	}
	if _, _, err := h.Run(ctx, "kill", "-9", pid); err != nil && gone() != nil {
		return fmt.Errorf("killing the process of %s: %w", pidfile, err)
	}
	return await(ctx, gone)
}

// run runs a command of nsenter(1). At the end of ctx it kills the program, with
// what is left of its process group.
func run(ctx context.Context, cmd *exec.Cmd, name string, args []string) (stdout, stderr string, err error) {
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second // a daemon may hold the output
	if err := cmd.Start(); err != nil {
		return "", "", err
	}
	stop := context.AfterFunc(ctx, func() { killEntered(cmd.Process.Pid) })
	err = cmd.Wait()
	stop()
	if ctx.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		err = fmt.Errorf("running %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), complaint.String(), err
}

// killEntered kills what the nsenter of pid has started. It does not kill nsenter
// itself, which is the one to reap its child: an orphan would be left to the
// machine's first process, which may take its time, and a host does not end
// before its last zombie.
func killEntered(pid int) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", pid))
	if err != nil || len(children) == 0 {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
		return
	}
	for child := range strings.FieldsSeq(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
}

// await polls until done returns no error or ctx ends.
func await(ctx context.Context, done func() error) error {
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
