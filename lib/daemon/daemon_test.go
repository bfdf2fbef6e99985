package daemon_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func ctl(pid int) string { return fmt.Sprintf("prog.%d.ctl", pid) }

func TestCheck37_PidfileAndAppctl(t *testing.T) {
	w := newWorld(t)
	if status, stderr := w.run("--pidfile", "--detach"); status != 0 || stderr != "" {
		t.Fatalf("status %d: %s", status, stderr)
	}
	pid := w.ready()
	if got := w.pidfile("prog.pid"); got != pid {
		t.Errorf("pidfile says %d, the daemon is %d", got, pid)
	}
	w.wantFiles(ctl(pid), "prog.pid")

	status, stderr := w.run("--pidfile", "--detach")
	want := fmt.Sprintf("prog: %s: already running as pid %d, aborting\n", w.path("prog.pid"), pid)
	if status != 1 || stderr != want {
		t.Errorf("second start: status %d, %q, want %q", status, stderr, want)
	}
	w.wantFiles(ctl(pid), "prog.pid")

	status, help := w.appctl("-t", "prog", "help")
	if status != 0 || !strings.HasPrefix(help, "The available commands are:\n") {
		t.Errorf("status %d: %s", status, help)
	}
	for _, c := range []string{"exit", "vlog/set", "vlog/list", "vlog/reopen", "vlog/close", "version", "list-commands", "test/say"} {
		if !strings.Contains(help, "\n  "+c) {
			t.Errorf("help lacks %s:\n%s", c, help)
		}
	}
	if _, list := w.appctl("-t", "prog", "list-commands"); list != help {
		t.Errorf("list-commands and help differ:\n%s", list)
	}

	w.kill(pid, unix.SIGTERM)
	w.gone(pid)
	w.wantFiles()
}

// A script starts the next daemon at once after the command "exit".
func TestExitReturnsAtTheEnd(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		if status, stderr := w.run("--pidfile", "--unixctl=prog.ctl", "--detach", "--fault=linger"); status != 0 {
			t.Fatalf("status %d: %s", status, stderr)
		}
		w.ready()
		if status, out := w.appctl("-t", w.path("prog.ctl"), "exit"); status != 0 || out != "" {
			t.Fatalf("exit: status %d, %q", status, out)
		}
		w.wantFiles()
	}
}

func TestSignalsAndExitTidyUp(t *testing.T) {
	for name, end := range map[string]func(*world, int){
		"SIGTERM": func(w *world, pid int) { w.kill(pid, unix.SIGTERM) },
		"SIGINT":  func(w *world, pid int) { w.kill(pid, unix.SIGINT) },
		"SIGHUP":  func(w *world, pid int) { w.kill(pid, unix.SIGHUP) },
		"exit": func(w *world, pid int) {
			if status, out := w.appctl("-t", "prog", "exit"); status != 0 || out != "" {
				w.t.Errorf("exit: status %d, %q", status, out)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := w.start("--pidfile")
			pid := w.ready()
			w.wantFiles(ctl(pid), "prog.pid")
			end(w, pid)
			if status := r.wait(); status != 0 {
				t.Errorf("status %d: %s", status, r.stderr)
			}
			w.wantFiles()
		})
	}
}

func TestWithoutPidfile(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	pid := w.ready()
	w.wantFiles(ctl(pid))
	if status, out := w.appctl("-t", w.path(ctl(pid)), "version"); status != 0 || out != "prog 1.2.3\n" {
		t.Errorf("status %d, %q", status, out)
	}
	w.kill(pid, unix.SIGTERM)
	r.wait()
	w.wantFiles()
}

func TestPidfileNames(t *testing.T) {
	w := newWorld(t)
	elsewhere := t.TempDir() + "/x.pid"
	r := w.start("--pidfile=other.pid")
	pid := w.ready()
	if got := w.pidfile("other.pid"); got != pid {
		t.Errorf("other.pid has %d, want %d", got, pid)
	}
	r2 := w.start("--pidfile=" + elsewhere)
	pid2 := w.ready()
	b, err := os.ReadFile(elsewhere)
	if err != nil || string(b) != fmt.Sprintln(pid2) {
		t.Errorf("%s has %q, %v, want %d", elsewhere, b, err, pid2)
	}
	w.kill(pid, unix.SIGTERM)
	w.kill(pid2, unix.SIGTERM)
	r.wait()
	r2.wait()
	if _, err := os.Stat(elsewhere); err == nil {
		t.Errorf("%s is left", elsewhere)
	}
	w.wantFiles()
}

// A killed process leaves its pidfile and its socket behind; the next one removes both.
func TestStalePidfileIsReplaced(t *testing.T) {
	w := newWorld(t)
	r := w.start("--pidfile")
	old := w.ready()
	w.kill(old, unix.SIGKILL)
	r.wait()
	w.wantFiles(ctl(old), "prog.pid")
	w.start("--pidfile")
	pid := w.ready()
	if got := w.pidfile("prog.pid"); got != pid {
		t.Errorf("pidfile says %d, the daemon is %d", got, pid)
	}
	w.wantFiles(ctl(pid), "prog.pid")
}

func TestOverwritePidfile(t *testing.T) {
	w := newWorld(t)
	first := w.start("--pidfile")
	old := w.ready()
	w.start("--pidfile", "--overwrite-pidfile")
	pid := w.ready()
	if got := w.pidfile("prog.pid"); got != pid {
		t.Errorf("pidfile says %d, the daemon is %d", got, pid)
	}
	w.kill(old, unix.SIGTERM)
	first.wait()
	w.wantFiles(ctl(pid), "prog.pid") // the first one leaves the second's file alone
	if status, stderr := w.run("--pidfile"); status != 1 || !strings.Contains(stderr, fmt.Sprintf("already running as pid %d", pid)) {
		t.Errorf("third start: status %d, %s", status, stderr)
	}
}

// Many starts at once on a stale pidfile: one wins.
func TestOneOfManyStartsWins(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		stale := fmt.Sprintln(1 << 21)
		if err := os.WriteFile(w.path("prog.pid"), []byte(stale), 0o644); err != nil {
			t.Fatal(err)
		}
		const n = 6
		results := make(chan int, n)
		for range n {
			go func() {
				cmd := w.command("--pidfile", "--detach")
				_ = cmd.Run()
				results <- cmd.ProcessState.ExitCode()
			}()
		}
		won := 0
		for range n {
			if <-results == 0 {
				won++
			}
		}
		pid := w.ready()
		if won != 1 || w.pidfile("prog.pid") != pid {
			t.Errorf("%d starts succeeded; pidfile %d, daemon %d", won, w.pidfile("prog.pid"), pid)
		}
		w.kill(pid, unix.SIGTERM)
		w.gone(pid)
		w.wantFiles()
	}
}

// Open vSwitch's own daemons respect our lock, and we respect theirs.
func TestLockIsOpenVSwitchs(t *testing.T) {
	needTool(t, "ovsdb-server")
	w := newWorld(t)
	db := w.database()
	ovsdb := func() (int, string) {
		cmd := exec.Command("ovsdb-server", db, "--detach", "--pidfile="+w.path("prog.pid"), "-vconsole:off", "--unixctl="+w.path("db.ctl"))
		cmd.Env = w.env()
		return w.finish(cmd)
	}
	r := w.start("--pidfile")
	pid := w.ready()
	if status, out := ovsdb(); status != 1 || !strings.Contains(out, fmt.Sprintf("prog.pid: already running as pid %d, aborting", pid)) {
		t.Errorf("ovsdb-server: status %d, %s", status, out)
	}
	w.kill(pid, unix.SIGTERM)
	r.wait()
	if status, out := ovsdb(); status != 0 {
		t.Fatalf("ovsdb-server: status %d, %s", status, out)
	}
	theirs := w.pidfile("prog.pid")
	w.reap(theirs)
	if status, out := w.run("--pidfile"); status != 1 || !strings.Contains(out, fmt.Sprintf("prog.pid: already running as pid %d, aborting", theirs)) {
		t.Errorf("ours: status %d, %s", status, out)
	}
}

func TestDetachReportsFailure(t *testing.T) {
	for _, options := range [][]string{{"--detach"}, {"--detach", "--monitor"}, {"--monitor"}, {}} {
		for fault, want := range map[string]struct {
			status int
			stderr string
		}{
			"error":  {1, "prog: opening database: no such socket\n"},
			"status": {7, "prog: fault of status 7\n"},
			"done":   {0, ""},
		} {
			t.Run(strings.Join(append(options, fault), " "), func(t *testing.T) {
				w := newWorld(t)
				status, stderr := w.run(append(options, "--pidfile", "--fault="+fault)...)
				if status != want.status || stderr != want.stderr {
					t.Errorf("status %d, %q, want %d, %q", status, stderr, want.status, want.stderr)
				}
				w.wantFiles()
			})
		}
	}
}

func TestDetachReportsDeath(t *testing.T) {
	for _, options := range [][]string{{"--detach"}, {"--detach", "--monitor"}} {
		w := newWorld(t)
		status, stderr := w.run(append(options, "--fault=killed")...)
		if status != 1 || stderr != "prog: the daemon died: killed (SIGKILL)\n" {
			t.Errorf("%s: status %d, %q", options, status, stderr)
		}
	}
}

func TestStoppingADetachThatIsNotReady(t *testing.T) {
	for _, options := range [][]string{{"--detach"}, {"--detach", "--monitor"}} {
		w := newWorld(t)
		r := w.start(append(options, "--fault=slow", "--pidfile")...)
		pid := w.ready()
		w.kill(r.cmd.Process.Pid, unix.SIGTERM)
		if status := r.wait(); status != 0 || r.stderr.Len() > 0 {
			t.Errorf("%s: status %d, %s", options, status, r.stderr)
		}
		w.gone(pid)
		w.wantFiles()
	}
}

func TestDetachLeavesTheTerminal(t *testing.T) {
	for _, tt := range []struct {
		options []string
		cwd     func(*world) string
	}{
		{[]string{"--detach"}, func(*world) string { return "/" }},
		{[]string{"--detach", "--no-chdir"}, func(w *world) string { return w.dir }},
		{[]string{"--detach", "--monitor"}, func(*world) string { return "/" }},
	} {
		t.Run(strings.Join(tt.options, " "), func(t *testing.T) {
			w := newWorld(t)
			if status, out := w.run(tt.options...); status != 0 {
				t.Fatalf("status %d: %s", status, out)
			}
			pid := w.ready()
			monitored := len(tt.options) > 1 && tt.options[1] == "--monitor"
			leader := pid
			if monitored {
				leader = w.parent(pid)
				w.reap(leader)
			}
			if sid, err := unix.Getsid(pid); err != nil || sid != leader {
				t.Errorf("session %d, %v, want %d", sid, err, leader)
			}
			if cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err != nil || cwd != tt.cwd(w) {
				t.Errorf("working directory %q, %v", cwd, err)
			}
			for _, p := range []int{pid, leader} {
				for fd := range 3 {
					if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", p, fd)); err != nil || to != os.DevNull {
						t.Errorf("descriptor %d of %d is %q, %v", fd, p, to, err)
					}
				}
			}
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", leader))
			if err != nil || strings.Contains(string(env), "OVN_K8S_DAEMON_RESTARTED") {
				t.Errorf("environment %q, %v", env, err)
			}
		})
	}
}

// A relative run or log directory means the same after the change to /.
func TestRelativeDirectories(t *testing.T) {
	w := newWorld(t)
	cmd := w.command("--detach", "--pidfile", "--log-file")
	cmd.Env = append(cmd.Env, "OVS_RUNDIR=.", "OVS_LOGDIR=.")
	if status, out := w.finish(cmd); status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	pid := w.ready()
	w.wantFiles(ctl(pid), "prog.log", "prog.pid")
	if status, out := w.appctl("-t", "prog", "vlog/reopen"); status != 0 {
		t.Errorf("status %d: %s", status, out)
	}
	w.kill(pid, unix.SIGTERM)
	w.gone(pid)
	w.wantFiles("prog.log")
	if log := w.read("prog.log"); !strings.Contains(log, "|vlog|INFO|opened log file "+w.path("prog.log")+"\n") {
		t.Error(log)
	}
}

// A detached daemon logs its fatal error, since it has no stderr.
func TestFailureOfADetachedDaemonIsLogged(t *testing.T) {
	w := newWorld(t)
	if status, out := w.run("--detach", "--pidfile", "--log-file", "-vconsole:emer"); status != 0 || out != "" {
		t.Fatalf("status %d: %s", status, out)
	}
	pid := w.ready()
	w.appctl("-t", "prog", "test/end", "4")
	w.gone(pid)
	if log := w.read("prog.log"); !strings.Contains(log, "|daemon|ERR|terminating: fault of status 4\n") {
		t.Error(log)
	}
	w.wantFiles("prog.log")
}

func TestMonitorStartsACrashedDaemonAgain(t *testing.T) {
	signal := func(sig syscall.Signal) func(*world, int) {
		return func(w *world, pid int) { w.kill(pid, sig) }
	}
	command := func(args ...string) func(*world, int) {
		return func(w *world, _ int) { w.appctl(append([]string{"-t", "prog"}, args...)...) }
	}
	for _, tt := range []struct {
		name  string
		crash func(*world, int)
		why   string
	}{
		{"SIGKILL", signal(unix.SIGKILL), "killed (SIGKILL)"},
		{"SIGABRT", signal(unix.SIGABRT), "killed (SIGABRT)"},
		{"SIGSEGV", signal(unix.SIGSEGV), "killed (SIGABRT)"}, // Go's runtime turns it into an abort
		{"panic", command("test/panic"), "killed (SIGABRT)"},
		{"status 5", command("test/end", "5"), "exit status 5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if status, out := w.run("--detach", "--monitor", "--pidfile", "--log-file"); status != 0 {
				t.Fatalf("status %d: %s", status, out)
			}
			first := w.ready()
			monitor := w.parent(first)
			w.reap(monitor)
			if got := w.pidfile("prog.pid"); got != first {
				t.Errorf("pidfile says %d, the daemon is %d", got, first)
			}
			tt.crash(w, first)
			second := w.ready()
			if w.parent(second) != monitor || second == first {
				t.Errorf("daemon %d of %d, then %d of %d", first, monitor, second, w.parent(second))
			}
			if got := w.pidfile("prog.pid"); got != second {
				t.Errorf("pidfile says %d, the daemon is %d", got, second)
			}
			w.wantFiles(ctl(second), "prog.log", "prog.pid")
			if status, out := w.appctl("-t", "prog", "version"); status != 0 {
				t.Errorf("status %d: %s", status, out)
			}
			log := w.read("prog.log")
			if want := fmt.Sprintf("|daemon|WARN|restarted by the monitor: pid %d died, %s\n", first, tt.why); !strings.Contains(log, want) {
				t.Errorf("no %q in\n%s", want, log)
			}
			if tt.name == "panic" && !strings.Contains(log, "panic: boom") {
				t.Errorf("no traceback in\n%s", log)
			}

			w.kill(monitor, unix.SIGTERM) // forwarded to the worker
			w.gone(monitor)
			w.gone(second)
			w.wantFiles("prog.log")
		})
	}
}

func TestMonitorEndsAsTheDaemonDoes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		end    func(*world, int)
		status int
		stderr string
	}{
		{"status", func(w *world, _ int) { w.appctl("-t", "prog", "test/end", "3") }, 3, "prog: fault of status 3\n"},
		{"exit", func(w *world, _ int) { w.appctl("-t", "prog", "exit") }, 0, ""},
		{"SIGTERM", func(w *world, pid int) { w.kill(pid, unix.SIGTERM) }, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			r := w.start("--monitor", "--pidfile", "-vconsole:emer")
			tt.end(w, w.ready())
			if status := r.wait(); status != tt.status || r.stderr.String() != tt.stderr {
				t.Errorf("status %d, %q", status, r.stderr)
			}
			w.wantFiles()
		})
	}
}

// A second crash within 10 s is restarted later; the monitor can be stopped until then.
func TestMonitorIsStoppedWhileItWaits(t *testing.T) {
	w := newWorld(t)
	r := w.start("--monitor", "--pidfile", "-vconsole:emer")
	w.kill(w.ready(), unix.SIGKILL)
	second := w.ready()
	w.kill(second, unix.SIGKILL)
	w.gone(second)
	w.kill(r.cmd.Process.Pid, unix.SIGTERM)
	if status := r.wait(); status != 0 && status != 1 || strings.Count(r.stderr.String(), "\n") > 1 {
		t.Errorf("status %d, %s", status, r.stderr)
	}
}

func TestBadRunDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	for _, tt := range []struct{ rundir, option, want string }{
		{dir + "/no", "--pidfile", "prog: making " + dir + "/no/prog.pid: stat " + dir + "/no: no such file or directory\n"},
		{dir + "/file", "--pidfile=x", "prog: making " + dir + "/file/x: stat " + dir + "/file: not a directory\n"},
		{dir + "/no", "--unixctl=c", "prog: making " + dir + "/no/c: stat " + dir + "/no: no such file or directory\n"},
		{"/proc", "--unixctl=c", "prog: making control socket /proc/c: "},
		{"/proc", "--pidfile", "prog: creating pidfile: open /proc/prog.pid.tmp"},
	} {
		for _, detach := range []bool{false, true} {
			args := []string{tt.option}
			if detach {
				args = append(args, "--detach")
			}
			cmd := w.command(args...)
			cmd.Env = append(cmd.Env, "OVS_RUNDIR="+tt.rundir)
			if status, stderr := w.finish(cmd); status != 1 || !strings.HasPrefix(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("%+v: status %d, %q", tt, status, stderr)
			}
		}
	}
}

// -vfile:dbg -vconsole:emer: the Python version used only the last one.
func TestLogOptionsAndCommands(t *testing.T) {
	w := newWorld(t)
	if status, out := w.run("--pidfile", "--log-file", "-vfile:dbg", "-vconsole:emer", "--detach"); status != 0 || out != "" {
		t.Fatalf("status %d: %s", status, out)
	}
	w.ready()
	try := func(want string, args ...string) {
		t.Helper()
		if status, out := w.appctl(append([]string{"-t", "prog"}, args...)...); status != 0 || !strings.Contains(out, want) {
			t.Errorf("%q: status %d, %s", args, status, out)
		}
	}
	try("daemon            EMER", "vlog/list")
	try("", "test/debug")
	try("", "vlog/set", "test:file:info")
	try("", "test/debug")
	try("test              EMER", "vlog/list")
	if log := w.read("prog.log"); strings.Count(log, "|test|DBG|detail\n") != 1 {
		t.Error(log)
	}
	if err := os.Rename(w.path("prog.log"), w.path("prog.log.1")); err != nil {
		t.Fatal(err)
	}
	try("", "vlog/reopen")
	try("", "vlog/set", "dbg")
	try("", "test/debug")
	if log := w.read("prog.log"); strings.Count(log, "|test|DBG|detail\n") != 1 {
		t.Error(log)
	}
}
