package hostile_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/ovsdb/southbound"
	"ovn-k8s/lib/reconcile"
	"ovn-k8s/lib/watcher/parts"
	"ovn-k8s/test/hostile"
	"ovn-k8s/test/northbound"
	"ovn-k8s/test/ovntest"
)

// L1, L2: measures, on a real Northbound database and ovn-northd with 100 nodes and 500 pods,
// how long pods of others wait for their ports beside the objects of the cases
// OVNK8S_HOSTILE_SEEDS, with heavy Services in parts.
func TestOthersBesideHostileObjects(t *testing.T) {
	seeds := os.Getenv("OVNK8S_HOSTILE_SEEDS")
	if seeds == "" {
		t.Skip("set OVNK8S_HOSTILE_SEEDS to cases, as in policy/10,service/7")
	}
	central, db := northbound.Start(t)
	cluster, err := hostile.NewCluster(100, 500)
	if err != nil {
		t.Fatal(err)
	}
	south, err := southbound.Open(t.Context(), config.Config{OVNRemote: central.SB}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer south.Close()
	b := &beside{t: t, central: central, south: south, cluster: cluster}
	b.writer.Sync = &nbsync.Sync{DB: db, Compare: desired.Compare}
	b.writer.SetSouth(south)
	b.run()
	b.send(cluster.World.Units)
	b.idle()
	b.pods("nothing hostile")
	for _, text := range strings.Split(seeds, ",") {
		k, err := hostile.Draw(text)
		if err != nil {
			t.Fatal(err)
		}
		b.try(k)
	}
}

// beside is a cluster with databases.
type beside struct {
	t       *testing.T
	central *ovntest.Central
	south   *southbound.DB
	cluster *hostile.Cluster // of the goroutine of loop
	writer  parts.Writer
	loop    reconcile.Loop[func() []nb.Unit, nb.Unit]
	sent    atomic.Int32 // changes not yet recorded
}

// run writes the World's rows like a watcher.
func (b *beside) run() {
	next := map[nb.Unit][]nb.Row{}
	b.loop = reconcile.Loop[func() []nb.Unit, nb.Unit]{
		Record:  func(change func() []nb.Unit) []nb.Unit { return change() },
		OnDirty: func([]nb.Unit) []nb.Unit { return b.cluster.World.Allocate() },
		Compare: desired.Compare,
		Compute: func(u nb.Unit) { next[u], _ = b.cluster.World.Rows(u) },
		Sync: func([]nb.Unit) func(context.Context) map[nb.Unit]error {
			want := next
			next = map[nb.Unit][]nb.Row{}
			return func(ctx context.Context) map[nb.Unit]error {
				_, failed := b.writer.Apply(ctx, want)
				for u, err := range failed {
					if !errors.Is(err, parts.ErrHeld) {
						b.t.Errorf("%s: %v", u, err)
					}
				}
				return failed
			}
		},
	}
	stop := b.writer.Follow(func(u nb.Unit) { b.send(func() []nb.Unit { return []nb.Unit{u} }) })
	ctx, cancel := context.WithCancel(b.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = b.loop.Run(ctx) })
	b.t.Cleanup(func() {
		stop()
		cancel()
		wg.Wait()
	})
}

func (b *beside) send(change func() []nb.Unit) { b.loop.Send(change) }

// change sends a change of an object, in the line of its kind like a watcher.
func (b *beside) change(o any, f func(any) []nb.Unit) {
	b.sent.Add(1)
	b.loop.SendTo(fmt.Sprintf("%T", o), func() []nb.Unit {
		defer b.sent.Add(-1)
		return f(o)
	})
}

// idle waits until all rows are written, and ovn-northd is done with them.
func (b *beside) idle() {
	for s := b.loop.Status(); s.Events+s.Waiting+s.Syncing+len(s.Failed) > 0; s = b.loop.Status() {
		time.Sleep(10 * time.Millisecond)
	}
	if err := b.central.Sync(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *beside) try(k hostile.Case) {
	for _, o := range k.Objects {
		b.change(o, b.cluster.World.Put)
	}
	b.pods(k.Name)
	for _, o := range k.Gone() {
		b.change(o, b.cluster.World.Remove)
	}
	for _, o := range k.Restore {
		b.change(o, b.cluster.World.Put)
	}
	b.idle()
}

// pods measures the waits of pods for their ports: of one created with the hostile objects, and of others until all is
// written.
func (b *beside) pods(what string) {
	start, before := time.Now(), b.northd()
	first := b.pod("first")
	var more []wait
	all := time.Duration(0)
	for all == 0 {
		if b.sent.Load() <= 1 && len(b.loop.Status().Failed) == 0 { // one is the former pod's removal
			b.idle()
			all = time.Since(start)
		}
		more = append(more, b.pod(fmt.Sprint("more-", len(more))))
	}
	last := more[len(more)-1]
	worst := slices.MaxFunc(more, func(v, w wait) int { return cmp.Compare(v.took, w.took) })
	b.t.Logf("%s: a pod with them has its port in %v; the worst of %d pods while they are written, %v; a pod afterwards, %v; all is written after %v; CPU time of northd %v",
		what, first, len(more)-1, worst, last, all.Round(time.Millisecond), b.northd()-before)
}

// A wait is the time until a pod has its port, and CPU time of ovn-northd meanwhile.
type wait struct{ took, northd time.Duration }

// String formats a wait.
func (w wait) String() string {
	return fmt.Sprintf("%v (CPU %v)", w.took.Round(time.Millisecond), w.northd)
}

// pod creates a pod and waits until ovn-northd has made its port.
func (b *beside) pod(name string) wait {
	p := hostile.Pod("namespace-0", name, 7, 100)
	p.Labels["app"] = "app-new"
	start, before := time.Now(), b.northd()
	b.change(p, b.cluster.World.Put)
	for {
		bound, err := b.south.PortBindings(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		if bound["namespace-0_"+name] {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	w := wait{time.Since(start), b.northd() - before}
	b.change(p, b.cluster.World.Remove)
	return w
}

// northd returns the CPU time of ovn-northd. It depends less on the load of the machine
// than the wait of a pod.
func (b *beside) northd() time.Duration {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, file := range all {
		line, _ := os.ReadFile(file) // processes end
		if !strings.HasPrefix(string(line), "ovn-northd\x00") || !strings.Contains(string(line), b.central.Dir) {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(file), "stat"))
		if err != nil {
			b.t.Fatal(err)
		}
		var ticks, system int // fields 14 and 15 of proc(5), in hundredths of a second
		after := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		_, _ = fmt.Sscan(after[11], &ticks)
		_, _ = fmt.Sscan(after[12], &system)
		return time.Duration(ticks+system) * 10 * time.Millisecond
	}
	b.t.Fatal("ovn-northd is gone")
	return 0
}
