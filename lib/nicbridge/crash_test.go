package nicbridge

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
)

var errInjected = errors.New("injected")

// failAt has the mover fail before step n, counted from 0. It returns how many
// steps there were.
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

// crashes moves in a direction again and again, failing or killed one step later
// each time, and demands the state of before. Once the move is verified it is the
// new state instead. It returns how often that was.
func (w *world) crashes(d Direction) (points int) {
	w.t.Helper()
	before := w.state()
	for n := 0; ; n++ {
		for _, with := range []error{errInjected, errKilled} {
			count := w.failAt(n, with)
			err := w.move(d)
			w.s.mover.before = nil
			if err == nil && count() <= n {
				return points // there is no such step: it is done
			}
			points++
			if !errors.Is(err, with) {
				w.t.Fatalf("step %d of %s: %v", n, d, err)
			}
			left, failed := w.s.store.all()
			if failed != nil || with == errInjected && len(left) > 0 && left[0].Phase != changed {
				w.t.Fatalf("step %d of %s: %v: a journal is left (%v)", n, d, err, failed)
			}
			w.recover(n)
			if len(left) > 0 && left[0].Phase == changed {
				return points
			}
			if after := w.state(); after != before {
				w.same("after a crash", before, after)
				w.t.Fatalf("step %d of %s: %v", n, d, with)
			}
		}
	}
}

// recover is the next run, which is killed once itself.
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

// missing lists addresses that are not where they should be.
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
	const wanted, parallel = 1000, 4
	var all atomic.Int64
	lanes(t, parallel, func(w *world, lane int) {
		for seed := uint64(1000 + lane); all.Load() < wanted; seed += parallel {
			lines := w.configure(seed)
			was := w.state()
			for _, d := range []Direction{ToBridge, ToNIC} {
				all.Add(int64(w.crashes(d)))
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
