package main

import (
	"context"
	"fmt"

	"ovn-k8s/test/bench/field"
	"ovn-k8s/test/bench/report"
	"ovn-k8s/test/bench/run"
)

// measureBurst creates many pods at once, as a large deployment does.
func measureBurst(ctx context.Context, b *run.Bench) error {
	f, err := b.Ground(ctx)
	if err != nil {
		return err
	}
	values := map[string]map[string][]float64{} // by name of the value and of the contender
	err = b.Turns(ctx, f, func(r *field.Runner) error {
		put := func(what string, v float64) {
			if values[what] == nil {
				values[what] = map[string][]float64{}
			}
			values[what][r.Name] = append(values[what][r.Name], v)
		}
		before, err := f.Costs(r)
		if err != nil {
			return err
		}
		burst, err := f.Create(ctx, b.Pods)
		if err != nil {
			return err
		}
		after, err := f.Costs(r)
		if err != nil {
			return err
		}
		memory, err := r.RSS()
		if err != nil {
			return err
		}
		if err := f.Settle(ctx); err != nil { // ovn-northd's work for the burst
			return err
		}
		if after.Northd, err = f.Northd.CPU(); err != nil {
			return err
		}
		n := float64(b.Pods)
		each := field.Milliseconds(burst.Sights, field.Begun, (*field.Sight).Done)
		put("time", burst.Took.Seconds())
		put("rate", n/burst.Took.Seconds())
		put("p50", report.Median(each))
		put("p99", report.Percentile(each, 99))
		put("annotation", report.Median(field.Milliseconds(burst.Sights, field.Begun, field.Annotated)))
		put("row", report.Median(field.Milliseconds(burst.Sights, field.Begun, field.Ported)))
		put("transactions", float64(after.Transactions-before.Transactions)*1000/n)
		put("northd", float64((after.Northd-before.Northd).Milliseconds())/n)
		put("memory", memory)
		put("own", float64((after.Own-before.Own).Milliseconds())/n)
		b.Say("  %.2f s, %.0f pods/s, p50 %.0f ms, p99 %.0f ms; %d transactions, %.1f MB",
			burst.Took.Seconds(), n/burst.Took.Seconds(), report.Median(each), report.Percentile(each, 99), after.Transactions-before.Transactions, memory)
		return nil
	})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("burst of %d pods: ", b.Pods)
	line := func(what, unit string, aim float64, key string) *report.Result {
		return b.Report.Beside(name+what, unit, aim, values[key]["ours"], values[key]["yardstick"])
	}
	line("first create to last pod done", "s", 1.15, "time").Explain("done: port in NB and annotation in the API, seen by one observer")
	line("rate", "pods/s", 0, "rate")
	line("create to done, p50", "ms", 1.5, "p50")
	line("create to done, p99", "ms", 1.5, "p99")
	line("create to annotation, p50", "ms", 0, "annotation")
	line("create to row, p50", "ms", 0, "row")
	b.Report.Alone(name+"NB transactions per 1000 pods", "", 40, values["transactions"]["ours"]...).Besides(values["transactions"]["yardstick"])
	line("CPU time of ovn-northd per pod", "ms", 0, "northd")
	line("CPU time of the watcher per pod", "ms", 0, "own")
	line("watcher memory at the end", "MB", 0, "memory")
	return nil
}
