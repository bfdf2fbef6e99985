package memo

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// The values are those of the keys, whatever has changed, and no value of a kept key is computed again.
func TestOf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var l List[int, int]
		had, next, factor := map[int]bool{}, 0, 10
		keys := []int{}
		for range 30 {
			for range r.IntN(4) {
				switch at := r.IntN(len(keys) + 1); {
				case r.IntN(2) == 0:
					keys, next = slices.Insert(keys, at, next), next+1
				case at < len(keys):
					keys = slices.Delete(keys, at, at+1)
				}
			}
			if r.IntN(8) == 0 {
				r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			}
			if r.IntN(8) == 0 {
				before := l.values
				copied := slices.Clone(before)
				l.Change(func(_, v int) int { return v * 2 })
				factor *= 2
				if !slices.Equal(before, copied) {
					t.Fatal("a former result has changed")
				}
			}
			if r.IntN(8) == 0 {
				odd := func(k int) bool { return k%2 == 1 }
				l.Forget(odd)
				maps.DeleteFunc(had, func(k int, _ bool) bool { return odd(k) })
			}
			got := l.Of(keys, func(i int) int {
				if had[keys[i]] {
					t.Fatalf("%d of %v is computed again", keys[i], keys)
				}
				return keys[i] * factor
			})
			if !slices.EqualFunc(got, keys, func(v, k int) bool { return v == k*factor }) {
				t.Fatalf("keys %v have values %v", keys, got)
			}
			clear(had)
			for _, k := range keys {
				had[k] = true
			}
		}
	}
}
