package parts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
	db "ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/southbound"
	"ovn-k8s/test/northbound"
	"ovn-k8s/test/ovntest"
)

// A counter counts the frontends of each transaction.
type counter struct {
	*db.DB
	most int
}

func (c *counter) Transact(ctx context.Context, ops []ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	n := 0
	for _, op := range ops {
		if op.Table != nbdb.LoadBalancerTable {
			continue
		}
		if vips, ok := op.Row["vips"].(ovsdb.OvsMap); ok {
			n += len(vips.GoMap)
		}
		for _, m := range op.Mutations {
			if added, ok := m.Value.(ovsdb.OvsMap); ok && m.Column == "vips" {
				n += len(added.GoMap)
			}
		}
	}
	c.most = max(c.most, n)
	return c.DB.Transact(ctx, ops)
}

// heavy is a Service with frontends on a switch.
func heavy(name string, frontends int) []nb.Row {
	tcp := nbdb.LoadBalancerProtocolTCP
	lb := &nbdb.LoadBalancer{Name: names.LoadBalancer("service/default/" + name), Protocol: &tcp, Vips: map[string]string{}}
	for i := range frontends {
		lb.Vips[fmt.Sprintf("172.16.%d.%d:80", i/250, i%250)] = "10.0.0.9:80"
	}
	return []nb.Row{{Table: nbdb.LoadBalancerTable, ID: lb.Name, Model: lb, In: []nb.Ref{{Table: nbdb.LoadBalancerGroupTable, ID: names.LoadBalancerGroup, Column: "load_balancer"}}}}
}

// network has a switch with all Services.
func network() map[nb.Unit][]nb.Row {
	group := nb.Ref{Table: nbdb.LoadBalancerGroupTable, ID: names.LoadBalancerGroup, Column: "load_balancer_group"}
	return map[nb.Unit][]nb.Row{"node/n": {
		{Table: nbdb.LoadBalancerGroupTable, ID: names.LoadBalancerGroup, Model: &nbdb.LoadBalancerGroup{Name: names.LoadBalancerGroup}},
		{Table: nbdb.LogicalSwitchTable, ID: "n", Model: &nbdb.LogicalSwitch{Name: "n"}, Has: []nb.Ref{group}},
	}}
}

// port is the row of a pod.
func port(name string) []nb.Row {
	return []nb.Row{{
		Table: nbdb.LogicalSwitchPortTable, ID: "default_" + name, Model: &nbdb.LogicalSwitchPort{Name: "default_" + name},
		In: []nb.Ref{{Table: nbdb.LogicalSwitchTable, ID: "n", Column: "ports"}},
	}}
}

// world is a network with databases.
type world struct {
	*testing.T
	nb      *counter
	south   *southbound.DB
	central *ovntest.Central
}

func newWorld(t *testing.T) *world {
	central, north := northbound.Start(t)
	south, err := southbound.Open(t.Context(), config.Config{OVNRemote: central.SB}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(south.Close)
	return &world{t, &counter{DB: north}, south, central}
}

// start is a writer, as after a restart, and the units that it calls for.
func (w *world) start() (*Writer, chan nb.Unit) {
	out, calls := &Writer{Sync: &nbsync.Sync{DB: w.nb, Compare: desired.Compare}}, make(chan nb.Unit, 1000)
	out.SetSouth(w.south)
	out.Follow(func(u nb.Unit) { calls <- u })
	return out, calls
}

// apply writes units and returns those held.
func (w *world) apply(to *Writer, want map[nb.Unit][]nb.Row) (held []nb.Unit) {
	w.Helper()
	_, failed := to.Apply(w.Context(), want)
	for u, err := range failed {
		if !errors.Is(err, ErrHeld) {
			w.Fatalf("%s: %v", u, err)
		}
		held = append(held, u)
	}
	slices.Sort(held)
	return held
}

// frontends counts those in the database.
func (w *world) frontends() (n int) {
	for _, m := range w.nb.Client().Cache().Table(nbdb.LoadBalancerTable).RowsShallow() {
		n += len(m.(*nbdb.LoadBalancer).Vips)
	}
	return n
}

// L3: new frontends of heavy Services are written in parts, each when ovn-northd is done with the last one. Pods and
// ordinary Services do not wait. A writer that starts in between goes on, and one after the end writes nothing.
func TestHeavyServicesComeInParts(t *testing.T) {
	w := newWorld(t)
	first, calls := w.start()
	w.apply(first, network())
	all := func() map[nb.Unit][]nb.Row {
		return map[nb.Unit][]nb.Row{"service/default/a": heavy("a", 60), "service/default/b": heavy("b", 60), "service/default/c": heavy("c", 5), "pod/default/p": port("p")}
	}
	if held := w.apply(first, all()); !slices.Equal(held, []nb.Unit{"service/default/a", "service/default/b"}) {
		t.Errorf("%v are held", held)
	}
	if n := w.frontends(); n <= 5 || n > 25 {
		t.Errorf("the first part has %d frontends with the ordinary Service's 5", n)
	}
	if rows := w.nb.Client().Cache().Table(nbdb.LogicalSwitchPortTable).Len(); rows != 1 {
		t.Errorf("%d ports, want the pod's", rows)
	}
	if err := w.central.StartNorthd(); err != nil {
		t.Fatal(err)
	}
	<-calls
	second, calls := w.start() // as if the first had been killed
	for held := w.apply(second, all()); len(held) > 0; held = w.apply(second, all()) {
		<-calls
	}
	if n := w.frontends(); n != 125 || w.nb.most > 100 {
		t.Errorf("%d frontends, at most %d in a transaction", n, w.nb.most)
	}
	third, _ := w.start()
	changes, failed := third.Apply(t.Context(), all())
	if len(changes) > 0 || len(failed) > 0 {
		t.Errorf("a restart writes %v, %v", changes, failed)
	}
}

// L3: Services that come while ovn-northd has a part do not wait if this part has room for them.
func TestTheRestOfAPartIsUsed(t *testing.T) {
	w := newWorld(t)
	to, _ := w.start()
	w.apply(to, network())
	for _, name := range []string{"a", "b"} {
		w.apply(to, map[nb.Unit][]nb.Row{nb.Unit("service/default/" + name): heavy(name, 9)})
	}
	if n := w.frontends(); n <= 9 || n >= 18 {
		t.Errorf("%d frontends of two Services with 9 each", n)
	}
}

// L3: a Service that changes is not held: neither other endpoints, nor fewer frontends. Nor is one held for long
// without a Southbound database.
func TestChangesAreNotHeld(t *testing.T) {
	w := newWorld(t)
	to, calls := w.start()
	to.SetSouth(nil)
	w.apply(to, network())
	for w.apply(to, map[nb.Unit][]nb.Row{"service/default/a": heavy("a", 60)}) != nil {
		<-calls
	}
	for _, change := range []func(lb *nbdb.LoadBalancer){
		func(lb *nbdb.LoadBalancer) {
			for vip := range lb.Vips {
				lb.Vips[vip] = "10.0.0.10:80"
			}
		},
		func(lb *nbdb.LoadBalancer) { delete(lb.Vips, "172.16.0.0:80") },
	} {
		rows := heavy("a", 60)
		change(rows[0].Model.(*nbdb.LoadBalancer))
		if held := w.apply(to, map[nb.Unit][]nb.Row{"service/default/a": rows}); held != nil {
			t.Errorf("%v are held", held)
		}
	}
}

// near is a Service with the same frontends on each of the switches, in a load balancer of its own.
func near(frontends int, switches ...string) (rows []nb.Row) {
	for _, sw := range switches {
		row := heavy("near/node/"+sw, frontends)[0]
		row.In = []nb.Ref{{Table: nbdb.LogicalSwitchTable, ID: sw, Column: "load_balancer"}}
		rows = append(rows, row)
	}
	return rows
}

// L3: frontends written for one node leave those for other nodes as new as they were. But a node that has a frontend
// keeps it, whichever load balancer it gets it from.
func TestFrontendsOfOtherNodesAreNew(t *testing.T) {
	w := newWorld(t)
	to, calls := w.start()
	to.SetSouth(nil)
	want := network()
	switches := []string{"n"}
	for i := range 3 {
		name := fmt.Sprint("other", i)
		switches = append(switches, name)
		want["node/n"] = append(want["node/n"], nb.Row{Table: nbdb.LogicalSwitchTable, ID: name, Model: &nbdb.LogicalSwitch{Name: name}})
	}
	w.apply(to, want)
	for w.apply(to, map[nb.Unit][]nb.Row{"service/default/a": near(80, switches...)}) != nil {
		<-calls
	}
	if n := w.frontends(); n != 320 || w.nb.most > 200 {
		t.Errorf("%d frontends, at most %d in a transaction", n, w.nb.most)
	}
	together := near(80, "n")
	for _, sw := range switches[1:] {
		together[0].In = append(together[0].In, nb.Ref{Table: nbdb.LogicalSwitchTable, ID: sw, Column: "load_balancer"})
	}
	for _, rows := range [][]nb.Row{heavy("a", 80), near(80, switches...), together, near(80, switches...)} {
		if held := w.apply(to, map[nb.Unit][]nb.Row{"service/default/a": rows}); held != nil {
			t.Errorf("%v are held although all nodes have the frontends", held)
		}
	}
}

// L3: rows for an emptied database count as everything else. So there Services wait no longer than pods.
func TestAnEmptiedDatabaseIsFilledAtOnce(t *testing.T) {
	w := newWorld(t)
	to, _ := w.start()
	want := network()
	for i := range 400 {
		want[nb.Unit(fmt.Sprint("pod/default/p", i))] = port(fmt.Sprint("p", i))
	}
	want["service/default/a"] = heavy("a", 40)
	if held := w.apply(to, want); held != nil || w.frontends() != 40 {
		t.Errorf("%v are held, with %d frontends", held, w.frontends())
	}
}

// L3: somebody else's address set stays as it is, and parts do not wait for it.
func TestAnAddressSetOfSomebodyElse(t *testing.T) {
	w := newWorld(t)
	insert := ovsdb.Operation{Op: ovsdb.OperationInsert, Table: nbdb.AddressSetTable, Row: ovsdb.Row{"name": names.PartsSet, "addresses": "192.0.2.1"}}
	if _, err := w.nb.Transact(t.Context(), []ovsdb.Operation{insert}); err != nil {
		t.Fatal(err)
	}
	to, calls := w.start()
	if to.mark(t.Context(), "0.0.0.1") {
		t.Error("it has the mark")
	}
	w.apply(to, network())
	for w.apply(to, map[nb.Unit][]nb.Row{"service/default/a": heavy("a", 60)}) != nil {
		<-calls
	}
	for _, m := range w.nb.Client().Cache().Table(nbdb.AddressSetTable).RowsShallow() {
		if set := m.(*nbdb.AddressSet); !slices.Equal(set.Addresses, []string{"192.0.2.1"}) {
			t.Errorf("its addresses are %v", set.Addresses)
		}
	}
}

// L3: there is no room before ovn-northd is done with a part. Then the unit held longest comes first.
func TestTheLongestHeldComesFirst(t *testing.T) {
	w := &Writer{Sync: &nbsync.Sync{}, busy: true, size: 5000}
	if room := w.room(nil); room != 0 {
		t.Errorf("there is room for %d during a part", room)
	}
	w.enqueue([]nb.Unit{"service/default/z"}, map[nb.Unit]int{"service/default/z": 1})
	w.enqueue([]nb.Unit{"service/default/b", "service/default/a"}, map[nb.Unit]int{"service/default/a": 1, "service/default/b": 1})
	order := w.order(map[nb.Unit][]nb.Row{"service/default/a": nil, "service/default/z": nil, "service/default/new": heavy("new", 60), "service/default/light": heavy("light", 1)})
	if want := []nb.Unit{"service/default/z", "service/default/a", "service/default/new"}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
}
