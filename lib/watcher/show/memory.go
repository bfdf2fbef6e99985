package show

import (
	"fmt"
	"runtime"
)

// Memory prints the memory of the process, in the form of ovs-vswitchd(8).
func Memory([]string) (string, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return fmt.Sprintf("goroutines:%d heap-kB:%d system-kB:%d\n", runtime.NumGoroutine(), m.HeapAlloc>>10, (m.Sys-m.HeapReleased)>>10), nil
}
