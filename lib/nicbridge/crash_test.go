package nicbridge

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
)

var errInjected = errors.New("injected")

// failAt makes the mover fail before step n, counted from 0. count returns the number of steps done.
func (w *world) failAt(n int, with error) (count func() int) {
	i := 0
	w.s.mover.before = func(Step) error {
		i++
		if i-1 == n {
			return with
		}
		return nil
	}
	return func() int { return i }
}

// crashes repeats a move, each time failing or killed one step later, and expects the state before or, once the move
// is verified, after it. points counts the tries; crashes returns false if it stopped early at enough of them.
func (w *world) crashes(d Direction, points *atomic.Int64, enough int64) bool {
	w.t.Helper()
	before := w.state()
	for n := 0; ; n++ {
		if points.Load() >= enough {
			return false
		}
		for _, with := range []error{errInjected, errKilled} {
			count := w.failAt(n, with)
			err := w.move(d)
			w.s.mover.before = nil
			if err == nil && count() <= n {
				return true // there is no such step: the move is complete
			}
			points.Add(1)
			if !errors.Is(err, with) {
				w.t.Fatalf("step %d of %s: %v", n, d, err)
			}
			left, failed := w.s.store.all()
			if failed != nil || with == errInjected && len(left) > 0 && left[0].Phase != changed {
				w.t.Fatalf("step %d of %s: %v: a journal is left (%v)", n, d, err, failed)
			}
			w.recover(n)
			if len(left) > 0 && left[0].Phase == changed {
				return true
			}
			if after := w.state(); after != before {
				w.same("after a crash", before, after)
				w.t.Fatalf("step %d of %s: %v", n, d, with)
			}
		}
	}
}

// recover is the next run, itself killed once.
func (w *world) recover(n int) {
	w.t.Helper()
	w.failAt(n/2, errKilled)
	err := w.s.recover(w.t.Context(), w.s.overdue)
	w.s.mover.before = nil
	if err != nil && !errors.Is(err, errKilled) {
		w.t.Fatal(err)
	}
	if err := w.s.recover(w.t.Context(), w.s.overdue); err != nil {
		w.t.Fatal(err)
	}
}

// missing lists addresses missing from the expected interface.
func (w *world) missing(d Direction) (lost []string) {
	name := map[Direction]string{ToBridge: "breth0", ToNIC: "eth0"}[d]
	for _, line := range w.lines() {
		if strings.Contains(line, `"local":"10.0.0.5"`) && !strings.Contains(line, `"ifname":"`+name+`"`) {
			lost = append(lost, line)
		}
	}
	return lost
}

func TestCrashAtEveryStep(t *testing.T) {
	const parallel = 6
	wanted := int64(1000)
	if testing.Short() {
		wanted = 100
	}
	var all atomic.Int64
	lanes(t, parallel, func(w *world, lane int) {
		for seed := uint64(1000 + lane); ; seed += parallel {
			lines := w.configure(seed)
			was := w.state()
			for _, d := range []Direction{ToBridge, ToNIC} {
				if !w.crashes(d, &all, wanted) {
					return
				}
				if lost := w.missing(d); len(lost) > 0 {
					w.t.Errorf("after %s there is no %v", d, lost)
				}
			}
			w.same("after all", was, w.state())
			if w.t.Failed() {
				w.t.Fatalf("seed %d:\n%s", seed, strings.Join(lines, "\n"))
			}
		}
	})
	t.Logf("%d crash points", all.Load())
}

// bridges lists the contents of Open vSwitch's database.
func (w *world) bridges() string {
	w.t.Helper()
	out, err := w.h.Script(w.t.Context(), "for b in $(ovs-vsctl list-br); do echo $b: $(ovs-vsctl list-ports $b); done")
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// reboot sets the state after a reboot: the database and the journals are kept, and the kernel has the result of the
// host's own configuration.
func (w *world) reboot(configuration []string) {
	w.t.Helper()
	all, err := w.s.store.all()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, j := range all {
		j.Boot = "the one before"
		if err := w.s.store.write(j); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := w.h.Script(w.t.Context(), "! ip link show breth0 >/dev/null 2>&1 || ip addr flush dev breth0"); err != nil {
		w.t.Fatal(err)
	}
	w.reset()
	if err := w.batch(configuration); err != nil {
		w.t.Fatal(err)
	}
}

// A move interrupted by a crash of the machine is undone in the database, at every step. The result of the host's
// configuration stays.
func TestAMachineThatRebootsInTheMiddle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	configuration := func(name string) []string { return []string{"address add 10.0.0.5/24 brd + dev " + name} }
	for _, d := range []Direction{ToBridge, ToNIC} {
		points := 0
		for n := 0; ; n++ {
			if _, err := w.h.Script(t.Context(), "ovs-vsctl --if-exists del-br breth0"); err != nil {
				t.Fatal(err)
			}
			w.reboot(append(configuration("eth0"), "route add default via 10.0.0.1 dev eth0"))
			configured := "eth0"
			if d == ToNIC {
				configured = "breth0"
				if err := w.move(ToBridge); err != nil {
					t.Fatal(err)
				}
			}
			before := w.bridges()
			count := w.failAt(n, errKilled)
			err := w.move(d)
			w.s.mover.before = nil
			if err == nil && count() <= n {
				break
			}
			left, failed := w.s.store.all()
			if failed != nil || len(left) != 1 {
				t.Fatalf("step %d of %s: journals %v: %v", n, d, left, failed)
			}
			if left[0].Phase == changed { // only the bridge was left
				before, configured = "", "eth0"
			}
			w.reboot(nil)
			if err := w.s.recover(t.Context(), w.s.overdue); err != nil {
				t.Fatalf("step %d of %s: %v", n, d, err)
			}
			if err := w.batch(configuration(configured)); err != nil {
				t.Fatalf("step %d of %s: the host's own configuration: %v", n, d, err)
			}
			w.same(fmt.Sprintf("step %d of %s", n, d), before, w.bridges())
			if left, err := w.s.store.all(); err != nil || len(left) > 0 {
				t.Errorf("step %d of %s: journals %v: %v", n, d, left, err)
			}
			points++
		}
		t.Logf("%s: %d steps", d, points)
	}
}
