package nbsync

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync/owned"
)

// IndexDiff compares the present index with a new one made from all rows of the cache.
func IndexDiff(s *Sync) string {
	c, err := s.cache()
	if err != nil {
		return err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m, fresh := s.refreshed(c), newRowIndex()
	fresh.refresh(c)
	return cmp.Diff(fresh.text(), m.text())
}

// Looked returns the number of rows read by the index since the last call.
func Looked(s *Sync) int {
	n := s.index.looked
	s.index.looked = 0
	return n
}

// Copies returns the number of rows in the index not shared with the cache.
func Copies(s *Sync) (n int) {
	c, err := s.cache()
	if err != nil {
		return -1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, t := range s.refreshed(c).of {
		now := c.Table(name).RowsShallow()
		for uuid, row := range t.rows {
			if now[uuid] != row {
				n++
			}
		}
	}
	return n
}

// text is the whole content of m, in any order.
func (m *rowIndex) text() string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for name, t := range m.of {
		for uuid, row := range t.rows {
			for _, c := range owned.Columns()[name] { // northd may be changing others just now
				add("%s %s %s: %s", name, uuid, c, nb.Format(owned.ColumnOf(row, c).Interface()))
			}
		}
		for id, uuid := range t.ids {
			add("%s %s is %s", name, id, uuid)
		}
		for of, all := range t.unowned {
			add("%s %s of others: %v", name, of, slices.Sorted(slices.Values(all)))
		}
	}
	for u, rows := range m.owned {
		var all []string
		for _, r := range rows {
			all = append(all, r.table+" "+r.uuid)
		}
		add("%s owns %v", u, slices.Sorted(slices.Values(all)))
	}
	for child, at := range m.referrers {
		var all []string
		for _, l := range at {
			all = append(all, fmt.Sprint(l))
		}
		add("%s is in %v", child, slices.Sorted(slices.Values(all)))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
