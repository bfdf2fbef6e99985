package nbsync

import (
	"sync"

	"github.com/ovn-kubernetes/libovsdb/cache"
)

// A RowSource names each changing row of the cache, see ovsdb.DB.OnRow.
type RowSource interface {
	OnRow(f func(table, uuid string)) (remove func())
}

// Follow limits each plan to the rows named by from, until stop is called. Without it each plan reads all rows.
func (s *Sync) Follow(from RowSource) (stop func()) {
	remove := from.OnRow(s.changed.add)
	s.changed.follow(true)
	return func() {
		s.changed.follow(false)
		remove()
	}
}

// changedRows are the rows perhaps newer in the cache than in the index.
type changedRows struct {
	mu       sync.Mutex
	followed bool
	missed   bool // rows may have changed before the source was followed
	rows     map[rowOf]bool
}

// follow begins or ends the recording of rows.
func (c *changedRows) follow(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followed, c.missed, c.rows = on, true, map[rowOf]bool{}
}

// add records a row.
func (c *changedRows) add(table, uuid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.followed {
		c.rows[rowOf{table, uuid}] = true
	}
}

// take returns the rows recorded since the last call. all reports whether no other row changed.
func (c *changedRows) take() (rows map[rowOf]bool, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows, all = c.rows, c.followed && !c.missed
	c.missed = false
	if len(rows) > 0 {
		c.rows = map[rowOf]bool{} // an emptied map would keep its memory
	}
	return rows, all
}

// refreshed returns the index of the present cache. s.mu is held.
func (s *Sync) refreshed(c *cache.TableCache) *rowIndex {
	rows, all := s.changed.take() // before the cache is read: later changes are recorded again
	switch {
	case s.index == nil || s.index.cache != c: // a new cache has new rows
		s.index = newRowIndex()
		s.index.refresh(c)
	case !all || !s.index.update(rows):
		s.index.refresh(c)
	}
	// A transaction written to the cache at the same time must not be seen in part.
	for all {
		if rows, all = s.changed.take(); len(rows) == 0 {
			break
		}
		s.index.update(rows)
	}
	return s.index
}
