package gobench

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ovn-k8s/test/bench/programs"
	"ovn-k8s/test/bench/report"
	"ovn-k8s/test/bench/run"
)

// eventsPackage has the benchmark of each kind of event in a large cluster.
const eventsPackage = programs.ModulePath + "/lib/nbsync"

// aims are upper bounds for 1 000 nodes, by the benchmark's units: ms for kinds of events, s for single events, MB
// for memory. Allocated memory shows growth whatever else the machine does.
var aims = map[string]float64{
	"ms-p99/pod": 10, "ms-p99/label": 10, "ms-p99/endpoint": 10, "ms-p99/endpoint-local": 10, "ms-p99/endpoint-affinity": 10,
	"ms-p99/service": 10, "ms-p99/policy": 10, "ms-p99/namespace": 0, "ms-p99/node": 50, "ms-p99/gateway": 50, "ms-p99/router": 50,
	"s/fill": 30, "s/reconnect": 15, "s/resync": 15, "transactions/resync": 0,
	"s-CPU/fill": 0, "s-CPU/reconnect": 0, "s-CPU/resync": 0, "MB-allocated/fill": 0, "MB-allocated/reconnect": 0, "MB-allocated/resync": 0,
	"MB/all": 900, "MB/end": 900, "MB/resident": 0, "MB/world": 0,
}

// MeasureEvents measures events at 250 and at 1 000 nodes, to check for at most linear growth.
func MeasureEvents(ctx context.Context, b *run.Bench) error {
	b.CloseField() // the field needs memory and at times a CPU
	few, err := eventsOf(ctx, b, 250)
	if err != nil {
		return err
	}
	many, err := eventsOf(ctx, b, 1000)
	if err != nil {
		return err
	}
	for _, metric := range slices.Sorted(maps.Keys(aims)) {
		if was, now := report.Median(few[metric]), report.Median(many[metric]); was > 0 {
			b.Report.Alone("250 to 1000 nodes, growth: "+metric, "x", 4, now/was)
		}
	}
	return nil
}

// eventsOf measures and reports events at one size. With -profile, it writes profiles of CPU and heap.
func eventsOf(ctx context.Context, b *run.Bench, nodes int) (map[string][]float64, error) {
	b.Say("events: %d nodes", nodes)
	env := []string{fmt.Sprint("OVNK8S_BENCH_NODES=", nodes)}
	var flags []string
	if b.Profile != "" {
		dir, err := filepath.Abs(b.Profile)
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		flags = []string{"-o", filepath.Join(dir, "events.test"), "-cpuprofile", filepath.Join(dir, fmt.Sprintf("events-%d.cpu", nodes))}
		env = append(env, "OVNK8S_BENCH_HEAP="+filepath.Join(dir, fmt.Sprintf("events-%d.heap", nodes)))
	}
	out, err := benchmark(ctx, "BenchmarkEvents", eventsPackage, flags, env...)
	if err != nil {
		return nil, err
	}
	values := map[string][]float64{}
	if err := readMetrics(out, "BenchmarkEvents", values); err != nil {
		return nil, err
	}
	reportEvents(b, nodes, values)
	return values, nil
}

// reportEvents adds the results at one size to the report. The aims are for 1 000 nodes.
func reportEvents(b *run.Bench, nodes int, values map[string][]float64) {
	for _, metric := range slices.Sorted(maps.Keys(aims)) {
		unit, kind, _ := strings.Cut(metric, "/")
		aim := aims[metric]
		if nodes < 1000 {
			aim = 0
		}
		name := fmt.Sprintf("%d nodes, %d pods: %s", nodes, 100*nodes, kind)
		if event, ok := strings.CutSuffix(unit, "-p99"); ok {
			b.Report.Alone(name+", 99 % of events", event, aim, values[metric]...).
				Explain("%.1f rows changed, %.0f kB allocated each", report.Median(values["rows/"+kind]), report.Median(values["kB/"+kind]))
			continue
		}
		b.Report.Alone(name, unit, aim, values[metric]...)
	}
}
