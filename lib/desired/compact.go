package desired

import (
	"maps"
	"slices"
)

// Compact releases the memory of removed objects: Go maps do not shrink. It changes nothing else.
func (w *World) Compact() {
	w.Pods.Compact()
	w.Services.all, w.Services.owners = compact(w.Services.all), compact(w.Services.owners)
	w.Services.onNode = compact(w.Services.onNode)
	w.Services.routes.Compact()
	w.Services.reshare()
	w.Services.claims.Compact()
	w.Policies.index.Compact()
}

// reshare removes strings no longer in use: nodes come and go, and slices may name any.
func (x *Services) reshare() {
	x.shared = map[string]string{}
	for _, here := range x.onNode {
		for _, l := range here {
			for _, v := range l.variables {
				x.keep(v.name)
			}
		}
	}
	for _, state := range x.all {
		for _, sl := range state.slices {
			for _, h := range sl.Endpoints {
				x.keep(h.Node)
				for _, hint := range slices.Concat(h.Zones, h.Nodes) {
					x.keep(hint)
				}
			}
		}
	}
}

// keep makes a string in use its only copy.
func (x *Services) keep(text string) {
	if _, ok := x.shared[text]; !ok {
		x.shared[text] = text
	}
}

// compact returns a map with the same content.
func compact[K comparable, V any](m map[K]V) map[K]V { return maps.Collect(maps.All(m)) }
