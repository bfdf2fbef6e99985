package main

import (
	"context"
	"fmt"
	"time"

	"ovn-k8s/test/bench/report"
)

// costs are the CPU times and transactions of a burst.
type costs struct {
	northd, own  time.Duration
	transactions int
}

func (f *field) costs(r *runner) (c costs, err error) {
	if c.northd, err = f.northd.CPU(); err != nil {
		return c, err
	}
	if c.own, err = r.CPU(); err != nil {
		return c, err
	}
	c.transactions, err = f.central.NBTransactions()
	return c, err
}

// measureBurst creates many pods at once, as a large deployment does.
func measureBurst(ctx context.Context, b *bench) error {
	f, err := b.ground(ctx)
	if err != nil {
		return err
	}
	values := map[string]map[string][]float64{} // by name of the value and of the contender
	err = b.turns(ctx, f, func(r *runner) error {
		put := func(what string, v float64) {
			if values[what] == nil {
				values[what] = map[string][]float64{}
			}
			values[what][r.name] = append(values[what][r.name], v)
		}
		before, err := f.costs(r)
		if err != nil {
			return err
		}
		burst, err := f.create(ctx, b.pods)
		if err != nil {
			return err
		}
		after, err := f.costs(r)
		if err != nil {
			return err
		}
		memory, err := r.RSS()
		if err != nil {
			return err
		}
		if err := f.settle(ctx); err != nil { // ovn-northd's work for the burst
			return err
		}
		if after.northd, err = f.northd.CPU(); err != nil {
			return err
		}
		n := float64(b.pods)
		each := milliseconds(burst.sights, begun, (*sight).done)
		put("time", burst.took.Seconds())
		put("rate", n/burst.took.Seconds())
		put("p50", report.Median(each))
		put("p99", report.Percentile(each, 99))
		put("annotation", report.Median(milliseconds(burst.sights, begun, annotated)))
		put("row", report.Median(milliseconds(burst.sights, begun, ported)))
		put("transactions", float64(after.transactions-before.transactions)*1000/n)
		put("northd", float64((after.northd-before.northd).Milliseconds())/n)
		put("memory", memory)
		put("own", float64((after.own-before.own).Milliseconds())/n)
		b.say("  %.2f s, %.0f pods/s, p50 %.0f ms, p99 %.0f ms; %d transactions, %.1f MB",
			burst.took.Seconds(), n/burst.took.Seconds(), report.Median(each), report.Percentile(each, 99), after.transactions-before.transactions, memory)
		return nil
	})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("burst of %d pods: ", b.pods)
	line := func(what, unit string, aim float64, key string) *report.Result {
		return b.report.Beside(name+what, unit, aim, values[key]["ours"], values[key]["yardstick"])
	}
	line("first create to last pod done", "s", 1.15, "time").Explain("done: port in NB and annotation in the API, seen by one observer")
	line("rate", "pods/s", 0, "rate")
	line("create to done, p50", "ms", 1.5, "p50")
	line("create to done, p99", "ms", 1.5, "p99")
	line("create to annotation, p50", "ms", 0, "annotation")
	line("create to row, p50", "ms", 0, "row")
	b.report.Alone(name+"NB transactions per 1000 pods", "", 40, values["transactions"]["ours"]...).Besides(values["transactions"]["yardstick"])
	line("CPU time of ovn-northd per pod", "ms", 0, "northd")
	line("CPU time of the watcher per pod", "ms", 0, "own")
	line("watcher memory at the end", "MB", 0, "memory")
	return nil
}

func begun(s *sight) time.Time     { return s.begun }
func appeared(s *sight) time.Time  { return s.appeared }
func annotated(s *sight) time.Time { return s.annotated }
func ported(s *sight) time.Time    { return s.ported }
