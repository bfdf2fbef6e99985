package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The log file is rotated at its size, and one backup is kept; vlog/reopen works as without. Without the options, and for
// --logfile-maxsize=0, the log is never rotated.
func TestRotation(t *testing.T) {
	full := strings.Repeat("a line of a former process\n", 1<<20/27)
	for options, rotated := range map[string]bool{
		"-logfile=FILE -logfile-maxsize=1 -logfile-maxbackups=1": true, "--log-file=FILE -logfile-maxbackups=1 -logfile-maxsize=1": true,
		"-logfile=FILE": false, "-logfile=FILE -logfile-maxsize=0": false, "-logfile=FILE -logfile-maxage=100000": false,
	} {
		t.Run(options, func(t *testing.T) {
			h := newHost(t)
			h.startSwitch()
			file := h.write("log/x.log", full)
			former := h.write("log/x.log-2026-01-02T15-04-05.000", "")
			old := h.write("log/x.log.1", "of logrotate")
			p := h.start(append(strings.Fields(waiting+strings.ReplaceAll(options, "FILE", file)), "-pidfile"))
			h.eventually("the log file has a line", func() bool { return strings.Contains(h.read(file), "waiting: ") })
			backups, err := filepath.Glob(file + "-*")
			if err != nil {
				t.Fatal(err)
			}
			if !rotated {
				if len(backups) != 1 || backups[0] != former || !strings.HasPrefix(h.read(file), full) {
					t.Errorf("%q", backups)
				}
				return
			}
			if len(backups) != 1 || backups[0] == former {
				t.Fatalf("%q", backups)
			}
			if n := strings.Count(h.read(backups[0])+h.read(file), "a line of a former process\n"); n != strings.Count(full, "\n") {
				t.Errorf("%d lines of the former file", n)
			}
			if err := os.Rename(file, file+".2"); err != nil {
				t.Fatal(err)
			}
			h.tool("ovs-appctl", "--timeout=5", "-t", "ovnkube", "vlog/reopen")
			if got := h.read(file); !strings.Contains(got, "opened log file "+file) || h.read(old) != "of logrotate" {
				t.Errorf("%s", got)
			}
			p.stop()
		})
	}
}

// A daemon in the background has its log in two processes: the monitor writes to the file that the worker has made.
func TestRotationWithMonitor(t *testing.T) {
	h := newHost(t)
	file := h.path("log/x.log")
	if status, _, errs := h.once(strings.Fields(waiting + "-logfile-maxsize=1 -logfile=" + file + " -pidfile -monitor -detach")); status != 0 {
		t.Fatalf("status %d, %s", status, errs)
	}
	worker := strings.TrimSpace(h.read(h.path("run/ovnkube.pid")))
	monitor := strings.Fields(h.read("/proc/" + worker + "/stat"))[3]
	signal := func(name, pid string) { h.tool("kill", "-"+name, pid) }
	t.Cleanup(func() {
		_ = exec.Command("kill", "-KILL", monitor, worker).Run() // after a failure
	})
	h.write("full", strings.Repeat("a line of a former process\n", 1<<20/27))
	h.tool("sh", "-c", "cat "+h.path("full")+" >>"+file)
	h.tool("ovs-appctl", "--timeout=5", "-t", "ovnkube", "vlog/reopen") // it has a line
	oneBackup := func() {
		t.Helper()
		if backups, err := filepath.Glob(file + "-*"); len(backups) != 1 || err != nil {
			t.Fatalf("%q, %v", backups, err)
		}
	}
	oneBackup()
	// the monitor has a line when the worker is killed while both shall end
	signal("STOP", worker)
	h.eventually("all threads of the worker are stopped", func() bool {
		states := strings.Fields(h.tool("ps", "-L", "-o", "state=", "-p", worker))
		return !slices.ContainsFunc(states, func(s string) bool { return s != "T" })
	})
	signal("TERM", monitor)
	h.eventually("the monitor ends the worker", func() bool {
		return regexp.MustCompile(`(?m)^ShdPnd:\s+\w*[4-7c-f]\w{3}$`).MatchString(h.read("/proc/" + worker + "/status"))
	})
	signal("KILL", worker)
	h.eventually("the monitor's line", func() bool { return strings.Contains(h.read(file), "died, killed (SIGKILL), exiting") })
	oneBackup()
	h.eventually("the monitor has ended", func() bool {
		_, err := os.Stat("/proc/" + monitor)
		return os.IsNotExist(err)
	})
}
