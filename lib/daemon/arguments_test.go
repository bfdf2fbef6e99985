package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The value of a secret option reaches the program, also over --detach and --monitor and after a crash, and is in no
// command line, no environment and no open file of its processes.
func TestHiddenArguments(t *testing.T) {
	const secret = "canary-3f9a"
	for _, spelling := range [][]string{{"--token=" + secret}, {"-token", secret}, {"-token=" + secret}, {"--token", secret}} {
		for _, how := range [][]string{nil, {"--detach"}, {"--detach", "--monitor"}} {
			t.Run(strings.ReplaceAll(fmt.Sprint(spelling, how), secret, "X"), func(t *testing.T) {
				w := newWorld(t)
				args := append(append([]string{"--pidfile"}, spelling...), how...)
				var pid int
				if how == nil {
					w.start(args...)
					pid = w.ready()
				} else {
					if status, out := w.run(args...); status != 0 {
						t.Fatalf("status %d: %s", status, out)
					}
					pid = w.ready()
				}
				w.wantHidden(pid, secret)
				if len(how) == 2 {
					w.wantHidden(w.parent(pid), secret)
					w.kill(pid, unix.SIGKILL)
					pid = w.ready()
					w.wantHidden(pid, secret)
				}
			})
		}
	}
}

// Launcher, monitor and worker leave no core from their start on if there is a secret among their arguments.
func TestNoCoreWithASecret(t *testing.T) {
	for option, want := range map[string]string{"--token=canary-3f9a": "0", "--fault=": "1"} {
		t.Run(option, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv(dumpableDir, dir)
			w := newWorld(t)
			if status, out := w.run("--pidfile", "--detach", "--monitor", option); status != 0 {
				t.Fatalf("status %d: %s", status, out)
			}
			w.reap(w.parent(w.ready()))
			all, err := os.ReadDir(dir)
			if err != nil || len(all) != 3 {
				t.Fatalf("%v, %v", all, err)
			}
			for _, f := range all {
				if is := w.readFile(filepath.Join(dir, f.Name())); is != want {
					t.Errorf("process %s of launcher, monitor and worker: dumpable is %s, want %s", f.Name(), is, want)
				}
			}
		})
	}
}

// wantHidden checks that a process knows a secret and does not show it.
func (w *world) wantHidden(pid int, secret string) {
	w.t.Helper()
	dir := fmt.Sprintf("/proc/%d/", pid)
	line := w.readFile(dir + "cmdline")
	if strings.Contains(line, secret) || !strings.Contains(line, strings.Repeat("*", len(secret))) {
		w.t.Errorf("command line %q", line)
	}
	if strings.Contains(w.readFile(dir+"environ"), secret) {
		w.t.Error("it is in the environment")
	}
	if strings.Contains(line, "--monitor") && w.pidfile("prog.pid") != pid {
		return // the monitor itself
	}
	if status, out := w.appctl("-t", w.path(fmt.Sprintf("prog.%d.ctl", pid)), "test/token"); status != 0 || strings.TrimSpace(out) != secret {
		w.t.Errorf("the program has the token %q (status %d)", out, status)
	}
	open, err := filepath.Glob(dir + "fd/*")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, fd := range open {
		if to, _ := os.Readlink(fd); strings.Contains(to, "memfd") {
			w.t.Errorf("%s is %s", fd, to)
		}
	}
}

func (w *world) readFile(name string) string {
	w.t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}
