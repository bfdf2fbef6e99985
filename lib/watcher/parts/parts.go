// Package parts writes rows of units, with new frontends of heavy Services in parts: ovn-northd computes everything at
// once, and every pod waits for it.
//
// A part is at first what takes ovn-northd about as long as everything else. The next part comes when ovn-northd is
// done with the last one, as the Southbound database shows, and has rested as long again. The size of parts follows
// the time that they take.
package parts

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/ovsdb/southbound"
)

// ErrHeld is the error of a unit with frontends held back for a later part.
var ErrHeld = errors.New("waits until ovn-northd is done with earlier frontends")

const (
	// aim is the time for ovn-northd to be done with a part.
	aim = 500 * time.Millisecond
	// perPort is the weight of new frontends that take ovn-northd as long as a port. OVN 23.03 with 100 nodes takes
	// 70 µs for a port, and 10 µs for new frontends of weight 1, once.
	perPort = 7
	least   = 1000 // of a part
	// unit owns the address set with the mark of the latest part.
	unit nb.Unit = "parts"
	// patience bounds the wait for ovn-northd.
	patience = 10 * time.Second
	poll     = 50 * time.Millisecond
)

// A Writer writes rows of units to a database. One goroutine calls Apply.
type Writer struct {
	*nbsync.Sync

	mu      sync.Mutex
	south   *southbound.DB // nil: not known
	changed func(nb.Unit)  // nil: not followed
	queue   []held         // the longest waiting first
	busy    bool           // with a part
	size    int            // weight of a part
	left    int            // of the weight of the part at hand
}

// A held unit has frontends that wait, of some weight.
type held struct {
	unit   nb.Unit
	weight int
}

// Follow calls changed with each held unit when there may be room for it, until stop.
func (w *Writer) Follow(changed func(nb.Unit)) (stop func()) {
	set := func(f func(nb.Unit)) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed = f
	}
	set(changed)
	return func() { set(nil) }
}

// SetSouth sets the Southbound database.
func (w *Writer) SetSouth(s *southbound.DB) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.south = s
}

// Apply is nbsync.Sync.Apply, but with ErrHeld for units not yet written whole.
func (w *Writer) Apply(ctx context.Context, want map[nb.Unit][]nb.Row) ([]nbsync.Change, map[nb.Unit]error) {
	w.mu.Lock()
	order, room, begins := w.order(want), w.room(want), !w.busy
	w.mu.Unlock()
	limited := w.Sync.Limit(want, order, room)
	done, failed := w.Sync.Apply(ctx, want)
	begins = begins && limited.Weight > 0
	mark, marked := fmt.Sprintf("0.%d.%d.%d", rand.IntN(256), rand.IntN(256), rand.IntN(256)), false
	if begins {
		marked = w.mark(ctx, mark)
	}
	for u := range limited.Held {
		if failed[u] == nil {
			failed[u] = ErrHeld
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enqueue(order, limited.Held)
	w.left = room - limited.Weight
	if begins {
		w.busy = true
		south := w.south
		if !marked {
			south = nil
		}
		go w.follow(ctx, limited, mark, south)
	}
	return done, failed
}

// mark marks a part. ovn-northd copies the address to the Southbound database when it has read the part. mark reports
// false if it failed, such as when somebody else has an address set of this name.
func (w *Writer) mark(ctx context.Context, address string) bool {
	row := nb.Row{Table: nbdb.AddressSetTable, ID: names.PartsSet, Model: &nbdb.AddressSet{Name: names.PartsSet, Addresses: []string{address}}}
	_, failed := w.Sync.Apply(ctx, map[nb.Unit][]nb.Row{unit: {row}})
	return failed[unit] == nil
}

// room returns the weight of new frontends to write with want: the rest of the part at hand, or a new part. w.mu is
// held.
func (w *Writer) room(want map[nb.Unit][]nb.Row) int {
	if w.busy {
		return w.left
	}
	w.size = max(w.size, perPort*w.Sync.Ports(want), least)
	return w.size
}

// order lists the heavy units of want: those held longest, then by dependencies. w.mu is held.
func (w *Writer) order(want map[nb.Unit][]nb.Row) (order []nb.Unit) {
	before := map[nb.Unit]bool{}
	for _, h := range w.queue {
		if _, ok := want[h.unit]; ok {
			before[h.unit] = true
			order = append(order, h.unit)
		}
	}
	var fresh []nb.Unit
	for u, rows := range want {
		if !before[u] && nbsync.Heavy(rows) {
			fresh = append(fresh, u)
		}
	}
	slices.SortFunc(fresh, desired.Compare)
	return append(order, fresh...)
}

// enqueue records which of the units tried are held. A unit keeps its place. w.mu is held.
func (w *Writer) enqueue(tried []nb.Unit, weights map[nb.Unit]int) {
	known := map[nb.Unit]bool{}
	for _, u := range tried {
		known[u] = true
	}
	waiting := map[nb.Unit]bool{}
	var queue []held
	for _, h := range w.queue {
		if known[h.unit] {
			h.weight = weights[h.unit]
		}
		if h.weight > 0 {
			waiting[h.unit] = true
			queue = append(queue, h)
		}
	}
	for _, u := range tried {
		if weights[u] > 0 && !waiting[u] {
			queue = append(queue, held{u, weights[u]})
		}
	}
	w.queue = queue
}

// follow waits until ovn-northd is done with a part and has rested, and calls for the next one.
func (w *Writer) follow(ctx context.Context, part nbsync.Limited, mark string, south *southbound.DB) {
	start := time.Now()
	seen := await(ctx, mark, south)
	took := time.Since(start)
	if seen {
		sleep(ctx, took)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
	if faster := float64(aim) / float64(took); seen && (faster < 1 || len(part.Held) > 0) {
		w.size = int(float64(w.size) * min(2, max(0.5, faster)))
	}
	room := w.size
	for _, h := range w.queue {
		if w.changed != nil && room >= 0 {
			w.changed(h.unit)
		}
		room -= h.weight
	}
}

// await waits until ovn-northd has read the address, for a bounded time. It reports whether it has. south is nil if the
// address is not to come.
func await(ctx context.Context, address string, south *southbound.DB) bool {
	if south == nil {
		sleep(ctx, aim)
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for ctx.Err() == nil {
		if seen, err := south.HasAddress(ctx, names.PartsSet, address); err == nil && seen {
			return true
		}
		sleep(ctx, poll)
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
