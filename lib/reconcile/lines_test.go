package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// L1: a cheap event does not wait until all expensive ones of another line are recorded, and neither does its key.
func TestCheapEventsDoNotWaitForExpensiveOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, calls := recorder(nil)
		l.MinInterval = nil
		var recorded record[string]
		l.Record = func(e string) []string {
			if strings.HasPrefix(e, "service") {
				time.Sleep(mostRecording)
			}
			recorded.add(e)
			return []string{e}
		}
		var services []string
		for i := range 100 {
			services = append(services, fmt.Sprintf("service-%02d", i))
		}
		l.SendTo("services", services...)
		l.SendTo("pods", "pod-0", "pod-1")
		ctx, cancel := context.WithCancel(t.Context())
		go l.Run(ctx)
		time.Sleep(3*mostRecording + mostRecording/2)
		if got := recorded.get(); !slices.Equal(got, []string{"service-00", "pod-0", "service-01", "pod-1", "service-02"}) {
			t.Errorf("recorded %s", got)
		}
		if got := slices.Concat(calls.get()...); !slices.Contains(got, "pod-1") {
			t.Errorf("synced %s", got)
		}
		if s := l.Status(); s.Events != 97 {
			t.Errorf("%d events wait", s.Events)
		}
		time.Sleep(100 * mostRecording)
		got := slices.DeleteFunc(recorded.get(), func(e string) bool { return strings.HasPrefix(e, "pod") })
		if s := l.Status(); !slices.Equal(got, services) || s.Events != 0 {
			t.Errorf("recorded %s, %d events wait", got, s.Events)
		}
		cancel()
	})
}

func TestLinesTakeTurns(t *testing.T) {
	var l lines[int]
	l.add("a", []int{1, 2, 3, 4})
	l.add("none", nil)
	l.add("b", []int{10, 20})
	var got []int
	for {
		e, ok := l.take()
		if !ok {
			break
		}
		if got = append(got, e); e == 20 {
			l.add("c", []int{100})
		}
	}
	if want := []int{1, 10, 2, 20, 3, 100, 4}; !slices.Equal(got, want) || l.count != 0 || len(l.waiting)+len(l.turns) != 0 {
		t.Errorf("took %v, %+v is left", got, l)
	}
}
