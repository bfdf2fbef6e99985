package main

import (
	"context"
	"time"

	"ovn-k8s/test/bench/report"
)

const (
	// singles is the number of pods created one at a time.
	singles = 100
	// singlePause is the time between them: the watcher batches pods that follow each other at once.
	singlePause = 150 * time.Millisecond
)

// measureSingle creates pods one at a time, without a queue or batches.
func measureSingle(ctx context.Context, b *bench) error {
	f, err := b.ground(ctx)
	if err != nil {
		return err
	}
	lines := []struct {
		name     string
		from, to func(*sight) time.Time
		p50, p99 map[string][]float64
	}{
		{name: "one pod at a time: create to annotation", from: begun, to: annotated},
		{name: "one pod at a time: create to row", from: begun, to: ported},
		{name: "one pod at a time: watch event to annotation", from: appeared, to: annotated},
	}
	for i := range lines {
		lines[i].p50, lines[i].p99 = map[string][]float64{}, map[string][]float64{}
	}
	memory := map[string][]float64{}
	err = b.turns(ctx, f, func(r *runner) error {
		var sights []sight
		for range singles {
			if err := pause(ctx, singlePause); err != nil {
				return err
			}
			one, err := f.create(ctx, 1)
			if err != nil {
				return err
			}
			sights = append(sights, one.sights...)
		}
		for _, l := range lines {
			each := milliseconds(sights, l.from, l.to)
			l.p50[r.name] = append(l.p50[r.name], report.Median(each))
			l.p99[r.name] = append(l.p99[r.name], report.Percentile(each, 99))
			b.say("  %s p50 %.1f ms, p99 %.1f ms", l.name, report.Median(each), report.Percentile(each, 99))
		}
		rss, err := r.RSS()
		memory[r.name] = append(memory[r.name], rss)
		return err
	})
	if err != nil {
		return err
	}
	for _, l := range lines {
		b.report.Beside(l.name+", p50", "ms", 0, l.p50["ours"], l.p50["yardstick"])
		b.report.Beside(l.name+", p99", "ms", 0, l.p99["ours"], l.p99["yardstick"])
	}
	b.report.Beside("one pod at a time: watcher memory at the end", "MB", 0, memory["ours"], memory["yardstick"])
	return nil
}
