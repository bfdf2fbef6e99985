// Package ofctl reads and writes the flows of a bridge with ovs-ofctl(8), and notices when ovs-vswitchd stops or
// starts.
package ofctl

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"

	"ovn-k8s/lib/flow"
)

// ErrDown means that ovs-vswitchd is not running, or the bridge does not exist.
var ErrDown = errors.New("the bridge is not served")

// A Bridge is a bridge of the local Open vSwitch.
type Bridge struct {
	// RunDir is Open vSwitch's run directory, as in /var/run/openvswitch.
	RunDir, Name string
}

// timeout bounds a run of ovs-ofctl.
const timeout = 10 * time.Second

// A portName is a port and the first characters of its name.
type portName struct {
	port flow.Port
	name string
	mac  string
}

// Ports are a bridge's ports as reported by the switch. The port numbers in the database may be older than the last
// restart of ovs-vswitchd.
type Ports []portName

// longest is the length of a port name in OpenFlow (OFP_MAX_PORT_NAME_LEN).
const longest = 15

// Find returns the port with a name. If several names have the same first characters, hint decides: the port number
// from the database.
func (ps Ports) Find(name string, hint int) (flow.Port, bool) {
	var found []flow.Port
	for _, p := range ps {
		if p.name != name[:min(len(name), longest)] {
			continue
		}
		if p.port == flow.Port(hint) {
			return p.port, true
		}
		found = append(found, p.port)
	}
	if len(found) != 1 {
		return 0, false
	}
	return found[0], true
}

// LocalMAC is the MAC of the bridge's own network device, "" if there is none.
func (ps Ports) LocalMAC() string {
	for _, p := range ps {
		if p.port == flow.Local {
			return p.mac
		}
	}
	return ""
}

// Ports lists the bridge's ports.
func (b Bridge) Ports(ctx context.Context) (Ports, error) {
	out, err := b.run(ctx, "", "dump-ports-desc", b.target())
	if err != nil {
		return nil, fmt.Errorf("listing the ports of %s: %w", b.Name, err)
	}
	return parsePorts(out)
}

// parsePorts reads lines such as " 1(eth0): addr:0a:00:00:00:00:01".
func parsePorts(text string) (Ports, error) {
	var ports Ports
	for line := range strings.Lines(text) {
		head, mac, ok := strings.Cut(strings.TrimSpace(line), "): addr:")
		if !ok {
			continue // a heading, or details of the previous port
		}
		number, name, ok := strings.Cut(head, "(")
		port, err := flow.ParsePort(number)
		if !ok || err != nil {
			return nil, fmt.Errorf("unknown output of ovs-ofctl: %q is not a port", line)
		}
		ports = append(ports, portName{port, name, mac})
	}
	return ports, nil
}

// Dump lists all flows of the bridge.
func (b Bridge) Dump(ctx context.Context) ([]flow.Flow, error) {
	out, err := b.run(ctx, "", "--no-stats", "--no-names", "dump-flows", b.target())
	if err != nil {
		return nil, fmt.Errorf("reading the flows of %s: %w", b.Name, err)
	}
	return parseFlows(out)
}

func parseFlows(text string) ([]flow.Flow, error) {
	var flows []flow.Flow
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "actions=") {
			continue // a heading of an older OpenFlow
		}
		f, err := flow.Parse(line)
		if err != nil {
			return nil, err
		}
		flows = append(flows, f)
	}
	return flows, nil
}

// Down reports whether nothing listens at the bridge's management socket: there is no such bridge, or ovs-vswitchd does
// not run. It starts no program.
func (b Bridge) Down() bool {
	conn, err := net.Dial("unix", b.socket())
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// Empty reports whether the bridge has no flows that a program has written. A new bridge has one of Open vSwitch itself, with the
// action NORMAL, until its fail_mode is known.
func (b Bridge) Empty(ctx context.Context) (bool, error) {
	n, err := b.count(ctx, "table=0") // the whole bridge may have many
	if n == 1 {
		n, err = b.count(ctx)
	}
	return err == nil && n <= 1, err
}

// Has reports whether the bridge has flows with a cookie.
func (b Bridge) Has(ctx context.Context, cookie uint64) (bool, error) {
	n, err := b.count(ctx, fmt.Sprintf("cookie=%#x/-1", cookie))
	return n > 0, err
}

// count counts flows.
func (b Bridge) count(ctx context.Context, match ...string) (int, error) {
	out, err := b.run(ctx, "", append([]string{"dump-aggregate", b.target()}, match...)...)
	if err != nil {
		return 0, fmt.Errorf("counting the flows of %s: %w", b.Name, err)
	}
	_, text, _ := strings.Cut(out, "flow_count=")
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("counting the flows of %s: ovs-ofctl says %q", b.Name, out)
	}
	return n, nil
}

// Apply changes the bridge's flows in one bundle: all or, on an error, none.
func (b Bridge) Apply(ctx context.Context, mods []flow.Mod) error {
	if len(mods) == 0 {
		return nil
	}
	var in strings.Builder
	for _, m := range mods {
		fmt.Fprintln(&in, m)
	}
	if _, err := b.run(ctx, in.String(), "--bundle", "add-flows", b.target(), "-"); err != nil {
		return fmt.Errorf("changing the flows of %s: %w", b.Name, err)
	}
	if slices.ContainsFunc(mods, func(m flow.Mod) bool { return m.Delete && strings.Contains(m.Flow.Actions, "ct(") }) {
		return b.forget(ctx)
	}
	return nil
}

// forget empties the flow cache of ovs-vswitchd. Normally this is not needed, but Open vSwitch 3.1 sometimes keeps
// sending a connection through conntrack after that flow was deleted, and then drops its packets for ever.
func (b Bridge) forget(ctx context.Context) error {
	if _, err := appctl(ctx, b.RunDir, "revalidator/purge"); err != nil {
		return fmt.Errorf("making ovs-vswitchd forget the former flows of %s: %w", b.Name, err)
	}
	return nil
}

// target is the bridge's management socket. It saves ovs-ofctl a search by name.
func (b Bridge) target() string { return "unix:" + b.socket() }

func (b Bridge) socket() string { return filepath.Join(b.RunDir, b.Name+".mgmt") }

func (b Bridge) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	return command(ctx, b.RunDir, program, args...)
}

// command prepares a command for the Open vSwitch of a run directory.
func command(ctx context.Context, rundir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	// A waiting command must not outlive this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+rundir, "LC_ALL=C")
	return cmd
}

// appctl runs a command in ovs-vswitchd.
func appctl(ctx context.Context, rundir string, args ...string) (string, error) {
	args = append([]string{fmt.Sprintf("--timeout=%.0f", timeout.Seconds()), "--target=ovs-vswitchd"}, args...)
	return execute(command(ctx, rundir, "ovs-appctl", args...), "")
}

func (b Bridge) run(ctx context.Context, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("ovs-vswitchd does not answer within %v", timeout))
	defer cancel()
	out, err := execute(b.command(ctx, "ovs-ofctl", args...), stdin)
	if err != nil && ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return out, err
}

// execute runs a command and returns its output.
func execute(cmd *exec.Cmd, stdin string) (string, error) {
	var out, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &stderr
	if err := cmd.Run(); err != nil {
		return "", explain(err, stderr.String())
	}
	return out.String(), nil
}

// explain turns the error output of ovs-ofctl into one line.
func explain(err error, stderr string) error {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	why := strings.TrimPrefix(lines[len(lines)-1], "ovs-ofctl: ")
	var exit *exec.ExitError
	switch {
	case !errors.As(err, &exit) || why == "":
		return err
	case strings.HasPrefix(why, "connecting to ") || strings.Contains(why, "(End of file)") || strings.Contains(why, "(Connection reset by peer)") || strings.Contains(why, "(Broken pipe)"):
		return fmt.Errorf("%w: is ovs-vswitchd running? %s", ErrDown, why)
	}
	return errors.New(why)
}

// Minimum and maximum delay before Follow reconnects.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 100 * time.Millisecond
)

// Follow calls changed after each change of the bridge's flows, by any program, and whenever the bridge goes down or
// comes up. It returns when ctx ends.
func (b Bridge) Follow(ctx context.Context, changed func()) { b.follow(ctx, "watch:!initial", changed) }

// FollowFirst is Follow for the flows of table 0 only.
func (b Bridge) FollowFirst(ctx context.Context, changed func()) {
	b.follow(ctx, "watch:!initial,table=0", changed)
}

func (b Bridge) follow(ctx context.Context, what string, changed func()) {
	retry := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstRetry), backoff.WithMaxInterval(lastRetry), backoff.WithMaxElapsedTime(0))
	for {
		if b.watch(ctx, what, changed) {
			retry.Reset()
			changed()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retry.NextBackOff()):
		}
	}
}

// watch follows one connection until it breaks. It returns false if there was no connection.
func (b Bridge) watch(ctx context.Context, what string, changed func()) bool {
	cmd := b.command(ctx, "ovs-ofctl", "monitor", b.target(), what)
	// ovs-ofctl prints events to stderr; one pipe for both.
	r, err := cmd.StderrPipe()
	if err != nil {
		return false
	}
	cmd.Stdout = cmd.Stderr
	if err := cmd.Start(); err != nil {
		return false
	}
	connected := false
	for lines := bufio.NewReader(r); ; {
		line, _, err := lines.ReadLine() // long lines in parts: a flow may have any length
		if err != nil {
			break
		}
		// The first line is the reply to the request.
		if connected = connected || bytes.HasPrefix(line, []byte("NXST_FLOW_MONITOR")); connected {
			changed()
		}
	}
	_ = cmd.Wait() // a broken connection has no useful error
	return connected
}
