package gobench

import (
	"context"

	"ovn-k8s/test/bench/programs"
	"ovn-k8s/test/bench/report"
	"ovn-k8s/test/bench/run"
)

// scalePackage has the benchmark of the rows of very many policies and pods. It is a Go benchmark, since it needs
// only memory.
const scalePackage = programs.ModulePath + "/lib/desired"

// MeasureCompute runs the benchmark, each round in a process of its own.
func MeasureCompute(ctx context.Context, b *run.Bench) error {
	b.CloseField() // the field needs memory and at times a CPU
	values := map[string][]float64{}
	for round := range b.Rounds {
		b.Say("compute: round %d of %d", round+1, b.Rounds)
		out, err := benchmark(ctx, "BenchmarkScale", scalePackage, nil)
		if err != nil {
			return err
		}
		if err := readMetrics(out, "BenchmarkScale", values); err != nil {
			return err
		}
	}
	name := "25000 namespaces, 100000 pods, 75000 policies: "
	b.Report.Alone(name+"nothing to all rows", "s", 4, values["s/all"]...).Explain("%.0f rows, the pods' ports among them, in memory", report.Median(values["rows"]))
	b.Report.Alone(name+"memory", "MB", 1000, values["MB"]...).Explain("%.0f MB from the system at the most", report.Median(values["MB-peak"]))
	b.Report.Alone(name+"one label of a pod changes", "µs", 1000, values["µs/label"]...)
	return nil
}
