package nbsync_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
)

func TestApplyingTwiceChangesNothing(t *testing.T) {
	_, db, s := open(t)
	w := small(t)
	first := apply(t, s, rowsOf(w, w.Units()))
	sent := db.Transactions()
	if len(first) == 0 || sent != 1 {
		t.Fatalf("%d changes in %d transactions, want all in one", len(first), sent)
	}
	if again := apply(t, s, rowsOf(w, w.Units())); len(again) > 0 || db.Transactions() != sent {
		t.Errorf("the second time changed %v in %d transactions", again, db.Transactions()-sent)
	}
}

func TestRestartWritesNothing(t *testing.T) {
	c, _, s := open(t)
	w := small(t)
	apply(t, s, rowsOf(w, w.Units()))
	before, err := c.NBTransactions()
	if err != nil {
		t.Fatal(err)
	}
	_, db, s := connect(t, c)
	owners, err := s.Owners()
	if err != nil {
		t.Fatal(err)
	}
	units := w.Units()
	slices.Sort(units)
	if diff := cmp.Diff(units, owners); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	apply(t, s, rowsOf(w, append(units, owners...)))
	if after, err := c.NBTransactions(); err != nil || after != before || db.Transactions() != 0 {
		t.Errorf("restart: %d transactions in the file (%v), %d sent", after-before, err, db.Transactions())
	}
}

func TestForeignRowsSurvive(t *testing.T) {
	c, db, s := open(t)
	nbctl := func(args ...string) string {
		t.Helper()
		out, err := c.NBCtl(args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	w := small(t)
	apply(t, s, rowsOf(w, w.Units()))
	nbctl("ls-add", "theirs", "--", "lsp-add", "theirs", "their-port", "--", "lsp-add", "n0", "guest",
		"--", "set", "logical_switch", "n0", "external_ids:color=blue", "other_config:mcast_snoop=true",
		"--", "set", "logical_switch_port", "default_p0", "external_ids:color=red", "--", "lr-add", "their-router",
		"--", "pg-add", "their_group", "default_p0", "--", "acl-add", "n0", "to-lport", "7", "tcp", "drop", "--", "acl-add", group(t, db), "to-lport", "8", "udp", "drop")
	catchUp(t, c, db)
	before := dump(db)
	if changes := apply(t, s, rowsOf(w, w.Units())); len(changes) > 0 {
		t.Fatalf("what others added was changed: %v", changes)
	}
	if diff := cmp.Diff(before, dump(db)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
	all := map[nb.Unit][]nb.Row{}
	units := w.Units()
	touched := w.Remove(open80())
	apply(t, s, rowsOf(w, touched))
	if got := nbctl("--bare", "--columns=ports", "find", "port_group", "name!="+names.EntryPortGroup); len(strings.Fields(got)) != 1 {
		t.Errorf("a pod that left our group is in %q, want theirs only", got)
	}
	if got := nbctl("--bare", "--columns=match", "find", "acl", "priority<32000"); got != "tcp" {
		t.Errorf("without policies there are ACLs %q beside what is dropped always, want theirs of the switch", got)
	}
	for _, u := range units {
		all[u] = nil
	}
	apply(t, s, all)
	if got := nbctl("--bare", "--columns=name", "list", "logical_switch") + nbctl("--bare", "--columns=name", "list", "logical_router") +
		nbctl("--bare", "--columns=name", "list", "logical_switch_port"); got != "theirs"+"their-router"+"their-port" {
		t.Errorf("after all of ours is gone there is %q", got)
	}
}

// L6: the commands record nodes and gateways on the cluster's router. That touches none of its rows, and is not reported.
func TestRecordsOfNodesAreNotReported(t *testing.T) {
	c, db, s := open(t)
	w := small(t)
	apply(t, s, rowsOf(w, w.Units()))
	changed := make(chan nb.Unit, 100)
	catchUp(t, c, db)
	db.Handle(s.Handler(func(u nb.Unit) { changed <- u }))
	for _, command := range []string{
		"set logical_router ovn_cluster_router external_ids:ovn-k8s-node-n9=10.0.9.0/24 external_ids:ovn-k8s-chassis-n9=nine",
		"remove logical_router ovn_cluster_router external_ids ovn-k8s-node-n1",
		"lsp-set-addresses default_p1 dynamic",
	} {
		if _, err := c.NBCtl(strings.Fields(command)...); err != nil {
			t.Fatal(err)
		}
	}
	if u := <-changed; u != "pod/default/p1" {
		t.Errorf("%s is reported first", u)
	}
}

func TestOurRowsReturn(t *testing.T) {
	c, db, s := open(t)
	w := small(t)
	apply(t, s, rowsOf(w, w.Units()))
	before := dump(db)
	changed := make(chan nb.Unit, 100)
	pg := group(t, db)
	db.Handle(s.Handler(func(u nb.Unit) { changed <- u }))
	defer s.Follow(db)()
	for _, tt := range []struct {
		command string
		unit    nb.Unit
	}{
		{"lsp-del default_p0", "pod/default/p0"},
		{"lsp-set-addresses default_p1 dynamic", "pod/default/p1"},
		{"lsp-set-port-security default_p1", "pod/default/p1"},
		{"remove logical_switch_port default_p2 options iface-id-ver", "pod/default/p2"},
		{"lrp-del rtos-n0", "node/n0"},
		{"ls-del join", "cluster"},
		{"lr-del ovn_cluster_router", "cluster"},
		{"pg-del " + pg, nb.Unit("group/" + pg)},
		{"pg-del " + pg, "policy/default/open-80"},
		{"pg-del " + pg, "pod/default/p3"},
		{"clear port_group " + pg + " ports", "pod/default/p5"},
		{"clear port_group " + pg + " acls", "policy/default/open-80"},
		{"meter-del", "acl-logging"},
		{"clear logical_switch n0 acls", "node-policy/n0"},
		{"clear logical_switch n0 acls", "guard"}, // its ACLs are on all switches
		{"ls-del n0", "guard"},
		{"clear logical_switch n0 load_balancer_group", "node/n0"},
		{"remove logical_router ovn_cluster_router external_ids ovn-k8s-cluster-subnets", "cluster"},
	} {
		t.Run(tt.command, func(t *testing.T) {
			for catchUp(t, c, db); len(changed) > 0; { // our own repairs are reported too
				<-changed
			}
			if _, err := c.NBCtl(strings.Fields(tt.command)...); err != nil {
				t.Fatal(err)
			}
			for got := nb.Unit(""); got != tt.unit; {
				select {
				case got = <-changed:
				case <-time.After(time.Minute):
					t.Fatalf("nobody reported %s", tt.unit)
				}
			}
			apply(t, s, rowsOf(w, w.Units()))
			if diff := cmp.Diff(before, dump(db)); diff != "" {
				t.Errorf("(-before +after):\n%s", diff)
			}
		})
	}
}

// A row's column with rows of ours becomes empty when none is wanted, and keeps an operator's.
func TestAColumnBecomesEmpty(t *testing.T) {
	c, db, s := open(t)
	rows := func(has ...nb.Ref) map[nb.Unit][]nb.Row {
		return map[nb.Unit][]nb.Row{"cluster": {
			{Table: nbdb.LoadBalancerGroupTable, ID: "ovn-k8s-x", Model: &nbdb.LoadBalancerGroup{Name: "ovn-k8s-x"}},
			{Table: nbdb.LogicalRouterTable, ID: "r", Model: &nbdb.LogicalRouter{Name: "r"}, Has: has},
		}}
	}
	apply(t, s, rows(nb.Ref{Table: nbdb.LoadBalancerGroupTable, ID: "ovn-k8s-x", Column: "load_balancer_group"}))
	if _, err := c.NBCtl("--id=@g", "create", "load_balancer_group", "name=theirs", "--", "add", "logical_router", "r", "load_balancer_group", "@g"); err != nil {
		t.Fatal(err)
	}
	catchUp(t, c, db)
	apply(t, s, rows())
	groups, err := c.NBCtl("--bare", "--columns=load_balancer_group", "list", "logical_router")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := c.NBCtl("--bare", "--columns=_uuid", "find", "load_balancer_group", "name=theirs")
	if err != nil || strings.TrimSpace(groups) != strings.TrimSpace(theirs) {
		t.Errorf("groups %q, want %q, %v", groups, theirs, err)
	}
}

// The ports added to the group of a policy are one line of log, and one port has its own line.
func TestLogOfAPolicy(t *testing.T) {
	_, db, s := open(t)
	var text bytes.Buffer
	log := logrus.New()
	log.SetOutput(&text)
	s.Log = logrus.NewEntry(log)
	w := small(t)
	touched := w.Remove(open80())
	apply(t, s, rowsOf(w, w.Units()))
	text.Reset()
	apply(t, s, rowsOf(w, append(touched, w.Put(open80())...)))
	pg := group(t, db)
	for _, want := range []string{
		"created port group " + pg, "created ACL default/open-80/ingress/0",
		"changed 6 logical ports, default_p0 first: put into new " + pg,
	} {
		if n := strings.Count(text.String(), want); n != 1 {
			t.Errorf("%d lines say %q of:\n%s", n, want, &text)
		}
	}
	if n := strings.Count(text.String(), "logical port"); n != 1 {
		t.Errorf("%d lines are of ports:\n%s", n, &text)
	}
	text.Reset()
	apply(t, s, rowsOf(w, w.Remove(open80())))
	if want := "changed 6 logical ports, default_p0 first: taken out of " + pg; !strings.Contains(text.String(), want) {
		t.Errorf("no line says %q of:\n%s", want, &text)
	}
}

func TestAMovedRowLeavesItsOldParent(t *testing.T) {
	_, db, s := open(t)
	w := small(t)
	apply(t, s, rowsOf(w, w.Units()))
	moved := newPod("p0", "n1")
	moved.UID = "another"
	touched := append(w.Put(moved), w.Allocate()...)
	apply(t, s, rowsOf(w, touched))
	for _, m := range db.Client().Cache().Table(nbdb.LogicalSwitchTable).Rows() {
		sw := m.(*nbdb.LogicalSwitch)
		if n := map[string]int{"n0": 4, "n1": 6, "join": 1}[sw.Name]; len(sw.Ports) != n {
			t.Errorf("switch %s has %d ports, want %d", sw.Name, len(sw.Ports), n)
		}
	}
}

// After most rows were deleted, the index is made again. That they have gone is said until the cache is another one: a
// renewal may fail.
func TestMostRowsGo(t *testing.T) {
	_, db, s := open(t)
	w := small(t)
	w.Put(cluster(t, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9))
	for i := range 1500 {
		w.Put(newPod(fmt.Sprint("more", i), fmt.Sprint("n", i%10)))
	}
	w.Allocate()
	if changes := apply(t, s, rowsOf(w, w.Units())); len(changes) < 1500 {
		t.Fatalf("%d rows, want 1500 and more", len(changes))
	}
	if s.Shrunk() {
		t.Error("no rows have gone, and most are said to")
	}
	var gone []nb.Unit
	for i := range 1500 {
		gone = append(gone, w.Remove(newPod(fmt.Sprint("more", i), ""))...)
	}
	apply(t, s, rowsOf(w, gone))
	if changes := apply(t, s, rowsOf(w, append(w.Units(), gone...))); len(changes) > 0 {
		t.Errorf("then there is still something to do: %v", changes)
	}
	for range 2 {
		if !s.Shrunk() {
			t.Error("most rows have gone, and it is not said")
		}
	}
	if err := db.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Shrunk() {
		t.Error("most rows of a new cache are said to have gone")
	}
	w.Put(newPod("p0", "n1"))
	changes := apply(t, s, rowsOf(w, append(w.Allocate(), "pod/default/p0")))
	if len(changes) != 1 || changes[0].Action != nbsync.Update {
		t.Errorf("a pod that moves: %v", changes)
	}
}

// ovn-controller aborts when its host's variables come back after their row was deleted, but not if they were
// removed before the row.
func TestVariablesOfAHostAreEmptiedBeforeTheyGo(t *testing.T) {
	_, db, s := open(t)
	const unit = nb.Unit("chassis/n0")
	want := map[nb.Unit][]nb.Row{unit: {loadbalancer.VariablesRow("n0", map[string]string{names.VariablePrefix + "a": "1"})}}
	variables := func() []nbdb.ChassisTemplateVar {
		var rows []nbdb.ChassisTemplateVar
		if err := db.Client().List(t.Context(), &rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	apply(t, s, want)
	before := variables()
	for range 3 {
		if draining := step(t, s, map[nb.Unit][]nb.Row{unit: nil}); len(draining) != 1 {
			t.Fatalf("not waiting to delete %v", variables())
		}
	}
	if now := variables(); len(now) != 1 || len(now[0].Variables) > 0 {
		t.Errorf("not emptied: %v", now)
	}
	apply(t, s, want)
	if diff := cmp.Diff(before, variables()); diff != "" {
		t.Errorf("back again (-before +after):\n%s", diff)
	}
	finish(t, s, map[nb.Unit][]nb.Row{unit: nil})
	if now := variables(); len(now) > 0 {
		t.Errorf("left: %v", now)
	}
}

func TestOneBadUnitDoesNotHoldUpTheRest(t *testing.T) {
	c, _, s := open(t)
	w := small(t)
	apply(t, s, rowsOf(w, []nb.Unit{topology.ClusterUnit, "node/n0", "node/n1"}))
	if _, err := c.NBCtl("ls-add", "theirs", "--", "lsp-add", "theirs", "default_p3"); err != nil {
		t.Fatal(err)
	}
	want := rowsOf(w, w.Units())
	bad := newRow("pod/default/zdup")
	bad.Model.(*nbdb.LogicalSwitchPort).Name = "default_p1" // breaks the index of names
	want["pod/default/zdup"] = []nb.Row{bad}
	lost := newRow("pod/default/lost")
	lost.In[0].ID = "no-such-switch"
	want["pod/default/lost"] = []nb.Row{lost}
	_, failed := s.Apply(t.Context(), want)
	got := map[nb.Unit]string{}
	for u, err := range failed {
		got[u] = err.Error()
	}
	for u, text := range map[nb.Unit]string{
		"pod/default/p3":   `logical port "default_p3" exists and is not ours: rename or delete it`,
		"pod/default/zdup": "constraint violation",
		"pod/default/lost": "waiting for logical switch no-such-switch",
	} {
		if !strings.Contains(got[u], text) {
			t.Errorf("%s: got error %q, want %q", u, got[u], text)
		}
		delete(got, u)
	}
	if len(got) > 0 {
		t.Errorf("more failed: %v", got)
	}
	if again := slices.Collect(maps.Keys(got)); len(again) == 0 {
		delete(want, "pod/default/p3")
		delete(want, "pod/default/zdup")
		delete(want, "pod/default/lost")
		if changes := apply(t, s, want); len(changes) > 0 {
			t.Errorf("the good ones were not all done: %v", changes)
		}
	}
}

// A row wanted twice fails the second unit, and not the whole transaction.
func TestRowsWantedTwice(t *testing.T) {
	_, _, s := open(t)
	w := small(t)
	want := rowsOf(w, w.Units())
	twice, child := newRow("pod/default/twice"), newRow("pod/default/zchild")
	group := nb.Row{Table: nbdb.PortGroupTable, ID: "group", Model: &nbdb.PortGroup{Name: "group"}}
	child.In = append(child.In, nb.Ref{Table: nbdb.PortGroupTable, ID: "group", Column: "ports"})
	want["pod/default/twice"] = []nb.Row{group, twice, twice}
	want["pod/default/zchild"] = []nb.Row{child}
	want["pod/default/zother"] = want["pod/default/p1"]
	p, err := s.Plan(want)
	if err != nil || len(p.Failed) != 3 {
		t.Fatalf("%v, failed: %v", err, p.Failed)
	}
	for u, text := range map[nb.Unit]string{
		"pod/default/twice":  `logical port "pod_default_twice" is wanted twice, first by pod/default/twice`,
		"pod/default/zchild": "waiting for port group group",
		"pod/default/zother": `logical port "default_p1" is wanted twice, first by pod/default/p1`,
	} {
		if err := p.Failed[u]; err == nil || err.Error() != text {
			t.Errorf("%s: %v, want %q", u, err, text)
		}
		delete(want, u)
	}
	if _, err := s.ApplyAll(t.Context(), want); err != nil {
		t.Errorf("the others: %v", err)
	}
}

func TestGuard(t *testing.T) {
	c, db, s1 := open(t)
	_, _, s2 := connect(t, c)
	router := nbsync.Absent(nbdb.LogicalRouterTable, names.ClusterRouter)
	units := map[nb.Unit][]nb.Row{topology.ClusterUnit: cluster(t).Rows()}
	results := make(chan error, 2)
	for _, s := range []*nbsync.Sync{s1, s2} {
		go func() {
			_, err := s.ApplyAll(context.Background(), units, router)
			results <- err
		}()
	}
	conflicts := 0
	for range 2 {
		switch err := <-results; {
		case errors.Is(err, nbsync.ErrConflict):
			conflicts++
		case err != nil:
			t.Error(err)
		}
	}
	if conflicts > 1 {
		t.Error("both were told that the other one was faster")
	}
	if out, err := c.NBCtl("--bare", "--columns=name", "list", "logical_router"); err != nil || out != "ovn_cluster_router" {
		t.Errorf("there are routers %q (%v)", out, err)
	}
	var routers []nbdb.LogicalRouter
	if err := db.Client().List(t.Context(), &routers); err != nil || len(routers) != 1 {
		t.Fatalf("%d routers, %v", len(routers), err)
	}
	router = nbsync.Unchanged(nbdb.LogicalRouterTable, &routers[0], "external_ids")
	bigger := map[nb.Unit][]nb.Row{topology.ClusterUnit: cluster(t, 1).Rows()}
	if _, err := s1.ApplyAll(t.Context(), bigger, router); err != nil {
		t.Error(err)
	}
	if _, err := s1.ApplyAll(t.Context(), units, router); !errors.Is(err, nbsync.ErrConflict) {
		t.Errorf("a change computed from what was there before: %v", err)
	}
}

func TestAdoptsWhatThePythonEraMade(t *testing.T) {
	c, db, s := open(t)
	if _, err := c.NBCtl("lr-add", "Kube-Master", "--", "set", "logical_router", "Kube-Master", "external_ids:k8s-cluster-router=yes",
		"--", "ls-add", "join", "--", "lrp-add", "Kube-Master", "rtoj-Kube-Master", "00:00:00:AA:BB:CC", "100.64.1.1/24",
		"--", "ls-add", "n0", "--", "set", "logical_switch", "n0", "other_config:subnet=10.0.0.0/24", "external_ids:gateway_ip=10.0.0.1/24",
		"--", "lsp-add", "n0", "default_p0", "--", "set", "logical_switch_port", "default_p0", "external_ids:namespace=default", "external_ids:pod=true",
		"addresses=dynamic"); err != nil {
		t.Fatal(err)
	}
	before, err := c.NBCtl("--bare", "--columns=_uuid", "list", "logical_router", "Kube-Master", "--", "--columns=_uuid", "list", "logical_switch_port", "default_p0")
	if err != nil {
		t.Fatal(err)
	}
	w := desired.NewWorld()
	cl := cluster(t, 0, 1)
	cl.Router = "Kube-Master"
	w.Put(cl)
	w.Put(newPod("p0", "n0"))
	w.Allocate()
	apply(t, s, rowsOf(w, w.Units()))
	after, err := c.NBCtl("--bare", "--columns=_uuid", "list", "logical_router", "Kube-Master", "--", "--columns=_uuid", "list", "logical_switch_port", "default_p0")
	if err != nil || before != after {
		t.Errorf("rows were not adopted: %q became %q (%v)", before, after, err)
	}
	if n := db.Client().Cache().Table(nbdb.LogicalRouterTable).Len(); n != 1 {
		t.Errorf("%d routers", n)
	}
}
