package watcher

import (
	"fmt"
	"runtime"
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

// showMemory prints the memory of the process, in the form of ovs-vswitchd(8).
func (w *Watcher) showMemory([]string) (string, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return fmt.Sprintf("goroutines:%d heap-kB:%d system-kB:%d\n", runtime.NumGoroutine(), m.HeapAlloc>>10, (m.Sys-m.HeapReleased)>>10), nil
}
