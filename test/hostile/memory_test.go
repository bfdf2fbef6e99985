package hostile_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// memoryLimit is the memory of a run. A draw of 21 GB once stopped the machine.
const memoryLimit = 4_000_000_000

// limitMemory ends the program with the stacks of all goroutines if its memory exceeds a
// limit. The message names the draw.
func limitMemory(t *testing.T, limit uint64) (draw *atomic.Value) {
	debug.SetMemoryLimit(int64(limit) * 2 / 3) // garbage is collected, even while the costs of a change are measured
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

// memoryUsed returns the memory that the program has from the kernel.
func memoryUsed() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}

// L3: a draw with too much memory ends the program, and is named.
func TestMemoryIsLimited(t *testing.T) {
	if os.Getenv("OVNK8S_HOSTILE_HUNGRY") != "" {
		limitMemory(t, memoryUsed()+100_000_000).Store("policy/7")
		for all := [][]byte(nil); len(all) < 1000; all = append(all, make([]byte, 1_000_000)) {
			time.Sleep(time.Millisecond)
		}
		return
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestMemoryIsLimited$")
	c.Env = append(os.Environ(), "OVNK8S_HOSTILE_HUNGRY=1")
	out, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: policy/7: uses ") || !strings.Contains(string(out), "TestMemoryIsLimited") {
		t.Errorf("%v: %.1000s", err, out)
	}
}
