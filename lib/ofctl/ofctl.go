// Package ofctl reads and writes the flows of a bridge with ovs-ofctl(8), and
// notices when its ovs-vswitchd goes or comes.
package ofctl

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"

	"ovn-k8s/lib/flow"
)

// ErrDown says that nobody serves the bridge: ovs-vswitchd does not run, or
// there is no such bridge.
var ErrDown = errors.New("the bridge is not served")

// A Bridge is one of the local Open vSwitch.
type Bridge struct {
	// RunDir is Open vSwitch's, as in /var/run/openvswitch.
	RunDir, Name string
}

// timeout bounds how long ovs-ofctl may take.
const timeout = 10 * time.Second

// A portName is a port and the first characters of its name.
type portName struct {
	port flow.Port
	name string
	mac  string
}

// Ports are a bridge's ports as the switch itself says: what the database says
// may be about a former life of ovs-vswitchd.
type Ports []portName

// longest is how many characters of a port's name OpenFlow tells
// (OFP_MAX_PORT_NAME_LEN).
const longest = 15

// Find returns the port of a name. Where names are too long for OpenFlow to
// tell them apart, hint, a port's number of the database, decides.
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

// LocalMAC is the MAC of the bridge's own network device, "" if it has none.
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
			continue // a heading, or more about the port before
		}
		number, name, ok := strings.Cut(head, "(")
		port, err := flow.ParsePort(number)
		if !ok || err != nil {
			return nil, fmt.Errorf("ovs-ofctl says %q, which is no port", line)
		}
		ports = append(ports, portName{port, name, mac})
	}
	return ports, nil
}

// Dump lists the bridge's flows, whoever made them.
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

// Empty reports whether table 0 of the bridge has no flows.
func (b Bridge) Empty(ctx context.Context) (bool, error) {
	out, err := b.run(ctx, "", "dump-aggregate", b.target(), "table=0")
	if err != nil {
		return false, fmt.Errorf("counting the flows of %s: %w", b.Name, err)
	}
	_, count, ok := strings.Cut(out, "flow_count=")
	if !ok {
		return false, fmt.Errorf("counting the flows of %s: ovs-ofctl says %q", b.Name, out)
	}
	return strings.TrimSpace(count) == "0", nil
}

// Apply makes changes of the bridge's flows as one bundle: all of them or, if
// there is an error, none.
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

// forget has ovs-vswitchd forget what it remembers of flows. It should not need
// to be told, but sometimes Open vSwitch 3.1 goes on to send a connection through
// conntrack after the flow that did so is gone, and then drops it, for ever.
func (b Bridge) forget(ctx context.Context) error {
	if _, err := appctl(ctx, b.RunDir, "revalidator/purge"); err != nil {
		return fmt.Errorf("making ovs-vswitchd forget the former flows of %s: %w", b.Name, err)
	}
	return nil
}

// target is the bridge's management socket. A bridge's name would do, but costs
// a search.
func (b Bridge) target() string { return "unix:" + filepath.Join(b.RunDir, b.Name+".mgmt") }

func (b Bridge) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	return command(ctx, b.RunDir, program, args...)
}

// command makes a command that asks the Open vSwitch of a run directory.
func command(ctx context.Context, rundir, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	// A program that waits must not outlive this one.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+rundir, "LC_ALL=C")
	return cmd
}

// appctl asks ovs-vswitchd.
func appctl(ctx context.Context, rundir string, args ...string) (string, error) {
	args = append([]string{fmt.Sprintf("--timeout=%.0f", timeout.Seconds()), "--target=ovs-vswitchd"}, args...)
	return execute(command(ctx, rundir, "ovs-appctl", args...), "")
}

func (b Bridge) run(ctx context.Context, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := execute(b.command(ctx, "ovs-ofctl", args...), stdin)
	if err != nil && ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return out, err
}

// execute runs a command and returns what it prints.
func execute(cmd *exec.Cmd, stdin string) (string, error) {
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", explain(err, complaint.String())
	}
	return out.String(), nil
}

// explain turns ovs-ofctl's complaint into one line.
func explain(err error, complaint string) error {
	lines := strings.Split(strings.TrimSpace(complaint), "\n")
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

// How long Follow waits before it connects to a bridge again, at first and at
// the most.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 100 * time.Millisecond
)

// Follow calls changed whenever a flow of the bridge was changed by anybody, and
// whenever the bridge is served again after it was not, or is not any more. It
// returns when ctx ends.
func (b Bridge) Follow(ctx context.Context, changed func()) { b.follow(ctx, "watch:!initial", changed) }

// FollowFirst is Follow for the flows of table 0 alone.
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

// watch follows one connection until it breaks. It reports whether there was
// one.
func (b Bridge) watch(ctx context.Context, what string, changed func()) bool {
	cmd := b.command(ctx, "ovs-ofctl", "monitor", b.target(), what)
	// It says on stderr what it hears, a pipe for both.
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
		line, _, err := lines.ReadLine() // of a long one in parts: a flow may have any length
		if err != nil {
			break
		}
		// The first is the answer to the request.
		if connected = connected || bytes.HasPrefix(line, []byte("NXST_FLOW_MONITOR")); connected {
			changed()
		}
	}
	_ = cmd.Wait() // that the connection broke is all there is to know
	return connected
}
