package hostile_test

import (
	"os"
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
		b.write(append(b.cluster.World.Put(o), b.cluster.World.Settle()...))
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
	start := time.Now()
	b.write(append(b.cluster.World.Put(p), b.cluster.World.Settle()...))
	written := time.Since(start)
	if err := b.central.Sync(); err != nil {
		b.t.Fatal(err)
	}
	done := time.Since(start)
	b.write(b.cluster.World.Remove(p))
	start = time.Now()
	b.write(append(b.cluster.World.Put(p), b.cluster.World.Settle()...))
	if err := b.central.Sync(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Logf("%s: a pod is written in %v, northd done in %v; a second pod %v", what, written.Round(time.Millisecond), done.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
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
