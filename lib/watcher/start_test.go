package watcher

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/ovsdb"
)

// Issue 14, line 5: a start is over when each unit was compared once, also where all rows are in the database already.
// Until then the process may have the garbage of a start.
func TestAStartEnds(t *testing.T) {
	e := idleEngine(t)
	nodes := twoGateways(t)
	clear(nodes.Gateways)
	e.network.Put(nodes)
	want := map[nb.Unit][]nb.Row{}
	for _, u := range e.all() {
		rows, err := e.worlds.Rows(u)
		if err != nil {
			t.Fatal(err)
		}
		want[u] = rows
	}
	if _, failed := e.applier.Apply(t.Context(), want); len(failed) > 0 {
		t.Fatal(failed)
	}
	if owners, err := e.applier.Owners(); err != nil || len(owners) == 0 {
		t.Fatalf("units with rows: %v, %v", owners, err)
	}
	for kind := range e.may.Missing {
		e.found(kind)
	}
	if e.start == 0 {
		t.Error("it is over before anything was compared")
	}
	e.synced(slices.Collect(maps.Keys(want)), nil)
	if e.start != 0 {
		t.Errorf("all of %d units are compared, and it waits for %d more", len(want), e.start)
	}
}

// callOn is a hook of a log. It calls do for each line with a text.
type callOn struct {
	text string
	do   func()
}

func (c callOn) Levels() []logrus.Level { return logrus.AllLevels }

func (c callOn) Fire(e *logrus.Entry) error {
	if strings.Contains(e.Message, c.text) {
		c.do()
	}
	return nil
}

// If the connection is lost at the start of a term, the engine waits for it: it would not know which addresses are in
// use, and give them again.
func TestAStartWaitsForTheDatabase(t *testing.T) {
	e := idleEngine(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ctx, found := context.WithCancelCause(ctx)
	waits := errors.New("it waits")
	log := logrus.New()
	log.Out = io.Discard
	log.AddHook(callOn{ovsdb.ErrNotConnected.Error(), func() { found(waits) }})
	e.log = logrus.NewEntry(log)
	e.connections.db.Close()
	if err := e.run(ctx); !errors.Is(err, waits) {
		t.Error(err)
	}
	if s := e.loop.Status(); s.Events > 0 {
		t.Errorf("%d events before the addresses in use are known", s.Events)
	}
}
