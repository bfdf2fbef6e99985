package hostile_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/test/hostile"
	"ovn-k8s/test/need"
	"ovn-k8s/test/ovntest"
)

// L1, L2: measures, on a real Northbound database and ovn-northd with 100 nodes and 500 pods,
// how long pods of others wait for their ports beside the objects of the cases
// OVNK8S_HOSTILE_SEEDS.
func TestOthersBesideHostileObjects(t *testing.T) {
	seeds := os.Getenv("OVNK8S_HOSTILE_SEEDS")
	if seeds == "" {
		t.Skip("set OVNK8S_HOSTILE_SEEDS to cases, as in policy/10,service/7")
	}
	need.Nothing(t, need.Central, ovntest.Missing())
	central, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer central.Close()
	if err := central.StartNorthd(); err != nil {
		t.Fatal(err)
	}
	model, err := ovsdb.NBModel()
	if err != nil {
		t.Fatal(err)
	}
	db, err := ovsdb.Open(t.Context(), ovsdb.Options{Name: "NB", Remotes: []string{central.NB}, Model: model})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	cluster, err := hostile.NewCluster(100, 500)
	if err != nil {
		t.Fatal(err)
	}
	b := beside{t, central, &nbsync.Sync{DB: db, Compare: desired.Compare}, cluster}
	b.write(cluster.World.Units())
	b.pod("nothing hostile")
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
	sync    *nbsync.Sync
	cluster *hostile.Cluster
}

func (b beside) try(k hostile.Case) {
	for _, o := range k.Objects {
		b.write(append(b.cluster.World.Put(o), b.cluster.World.Allocate()...))
	}
	b.pod(k.Name)
	for _, o := range k.Gone() {
		b.write(b.cluster.World.Remove(o))
	}
	for _, o := range k.Restore {
		b.write(b.cluster.World.Put(o))
	}
}

// pod measures the wait of a pod: for the transaction, with the hostile objects just
// written, and for ovn-northd to be done with both.
func (b beside) pod(what string) {
	p := hostile.Pod("namespace-0", "further", 7, 100)
	p.Labels["app"] = "app-new"
	start, before := time.Now(), b.northd()
	b.write(append(b.cluster.World.Put(p), b.cluster.World.Allocate()...))
	written := time.Since(start)
	if err := b.central.Sync(); err != nil {
		b.t.Fatal(err)
	}
	done, first := time.Since(start), b.northd()
	b.write(b.cluster.World.Remove(p))
	start = time.Now()
	b.write(append(b.cluster.World.Put(p), b.cluster.World.Allocate()...))
	if err := b.central.Sync(); err != nil {
		b.t.Fatal(err)
	}
	second := time.Since(start)
	b.t.Logf("%s: a pod is written in %v, northd done in %v; a second pod, after the deletion of the first, %v; CPU time of northd %v, %v", what,
		written.Round(time.Millisecond), done.Round(time.Millisecond), second.Round(time.Millisecond), first-before, b.northd()-first)
	b.write(b.cluster.World.Remove(p))
}

func (b beside) write(units []nb.Unit) {
	want := map[nb.Unit][]nb.Row{}
	for _, u := range units {
		want[u], _ = b.cluster.World.Rows(u)
	}
	if _, failed := b.sync.Apply(b.t.Context(), want); len(failed) > 0 {
		b.t.Fatal(failed)
	}
}

// northd returns the CPU time of ovn-northd. It depends less on the load of the machine
// than the wait of a pod.
func (b beside) northd() time.Duration {
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
