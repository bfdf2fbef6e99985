// Package memo keeps a value for each of many keys, mostly the same ones in the same order: only new keys cost something.
package memo

import "slices"

// A List has the values of a list of distinct keys. The zero value has none. One goroutine calls the methods.
type List[K comparable, V any] struct {
	keys   []K
	values []V
}

// Of returns the values of keys, in their order: kept ones of the former call, and for new keys, by their index, those that
// compute returns. The result may not be changed afterwards.
func (l *List[K, V]) Of(keys []K, compute func(i int) V) []V {
	begin := 0
	for begin < min(len(keys), len(l.keys)) && keys[begin] == l.keys[begin] {
		begin++
	}
	if begin == len(keys) && begin == len(l.keys) {
		return l.values
	}
	end := 0 // number of equal keys at the end
	for end < min(len(keys), len(l.keys))-begin && keys[len(keys)-1-end] == l.keys[len(l.keys)-1-end] {
		end++
	}
	known := make(map[K]V, len(l.keys)-end-begin)
	for i := begin; i < len(l.keys)-end; i++ {
		known[l.keys[i]] = l.values[i]
	}
	values := append(make([]V, 0, len(keys)), l.values[:begin]...)
	for i := begin; i < len(keys)-end; i++ {
		v, is := known[keys[i]]
		if !is {
			v = compute(i)
		}
		values = append(values, v)
	}
	values = append(values, l.values[len(l.values)-end:]...)
	l.keys, l.values = slices.Clone(keys), values
	return values
}

// Change replaces each value by the one that change returns. Results of Of stay as they are.
func (l *List[K, V]) Change(change func(K, V) V) {
	values := make([]V, len(l.values))
	for i, k := range l.keys {
		values[i] = change(k, l.values[i])
	}
	l.values = values
}

// Forget removes the values of some keys. Results of Of stay as they are.
func (l *List[K, V]) Forget(some func(K) bool) {
	var left List[K, V]
	for i, k := range l.keys {
		if !some(k) {
			left.keys, left.values = append(left.keys, k), append(left.values, l.values[i])
		}
	}
	*l = left
}
