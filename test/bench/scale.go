package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/bench/field"
	"ovn-k8s/test/bench/run"
)

// Memory counts as settled if it has not fallen by more than settleMB for bench.settle. The watcher gives memory
// back some seconds after its work; Go's runtime would do so in an idle program after two minutes.
const (
	settleTime  = 15 * time.Second
	settleLimit = 6 * time.Minute
	settleStep  = 2 * time.Second
	settleMB    = 1
)

// measureScale measures our watcher with many pods, without other work.
func measureScale(ctx context.Context, b *run.Bench) error {
	return b.Ours(ctx, func(f *field.Field, r *field.Runner) error {
		if err := measureMemory(ctx, f, b, r); err != nil {
			return err
		}
		return measureRestart(ctx, f, b, r)
	})
}

// measureMemory fills and empties the cluster, and compares all rows while it is full.
func measureMemory(ctx context.Context, f *field.Field, b *run.Bench, r *field.Runner) error {
	if err := f.Empty(ctx); err != nil {
		return err
	}
	b.Say("scale: an idle watcher, until its memory settles")
	idle, err := settledMemory(ctx, b, r)
	if err != nil {
		return err
	}
	b.Say("scale: %.1f MB; now %d pods", idle, b.Many)
	filled, err := f.Create(ctx, b.Many)
	if err != nil {
		return err
	}
	b.Say("scale: %d pods after %.1f s; until memory settles", b.Many, filled.Took.Seconds())
	peak, err := r.RSS()
	if err != nil {
		return err
	}
	if err := f.Settle(ctx); err != nil {
		return err
	}
	full, err := settledMemory(ctx, b, r)
	if err != nil {
		return err
	}
	b.Say("scale: %.1f MB; comparing everything", full)
	if err := measureResync(b, f); err != nil {
		return err
	}
	b.Say("scale: deleting all pods")
	if err := f.Empty(ctx); err != nil {
		return err
	}
	after, err := settledMemory(ctx, b, r)
	if err != nil {
		return err
	}
	b.Say("scale: %.1f MB without pods", after)
	b.Report.Alone("watcher memory, idle", "MB", 60, idle).Explain("VmRSS of /proc/PID/status, once it has not fallen for %.0f s; %d nodes, no pods", b.Settle.Seconds(), field.Nodes)
	b.Report.Alone(fmt.Sprintf("watcher memory, %d pods", b.Many), "MB", 100, full).Explain("%.0f MB when the last of the burst was done", peak)
	b.Report.Alone("watcher memory, after their deletion", "MB", idle*1.1, after).Explain("aim: idle + 10 %%")
	b.Report.Alone(fmt.Sprintf("%d pods in a burst: rate", b.Many), "pods/s", 0, float64(b.Many)/filled.Took.Seconds())
	return nil
}

// settledMemory waits until a process needs no less memory than before.
func settledMemory(ctx context.Context, b *run.Bench, r *field.Runner) (float64, error) {
	least, err := r.RSS()
	since := time.Now()
	for began := time.Now(); err == nil && time.Since(since) < b.Settle && time.Since(began) < settleLimit; {
		if err := field.Pause(ctx, settleStep); err != nil {
			return 0, err
		}
		var now float64
		if now, err = r.RSS(); now < least-settleMB {
			least, since = now, time.Now()
		}
	}
	if err != nil {
		return 0, err
	}
	return r.RSS()
}

// measureResync has the watcher compare all rows with the database.
func measureResync(b *run.Bench, f *field.Field) error {
	var took, wrote []float64
	for range b.Rounds {
		before, err := f.Queue()
		if err != nil {
			return err
		}
		began := time.Now()
		if _, err := field.Appctl(f.Control(), "reconcile/resync"); err != nil {
			return err
		}
		if err := f.Compared(); err != nil {
			return err
		}
		took = append(took, time.Since(began).Seconds())
		after, err := f.Queue()
		if err != nil {
			return err
		}
		wrote = append(wrote, float64(after["transactions"]-before["transactions"]))
	}
	name := fmt.Sprintf("full comparison of %d unchanged pods", b.Many)
	b.Report.Alone(name, "s", 1, took...).Explain("from ovs-appctl reconcile/resync until nothing waits; the calls of ovs-appctl included")
	b.Report.Alone(name+": NB transactions", "", 0, wrote...).MustBeZero()
	return nil
}

// measureRestart kills and starts the watcher while it has many pods.
func measureRestart(ctx context.Context, f *field.Field, b *run.Bench, r *field.Runner) error {
	b.Say("scale: %d pods again, for restarts", b.Many)
	if _, err := f.Create(ctx, b.Many); err != nil {
		return err
	}
	if err := f.Settle(ctx); err != nil {
		return err
	}
	last := field.NewPod(f.Round, b.Many-1)
	var took, wrote, memory []float64
	for range b.Rounds {
		r.Stop()
		records, err := f.Central.NBTransactions()
		if err != nil {
			return err
		}
		began := time.Now()
		err = startAgain(ctx, f, r, last, field.Patience)
		if err == nil {
			err = f.Compared()
		}
		if err != nil {
			return err
		}
		took = append(took, time.Since(began).Seconds())
		now, err := f.Central.NBTransactions()
		if err != nil {
			return err
		}
		wrote = append(wrote, float64(now-records))
		rss, err := r.RSS()
		if err != nil {
			return err
		}
		memory = append(memory, rss)
		b.Say("scale: restart took %.2f s, wrote %d transactions, %.1f MB", time.Since(began).Seconds(), now-records, rss)
	}
	settled, err := settledMemory(ctx, b, r)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("restart with %d unchanged pods", b.Many)
	b.Report.Alone(name+": until all is compared", "s", 0, took...).Explain("from starting the process, with reading both sides")
	b.Report.Alone(name+": NB transactions", "", 0, wrote...).MustBeZero()
	b.Report.Alone(name+": memory at once", "MB", 0, memory...)
	b.Report.Alone(name+": memory settled", "MB", 100, settled)
	return nil
}

// startAgain starts a stopped watcher, and returns when it knows a pod.
func startAgain(ctx context.Context, f *field.Field, r *field.Runner, pod *corev1.Pod, limit time.Duration) error {
	again, err := f.Start(ctx, r.Contender)
	if err != nil {
		return err
	}
	*r = *again
	return field.Await(ctx, limit, "the watcher to know its pods", func() error {
		_, err := field.Appctl(f.Control(), "pod/show", pod.Namespace+"/"+pod.Name)
		return err
	})
}
