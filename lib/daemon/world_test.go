package daemon_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/vlog"
	"ovn-k8s/test/reaper"
	"ovn-k8s/test/require"
)

// patience is the timeout of waits for events.
const patience = time.Minute

// program is the test binary, started by a test as "prog".
type program struct {
	Daemon daemon.Options `group:"Daemon options"`
	Log    vlog.Options   `group:"Logging options"`
	Told   string         `long:"told" description:"FIFO that gets the process ID when ready"`
	Fault  string         `long:"fault" description:"what goes wrong before it is ready"`
	Token  string         `long:"token" description:"a secret"`

	arguments daemon.Arguments
}

type statusError int

func (e statusError) Error() string   { return fmt.Sprintf("fault of status %d", int(e)) }
func (e statusError) ExitStatus() int { return int(e) }

func (p *program) Run(ctx context.Context, io cli.IO) error {
	log, err := vlog.New("prog", p.Log, io.Err)
	if err != nil {
		return err
	}
	defer log.Close()
	end := make(chan error, 1)
	commands := []daemon.Command{
		{Name: "test/panic", Run: func([]string) (string, error) { go panic("boom"); select {} }},
		{Name: "test/end", Usage: "STATUS", Min: 1, Max: 1, Run: func(args []string) (string, error) {
			status, err := strconv.Atoi(args[0])
			end <- statusError(status)
			return "", err
		}},
		{Name: "test/say", Usage: "TEXT...", Min: 1, Max: 3, Run: func(args []string) (string, error) { return strings.Join(args, "|"), nil }},
		{Name: "test/token", Run: func([]string) (string, error) { return p.Token, nil }},
		{Name: "test/fail", Run: func([]string) (string, error) { return "", errors.New("not today") }},
		{Name: "test/hang", Run: func([]string) (string, error) { select {} }},
		{Name: "test/debug", Run: func([]string) (string, error) { log.Module("test").Debug("detail"); return "", nil }},
	}
	return daemon.Run(ctx, daemon.Service{
		Name: "prog", Version: "1.2.3", Options: p.Daemon, Log: log.Module("daemon"), Arguments: p.arguments,
		Commands: append(commands, log.Commands()...),
		Serve: func(ctx context.Context, ready func()) error {
			switch p.Fault {
			case "error":
				return errors.New("opening database: no such socket")
			case "status":
				return statusError(7)
			case "killed":
				_ = unix.Kill(os.Getpid(), unix.SIGKILL)
				select {}
			case "done":
				return nil
			case "slow":
				p.tell()
				<-ctx.Done()
				return ctx.Err()
			}
			if p.Fault == "linger" {
				defer time.Sleep(50 * time.Millisecond) // the work of an end
			}
			ready()
			ready()
			log.Module("test").Info("ready")
			p.tell()
			select {
			case err := <-end:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	})
}

func (p *program) tell() {
	f, err := os.OpenFile(p.Told, os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, os.Getpid())
}

func TestMain(m *testing.M) {
	if os.Getenv("DAEMON_TEST_PROGRAM") == "" {
		reaper.HearSignals()
		os.Exit(m.Run())
	}
	args := daemon.HideArguments(func(option string) bool { return option == "token" })
	if dir := os.Getenv(dumpableDir); dir != "" {
		recordDumpable(dir)
	}
	os.Exit(cli.Main(cli.Program{Name: "prog", Version: "1.2.3", Options: &program{arguments: args}, OneDash: true}, args.All, cli.OS()))
}

// dumpableDir is the variable with a directory where each process writes whether the kernel writes a core of it.
const dumpableDir = "DAEMON_TEST_DUMPABLE"

func recordDumpable(dir string) {
	is, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, strconv.Itoa(os.Getpid())), []byte(strconv.Itoa(is)), 0o600)
	}
	if err != nil {
		panic(err)
	}
}

// A world is a run directory with running programs.
type world struct {
	t    *testing.T
	dir  string
	told *bufio.Reader
	fifo *os.File
}

func newWorld(t *testing.T) *world { return worldIn(t, t.TempDir()) }

func worldIn(t *testing.T, dir string) *world {
	t.Helper()
	name := filepath.Join(dir, "told")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo, err := os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, fifo: fifo, told: bufio.NewReader(fifo)}
	t.Cleanup(func() { _ = fifo.Close() })
	return w
}

// command is the program with args, not started.
func (w *world) command(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(self, append([]string{"--told=" + w.path("told")}, args...)...)
	cmd.Dir = w.dir
	cmd.Env = w.env()
	return cmd
}

func (w *world) env() []string {
	return append(os.Environ(), "DAEMON_TEST_PROGRAM=1", "OVS_RUNDIR="+w.dir, "OVS_LOGDIR="+w.dir)
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// run runs the program until it, or its launcher, returns.
func (w *world) run(args ...string) (status int, stderr string) {
	w.t.Helper()
	return w.finish(w.command(args...))
}

func (w *world) finish(cmd *exec.Cmd) (status int, stderr string) {
	w.t.Helper()
	var buf bytes.Buffer
	cmd.Stdout, cmd.Stderr = &buf, &buf // Wait returns only after the daemon has closed them
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), buf.String()
}

// running is a program in the foreground.
type running struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	wait   func() int
}

// start starts the program in the foreground.
func (w *world) start(args ...string) *running {
	w.t.Helper()
	r := &running{cmd: w.command(args...), stderr: new(bytes.Buffer)}
	r.cmd.Stderr = r.stderr
	if err := r.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	r.wait = sync.OnceValue(func() int {
		_ = r.cmd.Wait()
		return r.cmd.ProcessState.ExitCode()
	})
	w.t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		r.wait()
	})
	return r
}

// ready waits for the next worker's ready line and returns its process ID. The worker ends with the test.
func (w *world) ready() int {
	w.t.Helper()
	_ = w.fifo.SetReadDeadline(time.Now().Add(patience))
	s, err := w.told.ReadString('\n')
	if err != nil {
		w.t.Fatalf("waiting for readiness: %v", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		w.t.Fatal(err)
	}
	w.reap(pid)
	return pid
}

// reap kills pid at the end of the test.
func (w *world) reap(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended already
	}
	w.t.Cleanup(func() {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		_ = unix.Close(fd)
	})
}

// gone waits until pid has ended.
func (w *world) gone(pid int) {
	w.t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		w.t.Fatal(err)
	}
	defer unix.Close(fd)
	for deadline := time.Now().Add(patience); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(deadline).Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			w.t.Fatalf("process %d does not end (%v)", pid, err)
		}
		return
	}
}

// parent is pid's parent process.
func (w *world) parent(pid int) int {
	w.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		w.t.Fatal(err)
	}
	for l := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(l, "PPid:"); ok {
			ppid, _ := strconv.Atoi(strings.TrimSpace(v))
			return ppid
		}
	}
	w.t.Fatal("no parent")
	return 0
}

func (w *world) kill(pid int, sig syscall.Signal) {
	w.t.Helper()
	if err := unix.Kill(pid, sig); err != nil {
		w.t.Fatalf("kill %d: %v", pid, err)
	}
}

// appctl runs the real ovs-appctl.
func (w *world) appctl(args ...string) (status int, out string) {
	w.t.Helper()
	needTool(w.t, "ovs-appctl")
	cmd := exec.Command("ovs-appctl", append([]string{"--timeout=30"}, args...)...)
	cmd.Env = w.env()
	return w.finish(cmd)
}

// pidfile is the process ID in a pidfile.
func (w *world) pidfile(name string) int {
	w.t.Helper()
	b, err := os.ReadFile(w.path(name))
	if err != nil {
		w.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		w.t.Fatal(err)
	}
	return pid
}

// files are the names in the run directory except the test's own.
func (w *world) files() []string {
	w.t.Helper()
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != "told" {
			names = append(names, e.Name())
		}
	}
	return names
}

func (w *world) wantFiles(want ...string) {
	w.t.Helper()
	if got := w.files(); !slices.Equal(got, want) {
		w.t.Errorf("files %q, want %q", got, want)
	}
}

func (w *world) read(name string) string {
	w.t.Helper()
	f, err := os.Open(w.path(name))
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// needTool skips the test if a tool of Open vSwitch is missing, or fails it if the environment requires the tool.
func needTool(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		require.Nothing(t, require.Central, tool)
	}
}

// database makes an empty database for ovsdb-server.
func (w *world) database() string {
	w.t.Helper()
	needTool(w.t, "ovsdb-tool")
	schema := w.path("x.ovsschema")
	if err := os.WriteFile(schema, []byte(`{"name":"X","version":"1.0.0","tables":{}}`), 0o644); err != nil {
		w.t.Fatal(err)
	}
	if out, err := exec.Command("ovsdb-tool", "create", w.path("x.db"), schema).CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	return w.path("x.db")
}
