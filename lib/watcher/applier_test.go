package watcher

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/watcher/core"
)

// twoUnits is a World of the units "slow" and "quick", each with one row.
type twoUnits struct {
	World
	id string // of the rows
}

func (w *twoUnits) Allocate() []nb.Unit { return nil }

func (w *twoUnits) Owns(nb.Unit) bool { return true }

func (w *twoUnits) Rows(nb.Unit) ([]nb.Row, error) { return []nb.Row{{ID: w.id}}, nil }

// A slowStore is an Applier. The test decides how long the unit "slow" takes.
type slowStore struct {
	Applier
	changed func(nb.Unit)
	begun   chan string   // the row of "slow" at the start of its write
	release chan struct{} // lets one write end

	mu   sync.Mutex
	has  map[nb.Unit]string // the rows
	busy bool
}

// Apply implements Applier.
func (s *slowStore) Apply(_ context.Context, want map[nb.Unit][]nb.Row) (Work, map[nb.Unit]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := map[nb.Unit]error{}
	for u, rows := range want {
		id := rows[0].ID
		switch {
		case s.has[u] == id:
		case u == "quick":
			s.has[u] = id
		default:
			failed[u] = ErrPending
			s.write(id)
		}
	}
	return Work{}, failed
}

// write begins to write the row of "slow", unless a write is under way. s.mu is held.
func (s *slowStore) write(id string) {
	if s.busy {
		return
	}
	s.busy = true
	go func() {
		s.begun <- id
		<-s.release
		s.mu.Lock()
		s.has["slow"], s.busy = id, false
		s.mu.Unlock()
		s.changed("slow")
	}()
}

func (s *slowStore) row(u nb.Unit) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.has[u]
}

// An Applier slow for one unit does not hold up another, has the latest rows in the end, and no failure is reported.
func TestASlowUnitHoldsUpNobody(t *testing.T) {
	var log bytes.Buffer
	logger := logrus.New()
	logger.SetOutput(&log)
	world := &twoUnits{id: "first"}
	store := &slowStore{begun: make(chan string), release: make(chan struct{}), has: map[nb.Unit]string{}}
	e := newEngine(&connections{}, logrus.NewEntry(logger), core.New(), store)
	store.changed = func(u nb.Unit) { e.send(func() []nb.Unit { return []nb.Unit{u} }) }
	e.worlds, e.may.Full = world, true
	clear(e.may.Missing)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.loop.Run(ctx)
	}()
	change := func(id string) {
		e.send(func() []nb.Unit {
			world.id = id
			return []nb.Unit{"slow", "quick"}
		})
	}
	await := func(u nb.Unit, id string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); store.row(u) != id; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s has row %q, not %q", u, store.row(u), id)
			}
		}
	}
	change("first")
	if id := <-store.begun; id != "first" {
		t.Errorf("writes %q", id)
	}
	await("quick", "first")
	change("second")
	await("quick", "second") // during the first write of the other
	if store.row("slow") != "" {
		t.Error("the slow unit is done")
	}
	store.release <- struct{}{}
	if id := <-store.begun; id != "second" {
		t.Errorf("writes %q", id)
	}
	store.release <- struct{}{}
	await("slow", "second")
	cancel()
	<-ended
	if log.Len() > 0 {
		t.Errorf("log:\n%s", &log)
	}
}
