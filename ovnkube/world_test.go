package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/reaper"
	"ovn-k8s/test/require"
)

// asOvnkube makes the test binary run as the program.
const asOvnkube = "OVNK8S_TEST_AS_OVNKUBE"

func TestMain(m *testing.M) {
	if os.Getenv(asOvnkube) != "" {
		os.Exit(run(daemon.HideArguments(options.Secret), cli.OS()))
	}
	reaper.HearSignals()
	status := m.Run()
	if startedCluster {
		if c, err := cluster(); err == nil {
			c.Close()
		}
	}
	os.Exit(status)
}

// patience bounds every wait.
const patience = 2 * time.Minute

// A host has directories of its own, and perhaps the database of an Open vSwitch.
type host struct {
	*testing.T
	dir string
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir, err := os.MkdirTemp("", "ovnkube")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &host{t, dir}
	for _, sub := range []string{"run", "log", "db", "etc/openvswitch"} {
		if err := os.MkdirAll(h.path(sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *host) env() []string {
	return []string{"OVS_RUNDIR=" + h.path("run"), "OVS_LOGDIR=" + h.path("log"), "OVS_DBDIR=" + h.path("db"), "OVS_SYSCONFDIR=" + h.path("etc"), "OVN_RUNDIR=" + h.path("run")}
}

// write writes a file and returns its path.
func (h *host) write(name, text string) string {
	h.Helper()
	if err := os.WriteFile(h.path(name), []byte(text), 0o600); err != nil {
		h.Fatal(err)
	}
	return h.path(name)
}

// startSwitch starts the database server of an Open vSwitch.
func (h *host) startSwitch() {
	h.Helper()
	if _, err := exec.LookPath("ovsdb-server"); err != nil {
		require.Nothing(h, require.Central, "ovsdb-server")
	}
	h.tool("ovsdb-tool", "create", h.path("db/conf.db"), "/usr/share/openvswitch/vswitch.ovsschema")
	h.serve("conf", "--remote=punix:"+h.path("run/db.sock"), h.path("db/conf.db"))
	h.vsctl("init")
}

// startCentral starts the databases and ovn-northd until the test ends.
func (h *host) startCentral() *ovntest.Central {
	h.Helper()
	require.Nothing(h, require.Central, ovntest.Missing())
	central, err := ovntest.Start(ovntest.Options{Listen: "127.0.0.1"})
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(central.Close)
	return central
}

// serve starts an ovsdb-server until the test ends.
func (h *host) serve(name string, args ...string) *reaper.Process {
	h.Helper()
	p, err := reaper.Start(nil, "ovsdb-server", append([]string{"-vconsole:off", "--log-file=" + h.path("log/"+name+".log"), "--unixctl=" + h.path("run/"+name+".ctl"), "--pidfile=" + h.path("run/"+name+".pid")}, args...)...)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(p.Stop)
	h.eventually(name+" answers", func() bool {
		return exec.Command("ovs-appctl", "--timeout=2", "-t", h.path("run/"+name+".ctl"), "version").Run() == nil
	})
	return p
}

// tool runs a program, which must not fail, and returns its output.
func (h *host) tool(name string, args ...string) string {
	h.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), h.env()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// vsctl runs ovs-vsctl without waiting for ovs-vswitchd, which does not run.
func (h *host) vsctl(args ...string) string {
	h.Helper()
	return h.tool("ovs-vsctl", append([]string{"--no-wait", "--timeout=30", "--db=unix:" + h.path("run/db.sock")}, args...)...)
}

// dump is the content of a database.
func (h *host) dump(remote, database string) string {
	h.Helper()
	return h.tool("ovsdb-client", "--timeout=30", "dump", remote, database)
}

// command makes a command that runs ovnkube with a command line, and with more variables.
func (h *host) command(line []string, env ...string) *exec.Cmd {
	h.Helper()
	self, err := os.Executable()
	if err != nil {
		h.Fatal(err)
	}
	cmd := exec.Command(self, line...)
	cmd.Dir, cmd.Env = h.dir, append(append(append(os.Environ(), asOvnkube+"=yes"), h.env()...), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// once runs ovnkube to its end.
func (h *host) once(line []string, env ...string) (status int, stdout, stderr string) {
	h.Helper()
	var out, errs bytes.Buffer
	cmd := h.command(line, env...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		h.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// A process is a running ovnkube.
type process struct {
	*host
	cmd *exec.Cmd
	out *buffer
}

// start starts ovnkube until the test ends.
func (h *host) start(line []string, env ...string) *process {
	h.Helper()
	p := &process{h, h.command(line, env...), &buffer{}}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.run()
	return p
}

// run starts it until the test ends.
func (p *process) run() {
	p.Helper()
	if err := p.cmd.Start(); err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		if p.Failed() {
			p.Logf("output of ovnkube:\n%s", p.out)
		}
	})
}

// stop ends it by SIGTERM and returns its status.
func (p *process) stop() int {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

// says waits for a text in the output.
func (p *process) says(text string) {
	p.Helper()
	p.eventually(fmt.Sprintf("it says %q", text), func() bool { return strings.Contains(p.out.String(), text) })
}

// eventually waits until cond holds.
func (h *host) eventually(what string, cond func() bool) {
	h.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			h.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// A buffer may be read while a process writes it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
