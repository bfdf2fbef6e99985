package desired

import (
	"maps"
	"slices"
)

// Compact releases the memory of removed objects: Go maps do not shrink. It changes nothing else.
func (w *World) Compact() {
	w.Pods.Compact()
	w.Services.all, w.Services.owners = compact(w.Services.all), compact(w.Services.owners)
	w.Services.local.on = compact(w.Services.local.on)
	w.Services.routes.Compact()
	w.Services.reshare()
	w.Services.claims.Compact()
	w.Policies.index.Compact()
}

// reshare removes strings no longer in use: nodes come and go, and slices may name any.
func (x *Services) reshare() {
	x.shared.copies = map[string]string{}
	for _, here := range x.local.on {
		for _, l := range here {
			for _, v := range l.variables {
				x.shared.keep(v.name)
			}
		}
	}
	for _, state := range x.all {
		for _, sl := range state.slices {
			for _, h := range sl.Endpoints {
				x.shared.keep(h.Node)
				for _, hint := range slices.Concat(h.Zones, h.Nodes) {
					x.shared.keep(hint)
				}
			}
		}
	}
}

// compact returns a map with the same content.
func compact[K comparable, V any](m map[K]V) map[K]V { return maps.Collect(maps.All(m)) }
