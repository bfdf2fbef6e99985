package desired

import "maps"

// Compact gives back the room of what is gone, which a Go map never does by
// itself. It changes nothing else.
func (w *World) Compact() {
	w.pods, w.waiting = compact(w.pods), compact(w.waiting)
	for _, n := range w.nodes {
		n.pods = compact(n.pods)
		if n.pool != nil {
			n.pool.Compact()
		}
	}
	w.services.all, w.services.owners = compact(w.services.all), compact(w.services.owners)
	w.services.claims.Compact()
	w.policies.Compact()
}

// compact returns a map with the same content.
func compact[K comparable, V any](m map[K]V) map[K]V { return maps.Collect(maps.All(m)) }
