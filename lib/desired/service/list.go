package service

import (
	"iter"
	"net/netip"
	"slices"

	"ovn-k8s/lib/desired/memo"
)

// A List has the frontends of Services: a slice for each Service with any. They do not change.
type List [][]Frontend

// AllFrontends lists the frontends of all Services.
func AllFrontends(services []*Resolved, n Network) List { return new(Lists).Of(services, n) }

// All returns all frontends.
func (l List) All() iter.Seq[Frontend] {
	return func(yield func(Frontend) bool) {
		for _, of := range l {
			for _, f := range of {
				if !yield(f) {
					return
				}
			}
		}
	}
}

// Outside returns the frontends for clients outside: all but the cluster IPs.
func (l List) Outside() iter.Seq[Frontend] {
	return func(yield func(Frontend) bool) {
		for f := range l.All() {
			if f.Kind != ClusterIP && !yield(f) {
				return
			}
		}
	}
}

// hasOutside reports whether there are frontends for clients outside.
func (l List) hasOutside() bool {
	for range l.Outside() {
		return true
	}
	return false
}

// Inside returns the frontends for clients inside only: the cluster IPs.
func (l List) Inside() List {
	out := make(List, len(l))
	for i, of := range l {
		if out[i] = of; List(l[i : i+1]).hasOutside() { // all others stay the same, for Kept
			out[i] = slices.DeleteFunc(slices.Clone(of), func(f Frontend) bool { return f.Kind != ClusterIP })
		}
	}
	return out.filled()
}

// Lists makes a List after each change: the slices of unchanged Services stay the same. The zero value has none. One
// goroutine calls the method.
type Lists struct {
	network Network
	kept    memo.List[*Resolved, []Frontend]
}

// Of returns the frontends of Services in a network.
func (l *Lists) Of(services []*Resolved, n Network) List {
	if !l.network.equal(n) {
		l.network = n
		l.kept.Change(func(r *Resolved, was []Frontend) []Frontend {
			if now := r.Frontends(n); !slices.Equal(was, now) {
				return now
			}
			return was
		})
	}
	return List(slices.Clone(l.kept.Of(services, func(i int) []Frontend { return services[i].Frontends(n) }))).filled()
}

// filled deletes empty slices.
func (l List) filled() List {
	return slices.DeleteFunc(l, func(of []Frontend) bool { return len(of) == 0 })
}

// Outer selects the Services with frontends for clients outside from a List after each change. The zero value has none. One
// goroutine calls the method.
type Outer struct{ kept Kept[bool] }

// Of returns the frontends, also the cluster IPs, of Services with any for clients outside.
func (o *Outer) Of(l List) (out List) {
	for i, outer := range o.kept.Of(l, List.hasOutside) {
		if outer {
			out = append(out, l[i])
		}
	}
	return out
}

// Kept has a value made of the frontends of each Service. The zero value has none. One goroutine calls the method.
type Kept[V any] struct {
	values memo.List[*Frontend, V] // by the first frontend
}

// Of returns the values of a List: those of slices that the former List had, too, are kept, and compute makes the others of
// the frontends of one Service. The result may not be changed.
func (k *Kept[V]) Of(l List, compute func(List) V) []V {
	firsts := make([]*Frontend, len(l))
	for i, of := range l {
		firsts[i] = &of[0]
	}
	return k.values.Of(firsts, func(i int) V { return compute(l[i : i+1]) })
}

// Forget lets the next Of make the values of some Services again, by their first frontends.
func (k *Kept[V]) Forget(some func(*Frontend) bool) { k.values.Forget(some) }

func (n Network) equal(m Network) bool {
	prefixes, addrs := slices.Equal[[]netip.Prefix], slices.Equal[[]netip.Addr]
	return prefixes(n.Ranges, m.Ranges) && prefixes(n.Inside, m.Inside) && addrs(n.Hops, m.Hops) && addrs(n.Hosts, m.Hosts)
}
