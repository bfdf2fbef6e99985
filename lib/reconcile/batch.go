package reconcile

import (
	"cmp"
	"slices"
	"time"
)

// A batch is the dirty keys of a Loop, and takes them in their order.
type batch[K cmp.Ordered] struct {
	compare func(a, b K) int // nil: the natural order
	compute func(K)          // Loop.Compute
	related func(K) bool     // Loop.Related
	most    int              // Loop.MaxBatch

	dirty map[K]bool // true: former calls of take have left it, so it is in left
	left  []K        // in their order
	late  bool       // compute did not reach all keys in time
}

func (b *batch[K]) len() int { return len(b.dirty) }

// add adds a key. It reports false if it was there.
func (b *batch[K]) add(k K) bool {
	if b.dirty == nil {
		b.dirty = map[K]bool{}
	}
	if _, there := b.dirty[k]; there {
		return false
	}
	b.dirty[k] = false
	return true
}

func (b *batch[K]) has(k K) bool {
	_, there := b.dirty[k]
	return there
}

// take removes and returns the first keys, in their order: those that compute reached in time, at most `most`.
func (b *batch[K]) take() []K {
	all := b.ordered()
	most := len(all)
	if b.most > 0 {
		most = min(most, b.most)
	}
	n := b.computed(all[:most])
	b.late = n < most
	if n == len(all) {
		b.dirty, b.left = nil, nil // deleting keys would not shrink the map
		return all
	}
	for _, k := range all[:n] {
		delete(b.dirty, k)
	}
	b.left = all[n:]
	return slices.Clone(all[:n])
}

// ordered lists the dirty keys, and marks them as left. Only those that were not left are sorted: there may be very many.
func (b *batch[K]) ordered() []K {
	compare := b.compare
	if compare == nil {
		compare = cmp.Compare[K]
	}
	var fresh []K
	if len(b.dirty) > len(b.left) {
		for k, left := range b.dirty {
			if !left {
				fresh = append(fresh, k)
			}
		}
		slices.SortFunc(fresh, compare)
	}
	for _, k := range fresh {
		b.dirty[k] = true
	}
	return merged(b.left, fresh, compare)
}

// merged merges two ordered lists.
func merged[K any](a, b []K, compare func(K, K) int) []K {
	if len(a) == 0 || len(b) == 0 {
		return append(a, b...)
	}
	all := make([]K, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if compare(a[0], b[0]) <= 0 {
			all, a = append(all, a[0]), a[1:]
		} else {
			all, b = append(all, b[0]), b[1:]
		}
	}
	return append(append(all, a...), b...)
}

// After mostComputing, compute is called for no further key, and after mostRelated for no further related key. A process may
// stand for longer than mostComputing without computing anything.
const mostComputing, mostRelated = 100 * time.Millisecond, 2 * time.Second

// computed calls compute for keys, for a bounded time, and returns the number of keys computed. The first of the keys
// left by the former call is among them: otherwise keys before it could keep it waiting for ever.
func (b *batch[K]) computed(keys []K) (n int) {
	if b.compute == nil {
		return len(keys)
	}
	reached := len(b.left) == 0
	for start := time.Now(); n < len(keys); n++ {
		most := mostComputing
		if b.related != nil && b.related(keys[n]) {
			most = mostRelated
		}
		if n > 0 && reached && time.Since(start) >= most {
			break
		}
		b.compute(keys[n])
		reached = reached || keys[n] == b.left[0]
	}
	return n
}
