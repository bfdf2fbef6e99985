package main

import (
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/netfault"
)

const (
	nowReleased = "was released, and is taken again with a connection"
	leftToOther = "left to others: the Northbound database is not connected since"
)

// wire has the world's next watchers connect to the Northbound database by a wire of their own. direct ends that.
func (w *world) wire() (wire *netfault.Wire, direct func()) {
	w.Helper()
	nb := w.central.NB
	path, ok := strings.CutPrefix(nb, "unix:")
	if !ok {
		w.Fatalf("the database listens at %s", nb)
	}
	wire, err := netfault.New("unix", path)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(wire.Close)
	w.central.NB = "tcp:" + wire.Addr
	return wire, func() { w.central.NB = nb }
}

// free reports whether nobody has the Lease of watchers.
func (w api) free() bool {
	w.Helper()
	l, err := cluster.Client().CoordinationV1().Leases(names.ConfigNamespace).Get(w.Context(), names.WatcherLease, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == ""
}

// A leader without a way to the Northbound database leaves the Lease to a watcher with one, and a watcher without one
// does not take it. A database started again changes nothing.
func TestALeaderWithoutTheNorthboundDatabase(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	wire, direct := w.wire()
	first := w.startAs("first-host")
	first.becomesActive(1, takeover)
	w.pod("a", "node1", nil)
	a := w.annotation("a")
	direct()
	second := w.startAs("second-host")
	w.eventually("the second watcher waits", func() bool { return second.says("standby: the watcher of") > 0 })
	w.central.StopNB()
	if err := w.central.StartNB(); err != nil {
		t.Fatal(err)
	}
	w.pod("b", "node1", nil)
	w.annotation("b")
	if first.says(nowReleased) > 0 || second.says(nowActive) > 0 {
		t.Fatal("a database that is started again costs the Lease")
	}

	wire.Refuse()
	w.pod("c", "node1", nil)
	second.becomesActive(1, patience)
	c := w.annotation("c")
	if first.says(nowReleased) != 1 || line(c) == line(a) || line(w.annotation("a")) != line(a) {
		t.Errorf("pods have %s and %s; the Lease was released %d times", line(a), line(c), first.says(nowReleased))
	}
	w.eventually("the first watcher has ended its term", func() bool { return first.says(nowInactive) == 1 })

	_ = second.cmd.Process.Signal(terminate)
	_ = second.cmd.Wait()
	w.eventually("the first watcher leaves the Lease to others", func() bool { return first.says(leftToOther) == 1 })
	out, _ := exec.Command("ovs-appctl", "-t", first.control(), "reconcile/show").CombinedOutput()
	if !strings.Contains(string(out), "standby: the Northbound database is not connected since") {
		t.Errorf("it says: %s", out)
	}
	third := w.startAs("third-host")
	third.becomesActive(1, takeover)
	if first.says(nowActive) != 1 {
		t.Error("the first watcher leads without a connection")
	}
	wire.Heal()
	w.eventually("the first watcher is connected", func() bool { return first.says("reconnected to NB") >= 2 })
	_ = third.cmd.Process.Signal(terminate)
	_ = third.cmd.Wait()
	first.becomesActive(2, takeover)
	w.pod("d", "node1", nil)
	w.annotation("d")
	if terms := hosts(w.oneWriterAtATime()); strings.Join(terms, " ") != "first-host second-host third-host first-host" {
		t.Errorf("terms of %s", terms)
	}
}

// Without a database for anybody, the leader releases the Lease once. With it, the same term goes on.
func TestASingleWatcherWithoutTheNorthboundDatabase(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	p := w.start()
	w.pod("a", "node1", nil)
	a := w.annotation("a")
	w.central.StopNB()
	w.eventually("the Lease is released", func() bool { return p.says(nowReleased) == 1 && w.free() })
	w.eventually("it is not taken again", func() bool { return p.says(leftToOther) == 1 })
	w.pod("b", "node1", nil)
	if !w.free() {
		t.Error("the Lease is held without a database")
	}
	if err := w.central.StartNB(); err != nil {
		t.Fatal(err)
	}
	w.eventually("the Lease is held again", func() bool { return p.says(nowRegained) == 1 })
	if b := w.annotation("b"); line(b) == line(a) || line(w.annotation("a")) != line(a) {
		t.Errorf("pods have %s and %s", line(a), line(b))
	}
	if p.says(nowActive) != 1 || p.says(nowInactive) != 0 || p.says(nowReleased) != 1 || p.says(leftToOther) != 1 || p.says("trying again") != 0 {
		t.Error("it says more than once what happens")
	}
	if terms := w.oneWriterAtATime(); len(terms) != 1 {
		t.Errorf("terms: %v", terms)
	}
	w.checked()
}
