package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/test/bench/field"
	"ovn-k8s/test/bench/report"
	"ovn-k8s/test/bench/run"
)

const (
	// idleTime is the time without any event, and heartbeats is the number of updates of Nodes' status after it.
	idleTime   = 10 * time.Second
	heartbeats = 1000
	// churnRate is the number of pods created in a second, and of pods deleted once there are churnPods. Each
	// churnEndpoint of them moves an endpoint.
	churnRate     = 50
	churnPods     = 500
	churnEndpoint = 5
	// churnPolicies select the pods, beside manyServices.
	churnPolicies = 100
)

// measureIdle measures our watcher without events about it.
func measureIdle(ctx context.Context, b *run.Bench) error {
	return b.Ours(ctx, func(f *field.Field, r *field.Runner) error { return measureIdleOf(ctx, f, b, r) })
}

func measureIdleOf(ctx context.Context, f *field.Field, b *run.Bench, r *field.Runner) error {
	if _, err := f.Create(ctx, b.Pods); err != nil {
		return err
	}
	if err := f.Settle(ctx); err != nil {
		return err
	}
	if err := field.Pause(ctx, idleTime/2); err != nil { // memory is given back after some seconds
		return err
	}
	b.Say("idle: nothing for %.0f s, and then %d heartbeats of Nodes", idleTime.Seconds(), heartbeats)
	idle, _, err := spent(f, r, func() error { return field.Pause(ctx, idleTime) })
	if err != nil {
		return err
	}
	beats, wrote, err := spent(f, r, func() error {
		return field.Parallel(ctx, heartbeats, func(ctx context.Context, i int) error { return heartbeat(ctx, f, i) })
	})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("idle watcher of %d pods: ", b.Pods)
	b.Report.Alone(name+"CPU time per second", "ms", 5, idle/idleTime.Seconds())
	b.Report.Alone(fmt.Sprintf("%sCPU time per heartbeat of a Node", name), "ms", 0, beats/heartbeats)
	b.Report.Alone(fmt.Sprintf("%sNB transactions for %d heartbeats", name, heartbeats), "", 0, wrote).MustBeZero()
	return nil
}

// heartbeat changes a Node's status like a kubelet's heartbeat.
func heartbeat(ctx context.Context, f *field.Field, i int) error {
	now, err := metav1.Now().MarshalJSON()
	if err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Test","message":"%d","lastHeartbeatTime":%s}]}}`, i, now)
	_, err = f.Client.CoreV1().Nodes().Patch(ctx, field.NodeName(i%field.Nodes), types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

// spent returns the CPU time of a watcher while do runs, in milliseconds, and the number of its transactions.
func spent(f *field.Field, r *field.Runner, do func() error) (ms, transactions float64, err error) {
	before, err := f.Costs(r)
	if err != nil {
		return 0, 0, err
	}
	if err := do(); err != nil {
		return 0, 0, err
	}
	after, err := f.Costs(r)
	return milli(after.Own - before.Own), float64(after.Transactions - before.Transactions), err
}

// measureChurn creates and deletes pods at a steady rate, beside many Services and policies, and measures the
// growth of times and memory.
func measureChurn(ctx context.Context, b *run.Bench) error {
	const round = 5000 // of names without other users
	return b.Ours(ctx, func(f *field.Field, r *field.Runner) error {
		b.Say("churn: %d services, %d policies, and %d pods a second for %.0f s", manyServices, churnPolicies, churnRate, b.Churn.Seconds())
		if err := field.Parallel(ctx, manyServices, func(ctx context.Context, i int) error { return createService(ctx, f, round, i) }); err != nil {
			return err
		}
		if err := field.Parallel(ctx, churnPolicies, func(ctx context.Context, i int) error { return createPolicy(ctx, f, round, i) }); err != nil {
			return err
		}
		if err := f.Settle(ctx); err != nil {
			return err
		}
		if err := measureChurnOf(ctx, f, b, r, round); err != nil {
			return err
		}
		if err := field.Parallel(ctx, manyServices, func(ctx context.Context, i int) error { return removeService(ctx, f, round, i) }); err != nil {
			return err
		}
		if err := field.Parallel(ctx, churnPolicies, func(ctx context.Context, i int) error { return removePolicy(ctx, f, round, i) }); err != nil {
			return err
		}
		return f.Empty(ctx)
	})
}

// A churn has the results of measureChurn.
type churn struct {
	pods         int
	sights       []field.Sight
	before       field.Costs
	after        field.Costs
	began, ended usage // after a quarter of the time, and at the end
}

func measureChurnOf(ctx context.Context, f *field.Field, b *run.Bench, r *field.Runner, services int) (err error) {
	f.Round++
	c := churn{pods: int(b.Churn.Seconds() * churnRate)}
	f.Observer.Expect(c.pods)
	if c.before, err = f.Costs(r); err != nil {
		return err
	}
	err = churnPodsOf(ctx, f, c.pods, services, func(i int) (err error) {
		switch i {
		case c.pods / 4:
			c.began, err = usageOf(f, r)
		case c.pods - 1:
			c.ended, err = usageOf(f, r)
		}
		return err
	})
	if err != nil {
		return err
	}
	if c.sights, err = f.Observer.Wait(ctx); err != nil {
		return err
	}
	if c.after, err = f.Costs(r); err != nil {
		return err
	}
	c.tell(b.Report)
	return nil
}

// tell adds the results to the report.
func (c *churn) tell(r *report.Report) {
	first, last := halves(c.sights)
	name := fmt.Sprintf("churn of %d pods/s beside %d services and %d policies: ", churnRate, manyServices, churnPolicies)
	grows := func(what, unit string, aim, now, before float64) *report.Result {
		return r.Beside(name+what, unit, aim, []float64{now}, []float64{before})
	}
	grows("create to done, p50, second half", "ms", 1.2, report.Median(last), report.Median(first)).Explain("yardstick: the first half; it must not grow")
	grows("create to done, p99, second half", "ms", 0, report.Percentile(last, 99), report.Percentile(first, 99))
	grows("watcher memory at the end", "MB", 1.2, c.ended.rss, c.began.rss).Explain("yardstick: after a quarter of the time")
	grows("goroutines at the end", "", 1.2, c.ended.goroutines, c.began.goroutines).Explain("the same")
	n := float64(c.pods)
	r.Alone(name+"NB transactions per 1000 pods", "", 0, float64(c.after.Transactions-c.before.Transactions)*1000/n).Explain("for pods that go and endpoints that move, too")
	r.Alone(name+"CPU time of the watcher per pod", "ms", 0, milli(c.after.Own-c.before.Own)/n)
	r.Alone(name+"CPU time of ovn-northd per pod", "ms", 0, milli(c.after.Northd-c.before.Northd)/n)
}

// halves are the milliseconds from create to done of the first half of the pods, and of the others.
func halves(sights []field.Sight) (first, last []float64) {
	var starts []float64
	for _, s := range sights {
		starts = append(starts, float64(s.Begun.UnixNano()))
	}
	middle := report.Median(starts)
	for _, s := range sights {
		ms := milli(s.Done().Sub(s.Begun))
		if float64(s.Begun.UnixNano()) <= middle {
			first = append(first, ms)
		} else {
			last = append(last, ms)
		}
	}
	return first, last
}

// churnPodsOf creates n pods at an even rate, and deletes each after churnPods more were created. It calls at with the
// number of each pod.
func churnPodsOf(ctx context.Context, f *field.Field, n, services int, at func(i int) error) error {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = groupedPod(f.Round, i)
	}
	ticker := time.NewTicker(time.Second / churnRate)
	defer ticker.Stop()
	g, ctx := errgroup.WithContext(ctx)
	for i := range n {
		select {
		case <-ctx.Done():
			return g.Wait()
		case <-ticker.C:
		}
		g.Go(func() error { return f.CreatePod(ctx, pods[i]) })
		if i >= churnPods {
			g.Go(func() error { return f.DeletePod(ctx, pods[i-churnPods]) })
		}
		if i%churnEndpoint == 0 {
			g.Go(func() error { _, err := moveObject(ctx, f, services, i/churnEndpoint); return err })
		}
		g.Go(func() error { return at(i) })
	}
	return g.Wait()
}

// usage is the memory and the goroutines of a watcher.
type usage struct{ rss, goroutines float64 }

func usageOf(f *field.Field, r *field.Runner) (u usage, err error) {
	if u.rss, err = r.RSS(); err != nil {
		return u, err
	}
	out, err := field.Appctl(f.Control(), "memory/show")
	if err != nil {
		return u, err
	}
	for word := range strings.FieldsSeq(out) {
		if v, ok := strings.CutPrefix(word, "goroutines:"); ok {
			u.goroutines, err = strconv.ParseFloat(v, 64)
			return u, err
		}
	}
	return u, fmt.Errorf("memory/show says no number of goroutines: %q", out)
}
