package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// waiting is a command line of a master that waits for its database.
const waiting = "-init-master=n1 -k8s-apiserver=http://127.0.0.1:1 -nb-address=tcp:127.0.0.1:1 -sb-address=tcp:127.0.0.1:1 "

// AC-21: a pidfile of a living process is respected, one of a dead process replaced; SIGTERM removes it.
func TestPidfile(t *testing.T) {
	h := newHost(t)
	pidfile := h.path("x.pid")
	line := strings.Fields(waiting + "-pidfile " + pidfile)
	p := h.start(line)
	p.says("waiting: ")
	info, err := os.Stat(pidfile)
	if err != nil || info.Mode().Perm() != 0o644 || strings.TrimSpace(h.read(pidfile)) != fmt.Sprint(p.cmd.Process.Pid) {
		t.Fatalf("%v, %v, %s", err, info, h.read(pidfile))
	}
	if status, _, errs := h.once(line); status != 1 || !strings.Contains(errs, "already running as pid") || strings.Count(errs, "ovnkube: ") != 1 {
		t.Errorf("a second one: status %d, %s", status, errs)
	}
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait()
	q := h.start(line)
	q.says("waiting: ")
	if got := strings.TrimSpace(h.read(pidfile)); got != fmt.Sprint(q.cmd.Process.Pid) {
		t.Errorf("the pidfile has %s after a crash", got)
	}
	q.stop()
	if _, err := os.Stat(pidfile); !os.IsNotExist(err) {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// A second process with the role of a node ends with one line that names the first one, whatever their pidfiles are.
func TestSecondNode(t *testing.T) {
	h := newHost(t)
	h.startSwitch()
	line := waiting + "-init-node=n1 -pidfile="
	p := h.start(strings.Fields(line + h.path("first.pid")))
	p.says("waiting: ")
	q := h.start(strings.Fields(line + h.path("second.pid")))
	q.says(fmt.Sprintf("ovnkube: this host has an ovnkube with --init-node: stop it first: %s: already running as pid %d, aborting", h.path("run/ovnkube-host.pid"), p.cmd.Process.Pid))
	if _ = q.cmd.Wait(); q.cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("status %d", q.cmd.ProcessState.ExitCode())
	}
	p.stop()
	h.start(strings.Fields(line + h.path("second.pid"))).says("waiting: ")
}

// AC-22: the log file gets a directory; if that is impossible, the program says so and goes on.
func TestLogFile(t *testing.T) {
	h := newHost(t)
	file := h.path("x/y/z.log")
	p := h.start(strings.Fields(waiting + "-logfile=" + file))
	p.says("waiting: ")
	if info, err := os.Stat(h.path("x/y")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	h.eventually("the log file has the line, too", func() bool { return strings.Contains(h.read(file), "waiting: ") })
	p.stop()
	h.write("file", "")
	q := h.start(strings.Fields(waiting + "-logfile=" + h.path("file/z.log")))
	q.says("going on without the log file " + h.path("file/z.log") + ": ")
	q.says("waiting: ")
}

// The level of the log is that of the option, and -v wins over it.
func TestLogLevel(t *testing.T) {
	for level, want := range map[string]string{"1": "EMER", "2": "ERR", "3": "WARN", "4": "INFO", "5": "DBG"} {
		h := newHost(t)
		h.startSwitch()
		p := h.start(strings.Fields(waiting + "-pidfile -logfile=" + h.path("log/x.log") + " -loglevel=" + level))
		var out []byte
		h.eventually("its control socket answers", func() (ok bool) {
			cmd := exec.Command("ovs-appctl", "--timeout=5", "-t", "ovnkube", "vlog/list")
			cmd.Env = append(os.Environ(), h.env()...)
			var err error
			out, err = cmd.Output()
			return err == nil
		})
		for line := range strings.Lines(string(out)) {
			words := strings.Fields(line)
			if len(words) == 4 && words[0] == "daemon" && words[3] != want {
				t.Errorf("level %s: %s", level, line)
			}
		}
		if !strings.Contains(string(out), "daemon ") {
			t.Errorf("%s", out)
		}
		p.stop()
	}
}

// One control socket has the commands of both roles.
func TestBothRoles(t *testing.T) {
	h := newHost(t)
	h.startSwitch()
	p := h.start(strings.Fields(waiting + "-init-node=n1 --pidfile"))
	p.says("waiting: ")
	out := h.tool("ovs-appctl", "--timeout=5", "-t", "ovnkube", "list-commands")
	for _, c := range []string{"pod/show", "rules/show", "master/reconcile/show", "node/reconcile/show"} {
		if !strings.Contains(out, c) {
			t.Errorf("no %s in\n%s", c, out)
		}
	}
	if got := h.tool("ovs-appctl", "--timeout=5", "-t", "ovnkube", "version"); got != "ovnkube development" {
		t.Errorf("version %q", got)
	}
}
