package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

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
