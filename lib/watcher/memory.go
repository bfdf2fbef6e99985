package watcher

import (
	"runtime/debug"

	"ovn-k8s/lib/nb"
)

// compact releases the memory of removed objects and rows.
func (e *engine) compact() []nb.Unit {
	e.network.Compact()
	e.notes.Compact()
	if e.applier.Compact() {
		return nil // reconnected follows, and compacts again
	}
	go debug.FreeOSMemory() // takes a while, and ends by itself
	return nil
}
