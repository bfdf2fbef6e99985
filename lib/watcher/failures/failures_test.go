package failures

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"ovn-k8s/lib/nb"
)

// An object alternating between good and bad has a few lines in the log, and then one a minute.
func TestAnObjectInTurnsHasFewLines(t *testing.T) {
	logger, hook := test.NewNullLogger()
	logger.SetOutput(io.Discard)
	r := New(logrus.NewEntry(logger), func(func() []nb.Unit) {}, func(nb.Unit, error) {})
	const u = nb.Unit("policy/tenant/flips")
	lines := func() (out []string) {
		for _, l := range hook.AllEntries() {
			out = append(out, fmt.Sprint(l.Level, " ", l.Message))
		}
		hook.Reset()
		return out
	}
	expect := func(want ...string) {
		t.Helper()
		if got := lines(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	turn := func(times int) {
		for i := range times {
			r.Report([]nb.Unit{u}, map[nb.Unit]error{u: errors.New("is bad")})
			if i < times-1 {
				r.Report([]nb.Unit{u}, nil)
			}
		}
	}
	turn(100)
	expect("warning is bad", "info recovered")
	r.lines.sumUp(u)
	expect("warning is bad (changes since the last line: 197)")
	r.Report([]nb.Unit{u}, nil)
	expect()
	r.lines.sumUp(u)
	expect("info recovered (changes since the last line: 1)")
	r.lines.sumUp(u)
	expect()
	turn(1)
	expect("warning is bad")
}

// Thousands of units failing at once have an Event each, slowly enough for client-go, and policies first. Units with a recovery
// meanwhile have none.
func TestEventsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, _ := test.NewNullLogger()
		events, told := make(chan func() []nb.Unit, 100), []nb.Unit{}
		r := New(logrus.NewEntry(logger), func(ev func() []nb.Unit) { events <- ev }, func(u nb.Unit, _ error) { told = append(told, u) })
		const pods = 5 * eventBatch / 2
		tried, failed := []nb.Unit{}, map[nb.Unit]error{}
		add := func(u nb.Unit) {
			tried, failed[u] = append(tried, u), errors.New("the subnet is full")
		}
		for i := range pods {
			add(nb.Unit(fmt.Sprintf("pod/default/p%04d", i)))
		}
		add("policy/default/a")
		r.Report(tried, failed)
		r.Report(tried, failed)
		if len(told) != eventBatch || told[0] != "policy/default/a" {
			t.Errorf("%d at once, the first about %s", len(told), told[0])
		}
		last := tried[pods-1]
		delete(failed, last)
		r.Report(tried, failed)
		for range 4 {
			time.Sleep(eventPause)
			synctest.Wait()
			for before := len(told); len(events) > 0; {
				if (<-events)(); len(told) > before+eventBatch {
					t.Errorf("%d at once", len(told)-before)
				}
			}
		}
		slices.Sort(told)
		if n := len(slices.Compact(told)); n != pods || len(told) != n || slices.Contains(told, last) {
			t.Errorf("%d Events about %d units, want %d", len(told), n, pods)
		}
		if failed[last] = errors.New("is bad"); r.told != 0 {
			t.Errorf("%d Events count after a pause", r.told)
		}
		r.Report(tried, failed)
		if told[len(told)-1] != last {
			t.Error("a single failure has no Event at once")
		}
	})
}
