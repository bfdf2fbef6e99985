package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// eventsPackage has the benchmark of each kind of event in a large cluster.
const eventsPackage = modulePath + "/lib/nbsync"

// aims are upper bounds for 1 000 nodes, by the benchmark's units: of kinds of events in ms, of what
// happens once in s, of memory in MB.
var aims = map[string]float64{
	"ms-p99/pod": 10, "ms-p99/label": 10, "ms-p99/endpoint": 10, "ms-p99/endpoint-local": 10, "ms-p99/endpoint-affinity": 10,
	"ms-p99/service": 10, "ms-p99/policy": 10, "ms-p99/namespace": 0, "ms-p99/node": 50, "ms-p99/gateway": 50, "ms-p99/router": 50,
	"s/fill": 30, "s/reconnect": 15, "s/resync": 15, "MB/all": 900, "MB/world": 0,
}

// measureEvents measures events at 250 and at 1 000 nodes, for what must grow at most linearly.
func measureEvents(ctx context.Context, b *bench) error {
	b.closeField() // which needs memory and now and then a CPU
	for _, nodes := range []int{250, 1000} {
		b.say("events: %d nodes", nodes)
		cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkEvents$", "-benchtime", "1x", "-timeout", "1h", eventsPackage)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", fmt.Sprint("OVNK8S_BENCH_NODES=", nodes))
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%v: %w: %s", cmd, err, out)
		}
		values := map[string][]float64{}
		if err := readMetrics(string(out), "BenchmarkEvents", values); err != nil {
			return err
		}
		b.reportEvents(nodes, values)
	}
	return nil
}

// reportEvents adds the results at one size to the report. The aims are those of 1 000 nodes.
func (b *bench) reportEvents(nodes int, values map[string][]float64) {
	for _, metric := range slices.Sorted(maps.Keys(aims)) {
		unit, kind, _ := strings.Cut(metric, "/")
		aim := aims[metric]
		if nodes < 1000 {
			aim = 0
		}
		name := fmt.Sprintf("%d nodes, %d pods: %s", nodes, 100*nodes, kind)
		if event, ok := strings.CutSuffix(unit, "-p99"); ok {
			b.report.alone(name+", 99 % of events", event, aim, values[metric]...).
				note("%.1f rows changed, %.0f kB allocated each", median(values["rows/"+kind]), median(values["kB/"+kind]))
			continue
		}
		b.report.alone(name, unit, aim, values[metric]...)
	}
}
