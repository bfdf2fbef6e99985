// Package host creates hosts for tests. Each has its own network, mount, UTS and
// process namespaces, with a private /run, /etc, /opt, /var and /usr/local, so
// unmodified programs can use their default paths. A Fabric connects hosts. They
// run a real Open vSwitch and a real ovn-controller. With the userspace datapath,
// the default, they need no kernel modules: see Datapath.
//
// A host leaves no link, mount, file or named namespace on the machine. Its
// namespaces and all processes in them end on Close, or when the creating program
// ends for any reason. So any number of clusters can run in parallel with the same
// names and addresses.
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

	"ovn-k8s/test/limit"
	"ovn-k8s/test/poll"
	"ovn-k8s/test/reaper"
)

//go:embed setup.sh
var setupScript string

//go:embed hide.sh
var hideScript string

// Options configure New.
type Options struct {
	// Name is the hostname, the system-id and the name of the chassis.
	Name string
	// Fabric connects eth0. A host without a Fabric has only a loopback interface.
	Fabric *Fabric
	// Outside puts the host behind the fabric's router, away from other hosts.
	Outside bool
	// SecondNIC adds eth1 in a separate network, with addresses but without a
	// default route: a NIC for a gateway.
	SecondNIC bool
	// Logs, if set, is a directory. Close copies the host's /var/log to Logs/Name.
	Logs string
}

// A Host is a set of namespaces.
type Host struct {
	Name string
	// Addresses are the addresses of eth0 (of breth0 after StartOVS): IPv4 and IPv6.
	Addresses []netip.Prefix

	fabric   *Fabric
	ports    []string // the fabric's ends of the NICs
	gateways []netip.Addr
	logs     string
	machine
}

// A machine runs programs in a host's namespaces.
type machine struct{ holder *holder }

// Missing names a prerequisite of New, StartOVS and StartController missing on this
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
	return missingDatapath()
}

// New creates a host and connects it. The caller must Close it.
func New(o Options) (*Host, error) {
	holder, err := hold(setupScript, []string{"--mount", "--net", "--uts", "--ipc", "--pid", "--fork"}, o.Name, os.Getenv(withoutVariable))
	if err != nil {
		return nil, fmt.Errorf("making host %s: %w", o.Name, err)
	}
	h := &Host{Name: o.Name, logs: o.Logs, machine: machine{holder}}
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
		// best effort: the copy only helps to debug failures
		_ = os.CopyFS(filepath.Join(h.logs, h.Name), os.DirFS(h.Path("/var/log")))
		h.logs = ""
	}
	if h.fabric != nil {
		// The kernel would do it too, but later. An error means that the fabric is
		// gone.
		_ = h.eachPort("link del %s")
		h.fabric = nil
	}
	h.holder.close()
}

// Cut pulls the cables of a host's NICs, until Mend.
func (h *Host) Cut() error { return h.eachPort("link set %s down") }

// Mend plugs the cables in again after Cut.
func (h *Host) Mend() error { return h.eachPort("link set %s up") }

// eachPort runs an ip(8) command for the fabric's end of each NIC of the host.
func (h *Host) eachPort(format string) error {
	var lines []string
	for _, p := range h.ports {
		lines = append(lines, fmt.Sprintf(format, p))
	}
	return batch(h.fabric.command, lines...)
}

// PID is the process ID of the host's init process, in the host's namespaces.
func (h machine) PID() int { return h.holder.pid }

// Netns is the path of the host's network namespace.
func (h machine) Netns() string { return fmt.Sprintf("/proc/%d/ns/net", h.PID()) }

// FabricNetns is the path of the network namespace of the host's Fabric.
func (h *Host) FabricNetns() string { return h.fabric.Netns() }

// Path translates a path inside the host to a path outside of it. It works for unix
// sockets, too.
func (h machine) Path(inside string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", h.PID()), inside)
}

// Gateways are the next hops of eth0, IPv4 and IPv6.
func (h *Host) Gateways() []netip.Addr { return slices.Clone(h.gateways) }

// Second is eth1 of a host with Options.SecondNIC: its addresses, and the next
// hops there.
func (h *Host) Second() (addresses []netip.Prefix, gateways []netip.Addr) {
	return second.addresses(h.IPv4().As4()[3]), second.gateways()
}

// HideFromKernel makes the host's kernel drop all frames received on a NIC, leaving
// them to Open vSwitch. The userspace datapath reads copies of the frames, so the
// kernel must not answer or forward the originals as well. The kernel's datapath
// takes the frames, and nothing is done.
func (h *Host) HideFromKernel(ctx context.Context, nic string) error {
	if Datapath() != Userspace {
		return nil
	}
	_, err := h.Script(ctx, hideScript, nic)
	return err
}

// IPv4 is the host's underlay address.
func (h *Host) IPv4() netip.Addr { return h.Addresses[0].Addr() }

// IPv6 is the host's underlay address.
func (h *Host) IPv6() netip.Addr { return h.Addresses[1].Addr() }

// Command prepares a command in the host, in its root directory and with a minimal
// environment. Do not kill it directly: the process is nsenter. Use Run or Start.
func (h machine) Command(name string, args ...string) *exec.Cmd {
	in := []string{"--target", strconv.Itoa(h.PID()), "--mount", "--uts", "--ipc", "--net", "--pid", "--", name}
	cmd := exec.Command("nsenter", append(in, args...)...)
	cmd.Env = Environment()
	return cmd
}

// Run runs a program in the host and returns its output. If it fails, the error
// ends with its standard error. The end of ctx kills it.
func (h machine) Run(ctx context.Context, name string, args ...string) (stdout, stderr string, err error) {
	return run(ctx, h.Command(name, args...), name, args)
}

// RunCommand is like Run for a command of Command; the caller may have set its
// standard input and environment.
func RunCommand(ctx context.Context, cmd *exec.Cmd) (stdout, stderr string, err error) {
	_, inside, _ := strings.Cut(strings.Join(cmd.Args, " "), " -- ")
	return run(ctx, cmd, inside, nil)
}

// Environment is the complete default environment of programs in a host.
func Environment() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8", datapathVariable + "=" + Datapath(),
	}
}

// Script runs a shell script in the host and returns its standard output.
func (h machine) Script(ctx context.Context, script string, args ...string) (string, error) {
	cmd := h.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	out, _, err := run(ctx, cmd, "script", args)
	return out, err
}

// A Result is the exit status and the output of a command.
type Result struct {
	Status   int
	Out, Err string
}

// Try runs a line of shell in the host. A non-zero exit status is not an error;
// failing to start the shell is.
func (h machine) Try(line string) (Result, error) { return TryCommand(h.Command("sh", "-c", line)) }

// TryCommand runs a command. A non-zero exit status is not an error; failing to
// start it is.
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

// Install links programs, given by absolute paths, into the host's /usr/local/bin. It replaces links of the same names.
func (h *Host) Install(programs ...string) error {
	for _, p := range programs {
		if _, err := os.Stat(p); err != nil {
			return fmt.Errorf("installing a program on %s: %w", h.Name, err)
		}
		link := h.Path(filepath.Join("/usr/local/bin", filepath.Base(p)))
		if err := errors.Join(os.Symlink(p, link+".new"), os.Rename(link+".new", link)); err != nil {
			return err
		}
	}
	return nil
}

// Start starts a program in the host. It runs until Process.Stop.
func (h machine) Start(name string, args ...string) (*reaper.Process, error) {
	return reaper.Start(h.Command, name, args...)
}

// Kill sends SIGKILL to the daemon of a pidfile and waits for its end. A daemon not
// running is not an error.
func (h machine) Kill(ctx context.Context, pidfile string) error {
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
	return poll.Until(ctx, gone)
}

// run runs a command of nsenter(1). At the end of ctx it kills the program and the
// rest of its process group.
func run(ctx context.Context, cmd *exec.Cmd, name string, args []string) (stdout, stderr string, err error) {
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = limit.Of(time.Second) // a daemon may hold the output, which is then an error
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

// killEntered kills the children of the nsenter process pid, but not nsenter
// itself, so that it can reap its child. An orphaned child would have to wait for
// the machine's init process, and a host does not end before its last zombie is
// reaped.
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
