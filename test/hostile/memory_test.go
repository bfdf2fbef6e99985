package hostile_test

import (
	"fmt"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"
)

// memoryLimit is the memory of a run. A draw of 21 GB once stopped the machine.
const memoryLimit = 4_000_000_000

// limitMemory ends the program with the stacks of all goroutines if its memory exceeds a
// limit. The message names the draw.
func limitMemory(t *testing.T, limit uint64) (draw *atomic.Value) {
	draw = &atomic.Value{}
	draw.Store("the cluster")
	debug.SetTraceback("all")
	ticker := time.NewTicker(20 * time.Millisecond)
	t.Cleanup(ticker.Stop)
	go func() {
		for {
			select {
			case <-t.Context().Done():
				return
			case <-ticker.C:
				if used := memoryUsed(); used > limit {
					panic(fmt.Sprintf("%s: uses %d MB of memory, the limit is %d MB; its stack is below", draw.Load(), used/1e6, limit/1e6))
				}
			}
		}
	}()
	return draw
}

// memoryUsed is the memory that the program has from the kernel.
func memoryUsed() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}
