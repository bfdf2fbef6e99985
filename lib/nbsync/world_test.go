package nbsync_test

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/test/northbound"
	"ovn-k8s/test/ovntest"
)

// open returns a Sync on a fresh Northbound database.
func open(t testing.TB) (*ovntest.Central, *ovsdb.DB, *nbsync.Sync) {
	t.Helper()
	c, db := northbound.Start(t)
	return c, db, &nbsync.Sync{DB: db}
}

func connect(t testing.TB, c *ovntest.Central) (*ovntest.Central, *ovsdb.DB, *nbsync.Sync) {
	t.Helper()
	db := northbound.Connect(t, c)
	return c, db, &nbsync.Sync{DB: db}
}

// rowsOf returns the rows of units in a world, with the topology on the cluster router as written by the commands.
// Units with a problem have no rows.
func rowsOf(w *desired.World, units []nb.Unit) map[nb.Unit][]nb.Row {
	want := map[nb.Unit][]nb.Row{}
	for _, u := range units {
		if want[u], _ = w.Rows(u); u == topology.ClusterUnit {
			want[u] = w.Facts().Cluster.Rows()
		}
	}
	return want
}

func apply(t testing.TB, s *nbsync.Sync, want map[nb.Unit][]nb.Row) []nbsync.Change {
	t.Helper()
	changes, failed := s.Apply(t.Context(), want)
	if len(failed) > 0 {
		t.Fatalf("applying: %v", failed)
	}
	return changes
}

// step is apply, except for rows emptied before their deletion: it returns the units with such rows.
func step(t testing.TB, s *nbsync.Sync, want map[nb.Unit][]nb.Row) (draining []nb.Unit) {
	t.Helper()
	_, failed := s.Apply(t.Context(), want)
	for u, err := range failed {
		if !errors.Is(err, nbsync.ErrDraining) {
			t.Fatalf("applying %s: %v", u, err)
		}
		draining = append(draining, u)
	}
	return draining
}

// finish applies the desired rows of units until no row waits to be deleted.
func finish(t testing.TB, s *nbsync.Sync, want map[nb.Unit][]nb.Row) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); len(step(t, s, want)) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("rows that were emptied stay")
		}
	}
}

// dump is the content of a database without UUIDs: each row on one line, references by the rows' names.
func dump(db *ovsdb.DB) string {
	byUUID := map[string]string{}
	for _, table := range ovsdb.NBTables() {
		for uuid, m := range db.Client().Cache().Table(table).RowsShallow() {
			v := reflect.ValueOf(m).Elem()
			if f := v.FieldByName("Name"); f.IsValid() && f.Kind() == reflect.String {
				byUUID[uuid] = f.String()
			} else if f := v.FieldByName("ExternalIDs"); f.IsValid() {
				byUUID[uuid] = f.Interface().(map[string]string)[names.ID]
			}
		}
	}
	var lines []string
	for _, table := range ovsdb.NBTables() {
		for _, m := range db.Client().Cache().Table(table).Rows() {
			for _, c := range nb.Columns(m) {
				if c.Name == "up" || c.Name == "dynamic_addresses" {
					c.Value.SetZero() // northd's
				}
				if ids, ok := c.Value.Interface().(map[string]string); ok {
					delete(ids, names.NextAddress) // depends on the number of addresses assigned before
				}
				if list, ok := c.Value.Interface().([]string); ok {
					for i := range list {
						if name, ok := byUUID[list[i]]; ok {
							list[i] = name
						}
					}
				}
			}
			lines = append(lines, nb.Row{Table: table, Model: m}.String())
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func cluster(t testing.TB, nodes ...int) topology.Cluster {
	t.Helper()
	c, err := topology.New(names.ClusterRouter, prefixes("10.0.0.0/8", "fd00::/32"), prefixes("100.64.0.0/16", "fd98::/64"))
	for _, n := range nodes {
		if err == nil {
			c, err = c.WithNode(fmt.Sprintf("n%d", n), prefixes(fmt.Sprintf("10.%d.%d.0/24", n/256, n%256), fmt.Sprintf("fd00:0:0:%d::/64", n)))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

// small is a world of two nodes with three pods each, all of them in a port group.
func small(t testing.TB) *desired.World {
	w := desired.NewWorld()
	w.Put(cluster(t, 0, 1))
	w.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Annotations: map[string]string{names.ACLLogging: `{"deny": "alert"}`}}})
	w.Put(open80())
	for i := range 6 {
		w.Put(newPod(fmt.Sprint("p", i), fmt.Sprint("n", i%2)))
	}
	w.Allocate()
	return w
}

// open80 isolates the pods of a namespace except for one port.
func open80() *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "open-80"}}
	port := intstr.FromInt32(80)
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &port}}}}
	return p
}

// catchUp waits until the cache and all handlers of db have the present content of the database.
func catchUp(t *testing.T, c *ovntest.Central, db *ovsdb.DB) {
	t.Helper()
	const marker = "marker"
	told := make(chan struct{}, 2)
	tell := func(_ string, m model.Model) {
		if sw, ok := m.(*nbdb.LogicalSwitch); ok && sw.Name == marker {
			told <- struct{}{}
		}
	}
	defer db.Handle(&cache.EventHandlerFuncs{AddFunc: tell, DeleteFunc: tell})()
	for _, command := range []string{"ls-add", "ls-del"} {
		if _, err := c.NBCtl(command, marker); err != nil {
			t.Fatal(err)
		}
		select {
		case <-told:
		case <-time.After(time.Minute):
			t.Fatalf("nobody is told of %s", command)
		}
	}
}

// group is the name of our only port group.
func group(t *testing.T, db *ovsdb.DB) string {
	t.Helper()
	for _, m := range db.Client().Cache().Table(nbdb.PortGroupTable).RowsShallow() {
		if name := m.(*nbdb.PortGroup).Name; name != names.EntryPortGroup {
			return name
		}
	}
	t.Fatal("there is no port group of pods")
	return ""
}

func newRow(u nb.Unit) nb.Row {
	name := strings.ReplaceAll(string(u), "/", "_")
	return nb.Row{
		Table: nbdb.LogicalSwitchPortTable, ID: name, Model: &nbdb.LogicalSwitchPort{Name: name},
		In: []nb.Ref{{Table: nbdb.LogicalSwitchTable, ID: "n0", Column: "ports"}},
	}
}

func mark(dirty map[nb.Unit]bool, units []nb.Unit) {
	for _, u := range units {
		dirty[u] = true
	}
}
