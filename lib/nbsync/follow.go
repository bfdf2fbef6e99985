package nbsync

import (
	"sync"

	"github.com/ovn-kubernetes/libovsdb/cache"
)

// A RowSource names each row of the cache that changes, see ovsdb.DB.OnRow.
type RowSource interface {
	OnRow(f func(table, uuid string)) (remove func())
}

// Follow has plans look only at rows that from names, until stop is called. Without it
// each plan looks at all rows.
func (s *Sync) Follow(from RowSource) (stop func()) {
	remove := from.OnRow(s.changed.add)
	s.changed.follow(true)
	return func() {
		s.changed.follow(false)
		remove()
	}
}

// changedRows are the rows that may be others in the cache than in the mirror.
type changedRows struct {
	mu       sync.Mutex
	followed bool
	missed   bool // rows may have changed before they were followed
	rows     map[rowOf]bool
}

// follow begins or ends to note rows.
func (c *changedRows) follow(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.followed, c.missed, c.rows = on, true, map[rowOf]bool{}
}

// add notes a row.
func (c *changedRows) add(table, uuid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.followed {
		c.rows[rowOf{table, uuid}] = true
	}
}

// take returns the rows noted since the last call, and whether they are all that changed.
func (c *changedRows) take() (rows map[rowOf]bool, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rows, all = c.rows, c.followed && !c.missed
	c.missed = false
	if len(rows) > 0 {
		c.rows = map[rowOf]bool{} // an emptied map would keep its room
	}
	return rows, all
}

// refreshed returns the mirror of the cache as it is now. s.mu is held.
func (s *Sync) refreshed(c *cache.TableCache) *mirror {
	rows, all := s.changed.take() // before the cache is read: what changes later is noted again
	switch {
	case s.mirror == nil || s.mirror.cache != c: // no row is the same
		s.mirror = newMirror()
		s.mirror.refresh(c)
	case !all || !s.mirror.update(rows):
		s.mirror.refresh(c)
	}
	// A transaction that the cache was taking in meanwhile must not be seen in part.
	for all {
		if rows, all = s.changed.take(); len(rows) == 0 {
			break
		}
		s.mirror.update(rows)
	}
	return s.mirror
}
