package failures

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

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
