package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/pod/annotation"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb/nbdb"
)

// manyNodes is a topology with room for 600 pods.
func manyNodes() map[string]string {
	nodes := map[string]string{}
	for i := range 6 {
		nodes[fmt.Sprint("node", i)] = fmt.Sprintf("192.168.%d.0/24,fd00:0:%d::/64", i+1, i+1)
	}
	return nodes
}

// burst creates n pods over the nodes of manyNodes.
func (w *world) burst(from, n int) {
	w.Helper()
	for i := from; i < from+n; i++ {
		w.pod(fmt.Sprintf("p%03d", i), fmt.Sprint("node", i%6), nil)
	}
}

// settled waits until every pod has exactly one port and one address, equal to its annotation, all addresses
// differ, and --check finds nothing. It returns the addresses by pod.
func (w *world) settled(pods int) map[string]string {
	w.Helper()
	var given map[string]string
	var why string
	defer func() {
		if why != "" {
			w.Logf("at last: %s", why)
		}
	}()
	w.eventually("all is well", func() bool {
		given, why = w.consistent(pods)
		return why == ""
	})
	w.checked()
	return given
}

// checked waits until --check finds nothing.
func (w *world) checked() {
	w.Helper()
	var last string
	defer func() {
		if last != "" {
			w.Logf("at last: %s", last)
		}
	}()
	w.eventually("--check finds nothing", func() bool {
		status, stdout, stderr := w.once(w.args("--check", "-vconsole:emer")...)
		if last = ""; status != 0 {
			last = fmt.Sprintf("status %d\n%s%s", status, stdout, stderr)
		}
		return status == 0
	})
}

// consistent returns the first problem, or "".
func (w *world) consistent(pods int) (map[string]string, string) {
	w.Helper()
	list, err := cluster.Client().CoreV1().Pods("default").List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err.Error()
	}
	if len(list.Items) != pods {
		w.Fatalf("%d pods, want %d", len(list.Items), pods)
	}
	db, err := w.connect()
	if err != nil {
		return nil, err.Error()
	}
	defer db.Close()
	ports := map[string]string{}
	for _, m := range db.Client().Cache().Table(nbdb.LogicalSwitchPortTable).RowsShallow() {
		if p := m.(*nbdb.LogicalSwitchPort); p.ExternalIDs[names.Pod] == "true" {
			ports[p.Name] = strings.Join(p.Addresses, "; ")
		}
	}
	if len(ports) != pods {
		return nil, fmt.Sprintf("%d ports for %d pods", len(ports), pods)
	}
	given := map[string]string{}
	holder := map[netip.Addr]string{}
	for _, p := range list.Items {
		a, err := annotation.Parse(p.Annotations[names.Annotation])
		if err != nil {
			return nil, fmt.Sprintf("pod %s: %v", p.Name, err)
		}
		if got := ports["default_"+p.Name]; got != line(a) {
			return nil, fmt.Sprintf("pod %s has annotation %s and port %q", p.Name, line(a), got)
		}
		for _, ip := range a.IPs {
			if other := holder[ip.Addr()]; other != "" {
				w.Fatalf("pods %s and %s share %s", other, p.Name, ip)
			}
			holder[ip.Addr()] = p.Name
		}
		given[p.Name] = line(a)
	}
	return given, ""
}

// supervise runs a watcher and starts it again after each end, like an init system, until the test ends. It returns
// a function to kill the present one.
func (w *world) supervise() (kill func()) {
	w.Helper()
	p := w.start()
	return func() {
		p.kill()
		p = w.start()
	}
}

func TestKill9DuringABurst(t *testing.T) {
	w := newWorld(t, manyNodes())
	kill := w.supervise()
	created := make(chan struct{})
	go func() {
		defer close(created)
		w.burst(0, 300)
	}()
	kills := 0
	for busy := true; busy || kills < 20; kills++ {
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		kill()
		select {
		case <-created:
			busy = false
		default:
		}
	}
	<-created
	t.Logf("%d kills", kills)
	w.settled(300)
}

func TestNorthboundServerKilled(t *testing.T) {
	w := newWorld(t, manyNodes())
	w.start()
	for i := range 4 {
		w.burst(i*40, 40)
		w.central.StopNB()
		w.burst(200+i*10, 10)
		if err := w.central.StartNB(); err != nil {
			t.Fatal(err)
		}
	}
	w.settled(200)
}

func TestAPIServerRestartDuringABurst(t *testing.T) {
	w := newWorld(t, manyNodes())
	w.start()
	w.burst(0, 60)
	cluster.Kill()
	if err := cluster.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.burst(60, 60)
	w.settled(120)
}

func TestEmptiedNorthboundIsRebuilt(t *testing.T) {
	w := newWorld(t, manyNodes())
	p := w.start()
	w.burst(0, 120)
	before := w.settled(120)
	same := func() {
		t.Helper()
		for name, line := range w.settled(120) {
			if before[name] != line {
				t.Errorf("pod %s moved from %s to %s", name, before[name], line)
			}
		}
	}
	w.central.StopNB()
	if err := w.central.StartEmptyNB(); err != nil {
		t.Fatal(err)
	}
	same()
	// Section 5 of the findings: somebody is told.
	if got := w.eventIn(names.ConfigNamespace, "ConfigMap", names.TopologyConfigMap, "TopologyRestored"); !strings.Contains(got, fmt.Sprintf("restoring the topology of %d nodes", len(manyNodes()))) {
		t.Errorf("the Event: %s", got)
	}
	w.nbctl("lr-del", names.ClusterRouter, "--", "ls-del", "join", "--", "ls-del", "node1", "--", "ls-del", "node2")
	same()
	p.kill() // and by one with the API server's objects only
	w.central.StopNB()
	if err := w.central.StartEmptyNB(); err != nil {
		t.Fatal(err)
	}
	w.start()
	same()
}

func TestOnlyOneWatcherIsActive(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	first := w.start("--unixctl=" + w.dir + "/first.ctl")
	w.pod("a", "node1", nil)
	w.annotation("a")
	second := w.startAs("other-host")
	w.eventually("the second watcher waits for the Lease", func() bool { return strings.Contains(second.log.String(), "standby: the watcher of") })
	w.pod("b", "node1", nil)
	w.annotation("b")
	if strings.Contains(second.log.String(), "active: following") {
		t.Error("two watchers are active")
	}
	_ = first.cmd.Process.Signal(terminate)
	_ = first.cmd.Wait()
	w.pod("c", "node1", nil)
	w.annotation("c")
	if !strings.Contains(second.log.String(), "active: following") {
		t.Error("nobody told that the second watcher took over")
	}
}
