package main

import (
	"context"
	"time"

	"ovn-k8s/test/bench/field"
	"ovn-k8s/test/bench/report"
	"ovn-k8s/test/bench/run"
)

const (
	// singles is the number of pods created one at a time.
	singles = 100
	// singlePause is the time between them: the watcher batches pods that follow each other at once.
	singlePause = 150 * time.Millisecond
)

// measureSingle creates pods one at a time, without a queue or batches.
func measureSingle(ctx context.Context, b *run.Bench) error {
	f, err := b.Ground(ctx)
	if err != nil {
		return err
	}
	lines := []struct {
		name     string
		from, to func(*field.Sight) time.Time
		p50, p99 map[string][]float64
	}{
		{name: "one pod at a time: create to annotation", from: field.Begun, to: field.Annotated},
		{name: "one pod at a time: create to row", from: field.Begun, to: field.Ported},
		{name: "one pod at a time: watch event to annotation", from: field.Appeared, to: field.Annotated},
	}
	for i := range lines {
		lines[i].p50, lines[i].p99 = map[string][]float64{}, map[string][]float64{}
	}
	memory := map[string][]float64{}
	err = b.Turns(ctx, f, func(r *field.Runner) error {
		var sights []field.Sight
		for range singles {
			if err := field.Pause(ctx, singlePause); err != nil {
				return err
			}
			one, err := f.Create(ctx, 1)
			if err != nil {
				return err
			}
			sights = append(sights, one.Sights...)
		}
		for _, l := range lines {
			each := field.Milliseconds(sights, l.from, l.to)
			l.p50[r.Name] = append(l.p50[r.Name], report.Median(each))
			l.p99[r.Name] = append(l.p99[r.Name], report.Percentile(each, 99))
			b.Say("  %s p50 %.1f ms, p99 %.1f ms", l.name, report.Median(each), report.Percentile(each, 99))
		}
		rss, err := r.RSS()
		memory[r.Name] = append(memory[r.Name], rss)
		return err
	})
	if err != nil {
		return err
	}
	for _, l := range lines {
		b.Report.Beside(l.name+", p50", "ms", 0, l.p50["ours"], l.p50["yardstick"])
		b.Report.Beside(l.name+", p99", "ms", 0, l.p99["ours"], l.p99["yardstick"])
	}
	b.Report.Beside("one pod at a time: watcher memory at the end", "MB", 0, memory["ours"], memory["yardstick"])
	return nil
}
