package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/names"
)

// writersRounds is the number of rounds of TestOneWriter, unless OVNK8S_TEST_WRITER_ROUNDS is set.
const writersRounds = 2

// T1: several watchers are killed, frozen and started again, and Lease and token are changed by hand; one watcher
// at a time writes. The test reads the database's own log, and no address is assigned twice.
func TestOneWriter(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("OVNK8S_TEST_WRITER_ROUNDS"))
	if err != nil {
		rounds = writersRounds
	}
	for i := range rounds {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			w := newWorld(t, manyNodes())
			all := &watchers{world: w, random: r}
			for range 2 + i%4 {
				all.members = append(all.members, all.member())
			}
			const pods, batch = 60, 10
			for from := 0; from < pods; from += batch {
				w.burst(from, batch)
				all.disturb(time.Duration(5+r.IntN(1+min(5*i, 55))) * time.Second)
				if i >= writersRounds { // not in make test: a Lease is valid for 15 s
					w.annotation(fmt.Sprintf("p%03d", from))
				}
			}
			all.thaw()
			w.settled(pods)
			t.Logf("%d watchers", all.started)
			w.oneWriterAtATime()
		})
	}
}

// T1: watchers of different namespaces have different Leases. One of them leads, the other one tells the way out, and
// leads after the end of the first. They do not depose each other in turn.
func TestWatchersOfTwoNamespaces(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	const other = "default"
	t.Cleanup(func() { w.deleteLease(other) })
	w.deleteLease(other)
	if err := os.Mkdir(filepath.Join(w.dir, "openvswitch"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.write("openvswitch/ovn_k8s.conf", "[kubernetes]\novn-config-namespace="+other+"\n")
	first := w.startAs("first", "OVS_SYSCONFDIR="+w.dir+"/none")
	first.becomesActive(1, takeover)
	w.pod("a", "node1", nil)
	w.annotation("a")

	second := w.startAs("second")
	second.standsBy("first", names.ConfigNamespace, other)
	w.pod("b", "node1", nil)
	w.annotation("b")
	if first.says(nowInactive) > 0 || second.says(nowActive) > 0 {
		t.Fatal("the second watcher has deposed the first")
	}
	first.kill()
	second.becomesActive(1, takeover)

	third := w.startAs("third", "OVS_SYSCONFDIR="+w.dir+"/none")
	third.standsBy("second", other, names.ConfigNamespace)
	_ = second.cmd.Process.Signal(syscall.SIGSTOP)
	third.becomesActive(1, takeover)
	_ = second.cmd.Process.Signal(syscall.SIGCONT)
	second.standsBy("third", names.ConfigNamespace, other)
	w.pod("c", "node1", nil)
	w.annotation("c")
	_ = third.cmd.Process.Signal(terminate)
	second.becomesActive(2, takeover)
	terms := w.oneWriterAtATime()
	if got := strings.Join(hosts(terms), " "); got != "first second third second" {
		t.Errorf("terms of %s", got)
	}
}

// hosts returns the hosts of writers.
func hosts(terms []string) (hosts []string) {
	for _, term := range terms {
		host, _, _ := strings.Cut(term, "/")
		hosts = append(hosts, host)
	}
	return hosts
}

// standsBy waits until a watcher, whose Lease is in the namespace own, names a leader with a Lease of another namespace
// in its log and to ovs-appctl.
func (p *process) standsBy(leader, namespace, own string) {
	p.Helper()
	want := regexp.MustCompile(fmt.Sprintf(`standby: the watcher of "%s/[^"]+" leads since \S+ \(term \d+\) with the Lease %s/ovn-k8s-watcher, but this one has the Lease %s/ovn-k8s-watcher: set ovn-config-namespace to the same namespace for all watchers, for example: ovs-vsctl set Open_vSwitch \. external_ids:ovn-k8s-config-namespace=%s\n`,
		leader, namespace, own, namespace))
	p.eventually("the log names "+leader, func() bool { return want.MatchString(p.log.String()) })
	out, err := exec.Command("ovs-appctl", "-t", p.control(), "reconcile/show").CombinedOutput()
	if err == nil || !want.Match(out) {
		p.Errorf("reconcile/show (%v): %s", err, out)
	}
}

// control is the socket of a watcher of startAs.
func (p *process) control() string {
	for _, a := range p.cmd.Args {
		if path, ok := strings.CutPrefix(a, "--unixctl="); ok {
			return path
		}
	}
	p.Fatal("the watcher has no --unixctl")
	return ""
}

// deleteLease deletes the Lease of watchers of a namespace.
func (w api) deleteLease(namespace string) {
	w.Helper()
	err := cluster.Client().CoordinationV1().Leases(namespace).Delete(context.Background(), names.WatcherLease, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
}

// watchers are several watchers of one database.
type watchers struct {
	*world
	random  *rand.Rand
	members []*process
	frozen  []*process
	started int
}

// member starts a watcher, on this host or as if on another one.
func (c *watchers) member() *process {
	c.started++
	if c.random.IntN(2) == 0 {
		return c.start(fmt.Sprintf("--unixctl=%s/here%d.ctl", c.dir, c.started))
	}
	return c.startAs(fmt.Sprint("host", c.started))
}

// disturb damages a watcher, the Lease or the token. A frozen watcher wakes up after the duration frozen.
func (c *watchers) disturb(frozen time.Duration) {
	c.Helper()
	i := c.random.IntN(len(c.members))
	switch p := c.members[i]; c.random.IntN(5) {
	case 0:
		p.kill()
		c.members[i] = c.member()
	case 1:
		c.stop(p, syscall.SIGSTOP)
		c.frozen = append(c.frozen, p)
		time.AfterFunc(frozen, func() { c.stop(p, syscall.SIGCONT) })
	case 2:
		c.nbctl("set", "NB_Global", ".", `external_ids:`+names.Leader+`="stolen by hand"`)
	case 3:
		c.nbctl("remove", "NB_Global", ".", "external_ids", names.Leader)
	case 4:
		leases := cluster.Client().CoordinationV1().Leases(names.ConfigNamespace)
		patch := fmt.Sprintf(`{"spec":{"holderIdentity":"thief","renewTime":%q}}`, metav1.NowMicro().Format("2006-01-02T15:04:05.000000Z07:00"))
		_, err := leases.Patch(context.Background(), names.WatcherLease, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		c.Logf("Lease stolen: %v", err) // there may be no holder yet
	}
}

// stop signals a watcher; an ended one is ignored.
func (c *watchers) stop(p *process, s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// thaw wakes all frozen watchers, at once.
func (c *watchers) thaw() {
	for _, p := range c.frozen {
		c.stop(p, syscall.SIGCONT)
	}
}

// oneWriterAtATime reads the database's log: the transactions of a watcher's term are contiguous. It returns the
// terms.
func (w *world) oneWriterAtATime() (terms []string) {
	w.Helper()
	records, err := w.central.NBRecords()
	if err != nil {
		w.Fatal(err)
	}
	transactions := 0
	for _, r := range records {
		for line := range strings.Lines(r.Comment) {
			writer, ok := strings.CutPrefix(strings.TrimSpace(line), "ovn-k8s-watcher ")
			if !ok {
				continue
			}
			transactions++
			if n := len(terms); n > 0 && terms[n-1] == writer {
				continue
			}
			if slices.Contains(terms, writer) {
				w.Errorf("%v: a transaction of %s after one of %s", r.Time, writer, terms[len(terms)-1])
			}
			terms = append(terms, writer)
		}
	}
	w.Logf("%d transactions of %d terms", transactions, len(terms))
	if transactions == 0 {
		w.Error("no transaction names its writer")
	}
	return terms
}
