package cni_test

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stages are effects of an ADD in the order of their appearance.
var stages = []struct {
	name string
	seen func(w *world, s *sandbox) bool
}{
	{"veth pair", func(w *world, s *sandbox) bool {
		return exec.Command("ip", "netns", "exec", w.netns, "test", "-e", "/sys/class/net/"+s.host()).Run() == nil
	}},
	{"address", func(_ *world, s *sandbox) bool {
		out, err := s.exec("ip", "-o", "-4", "addr", "show", "dev", "eth0").Output()
		return err == nil && len(out) > 0
	}},
	{"port", func(w *world, s *sandbox) bool {
		return w.in("ovs-vsctl", "--timeout=5", "get", "Interface", s.host(), "external_ids:sandbox").Run() == nil
	}},
	{"installed", func(w *world, s *sandbox) bool {
		return w.in("ovs-vsctl", "--timeout=5", "get", "Interface", s.host(), "external_ids:ovn-installed").Run() == nil
	}},
}

// interrupt sends a signal once a stage is reached, or after a timeout: short stages are hit by chance.
func interrupt(t *testing.T, s *sandbox, signal syscall.Signal, after func(r *run)) *run {
	t.Helper()
	r := s.start(t, run{command: "ADD"})
	after(r)
	r.signal(t, signal)
	_ = r.cmd.Wait()
	return r
}

func whenSeen(t *testing.T, w *world, s *sandbox, stage int) func(*run) {
	return func(*run) {
		await(t, stages[stage].name, func() bool { return stages[stage].seen(w, s) })
	}
}

// An ADD whose result cannot be written is undone, and the log has the reason: the runtime does not get it. It may be gone, too:
// then the pipe has no reader.
func testResultNotWritten(t *testing.T, w *world) {
	const closed = `pipe=$(mktemp -u) && mkfifo "$pipe" && exec 3<>"$pipe" >"$pipe" 3<&- && rm "$pipe"`
	for setup, problem := range map[string]string{"exec >/dev/full": "no space left on device", closed: "broken pipe"} {
		s := w.sandbox(t, nil)
		s.assign(t)
		r := s.start(t, run{command: "ADD", setup: setup})
		if err := r.cmd.Wait(); err == nil {
			t.Error("ADD succeeded without a result")
		}
		if text := r.stderr.String(); !strings.Contains(text, "writing the result") || !strings.Contains(text, problem) {
			t.Errorf("the reason, %s, is not on standard error: %s", problem, text)
		}
		if log := w.log(t); !w.served && !(strings.Contains(log, "ADD: writing the result") && strings.Contains(log, problem)) {
			t.Errorf("the reason, %s, is not in the log: %s", problem, log)
		}
		w.clean(t, "by an ADD without a result: "+problem)
	}
}

// SIGTERM undoes everything, even without a DEL.
func testSigterm(t *testing.T, w *world) {
	for i := range stages[:3] {
		s := w.sandbox(t, nil)
		s.annotate(t, s.annotation()) // without logical port: it is never installed
		r := interrupt(t, s, syscall.SIGTERM, whenSeen(t, w, s, i))
		if !strings.Contains(r.stdout.String(), `"code": 11`) {
			t.Errorf("at %s: %s%s", stages[i].name, r.stdout.String(), r.stderr.String())
		}
		w.clean(t, "by SIGTERM at "+stages[i].name)
	}
	for n := range 20 {
		s := w.sandbox(t, nil)
		s.annotate(t, s.annotation())
		interrupt(t, s, syscall.SIGTERM, func(*run) { time.Sleep(time.Duration(n) * 4 * time.Millisecond) })
		w.clean(t, fmt.Sprintf("by SIGTERM after %d ms", n*4))
	}
}

// After kill -9 at any point, DEL or GC removes everything.
func testKill(t *testing.T, w *world) {
	mend := func(s *sandbox, n int, when string) {
		if n%2 == 0 {
			s.del(t)
			w.clean(t, "by DEL after SIGKILL "+when)
			return
		}
		if res := s.call(t, run{command: "GC", conf: map[string]any{"cni.dev/valid-attachments": []any{}}}); res.Code != 0 {
			t.Errorf("GC: %+v", res)
		}
		w.clean(t, "by GC after SIGKILL "+when)
	}
	for i := range stages {
		for n := range 2 {
			s := w.sandbox(t, nil)
			s.assign(t)
			interrupt(t, s, syscall.SIGKILL, whenSeen(t, w, s, i))
			mend(s, n, "at "+stages[i].name)
		}
	}
	for n := range 40 {
		s := w.sandbox(t, nil)
		s.assign(t)
		interrupt(t, s, syscall.SIGKILL, func(*run) { time.Sleep(time.Duration(n) * 2 * time.Millisecond) })
		mend(s, n, fmt.Sprintf("after %d ms", n*2))
	}
	// and ADD continues after a killed one
	s := w.sandbox(t, nil)
	s.assign(t)
	interrupt(t, s, syscall.SIGKILL, whenSeen(t, w, s, 0))
	s.add(t)
	s.ping(t, "10.1.0.1")
	s.del(t)
}

func testMissingStage(t *testing.T, w *world) {
	w.setIDs(t, "ovn-k8s-cni-timeout=4s")
	defer w.setIDs(t, "ovn-k8s-cni-timeout=60s")
	fails := func(s *sandbox, want string) {
		t.Helper()
		if res := s.call(t, run{command: "ADD"}); res.Code != 11 || !strings.Contains(res.Details, want) || !strings.Contains(res.Details, "default/"+s.pod+" after ") {
			t.Errorf("want %q: %+v", want, res)
		}
		w.clean(t, "by a failed ADD")
	}
	unbound := w.sandbox(t, nil)
	unbound.annotate(t, unbound.annotation())
	fails(unbound, "no Port_Binding: is ovn-northd running?")

	s := w.sandbox(t, nil)
	s.assign(t)
	w.otherNorthd(t, func() {
		fails(s, "has it the version of ovn-northd, 99.0? external_ids:ovn-match-northd-version demands this")
	})
	w.stop("ovn-controller")
	fails(s, "has not claimed the Port_Binding: is ovn-controller running?")
	w.stop("ovs-vswitchd")
	fails(s, "is ovs-vswitchd running?")
	w.startVswitchd(t)
	w.startController(t)

	remote := w.central.SB
	w.setIDs(t, "ovn-remote=unix:/nonexistent")
	fails(s, "cannot tell the stage")
	w.setIDs(t, "ovn-remote="+remote, "ovn-k8s-cni-timeout=60s")
	s.add(t)
	s.ping(t, "10.1.0.1")
	s.del(t)
}

// otherNorthd runs do while ovn-controller waits for an ovn-northd of its own version.
func (w *world) otherNorthd(t *testing.T, do func()) {
	t.Helper()
	if err := w.central.Sync(); err != nil {
		t.Fatal(err)
	}
	w.central.StopNorthd()
	if _, err := w.central.SBCtl("set", "SB_Global", ".", "options:northd_internal_version=99.0"); err != nil {
		t.Fatal(err)
	}
	w.setIDs(t, "ovn-match-northd-version=true")
	do()
	w.vsctl(t, "remove", "Open_vSwitch", ".", "external_ids", "ovn-match-northd-version")
	if err := w.central.StartNorthd(); err != nil {
		t.Fatal(err)
	}
}
