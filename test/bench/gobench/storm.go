package gobench

import (
	"context"
	"fmt"

	"ovn-k8s/test/bench/programs"
	"ovn-k8s/test/bench/report"
	"ovn-k8s/test/bench/run"
)

// stormPackage has the benchmark of many nodes joining at once.
const stormPackage = programs.ModulePath + "/lib/overlay/store"

// MeasureStorm runs the benchmark, each round with a database of its own.
func MeasureStorm(ctx context.Context, b *run.Bench) error {
	b.CloseField()
	values := map[string][]float64{}
	for round := range b.Rounds {
		b.Say("storm: round %d of %d", round+1, b.Rounds)
		out, err := benchmark(ctx, "BenchmarkStorm", stormPackage, nil)
		if err != nil {
			return err
		}
		if err := readMetrics(out, "BenchmarkStorm", values); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("%.0f nodes join, 50 at a time: ", report.Median(values["nodes"]))
	b.Report.Alone(name+"time", "s", 60, values["s"]...).Explain("%.0f transactions and reads", report.Median(values["transactions"]))
	b.Report.Alone(name+"conflicts", "", 0, values["conflicts"]...).MustBeZero()
	return nil
}
