package ovnkube

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/poll"
	"ovn-k8s/test/world"
)

// masters are two of them, each in a process of its own beside the node's.
type masters struct {
	*cluster
	processes world.Masters
	sessions  *sessions
	pods      []string // created while none led
}

// AC-104: the active one of two masters is killed, and another time frozen until the other one leads. The other takes over within
// 25 s, and pods that were created meanwhile get their ports, once. A frozen one writes nothing after it, and says who leads.
// Sessions of pods on all nodes go on all the time.
func TestCheck104_TwoMasters(t *testing.T) {
	c := newCluster(t, world.Options{Masters: 2})
	c.run()
	m := &masters{cluster: c, processes: world.Masters{World: c.World}}
	m.sessions = c.newSessions(map[string]string{"a": "master", "b": "minion1", "c": "minion2"})
	m.sessions.ring("a", "b", "c")
	for _, fail := range []func(){m.killed, m.frozen, m.frozen, m.killed} { // each host's master has both
		fail()
	}
	log, err := c.Central.NBLog()
	c.must(err)
	c.writtenOnce(log, m.pods)
	m.termsGrow(log)
	if failed := c.failures(); len(failed) > 0 {
		t.Errorf("%d failed sandboxes: %q", len(failed), failed)
	}
}

// killed kills the active master, and starts it again when the other one leads.
func (m *masters) killed() {
	m.Helper()
	active, standby := m.roles()
	since := time.Now()
	m.must(active.Kill(m.ctx, world.MasterPidfile))
	m.takesOver(standby, "killing "+active.Name, since)
	before := m.log(active)
	m.must(m.processes.Restart(m.ctx, active))
	m.tellsLeader(active, standby, before)
	m.clean("killing " + active.Name)
}

// frozen stops the active master until the other one leads.
func (m *masters) frozen() {
	m.Helper()
	active, standby := m.roles()
	since := time.Now()
	m.must(active.Freeze(m.ctx, world.MasterPidfile))
	m.takesOver(standby, "freezing "+active.Name, since)
	before := m.log(active)
	m.must(active.Thaw(m.ctx, world.MasterPidfile))
	m.tellsLeader(active, standby, before)
	m.clean("freezing " + active.Name)
}

// roles waits until a master leads, and returns it and the other one.
func (m *masters) roles() (active, standby *world.Node) {
	m.Helper()
	one, other := m.Nodes[0], m.Nodes[1]
	m.eventually("a master leads", func() error {
		leader, err := m.leader()
		switch {
		case err != nil:
			return err
		case leader == one.Name:
			active, standby = one, other
		case leader == other.Name:
			active, standby = other, one
		default:
			return fmt.Errorf("%q leads", leader)
		}
		return nil
	})
	return active, standby
}

// leader is the host with the token of the leader in the database.
func (m *masters) leader() (string, error) {
	token, err := m.Central.NBCtl("--if-exists", "get", "NB_Global", ".", "external_ids:"+names.Leader)
	host, _, _ := strings.Cut(strings.Trim(token, `"`), "/")
	return host, err
}

// takesOver creates a pod on each node, waits for the other master's term, and then for the pods.
func (m *masters) takesOver(other *world.Node, after string, since time.Time) {
	m.Helper()
	var created []string
	for _, n := range m.Nodes {
		name := fmt.Sprintf("%s-%d", n.Name, len(m.pods))
		m.must(m.create(m.ctx, name, n.Name))
		created = append(created, name)
	}
	ctx, cancel := context.WithTimeout(m.ctx, limit.Of(25*time.Second))
	defer cancel()
	err := poll.Until(ctx, func() error {
		leader, err := m.leader()
		if err == nil && leader != other.Name {
			err = fmt.Errorf("the leader is %s", leader)
		}
		return err
	})
	if err != nil {
		m.Fatalf("%s does not take over after %s: %v", other.Name, after, err)
	}
	led := time.Since(since)
	for _, name := range created {
		m.await(name)
	}
	m.Logf("%s leads %v after %s; the pods created meanwhile run after %v", other.Name, led.Round(time.Millisecond), after, time.Since(since).Round(time.Millisecond))
	m.pods = append(m.pods, created...)
}

// log is the log of the master of a host.
func (m *masters) log(n *world.Node) string {
	m.Helper()
	text, err := os.ReadFile(n.Path(world.MasterLog))
	m.must(err)
	return string(text)
}

// tellsLeader waits until a master says who leads, in one line after those of before; without a connection to the
// Northbound database another comes first, which does not know since when.
func (m *masters) tellsLeader(n, leader *world.Node, before string) {
	m.Helper()
	says := regexp.MustCompile(fmt.Sprintf(`standby: the watcher of "%s/[^"]+" (leads|has the Lease)`, leader.Name))
	lines := func() int { return len(says.FindAllString(strings.TrimPrefix(m.log(n), before), -1)) }
	m.eventually("the log of "+n.Name, func() error {
		if lines() == 0 {
			return fmt.Errorf("it does not name %s as the leader", leader.Name)
		}
		return nil
	})
	if got := lines() - strings.Count(strings.TrimPrefix(m.log(n), before), "; since when is not known"); got > 1 {
		m.Errorf("%s names the leader in %d lines: %s", n.Name, got, strings.TrimPrefix(m.log(n), before))
	}
}

// clean waits until neither master nor any node finds a difference, and until sessions go on.
func (m *masters) clean(after string) {
	m.Helper()
	for _, n := range m.Nodes[:2] {
		m.eventually("the database after "+after+", as "+n.Name+" sees it", func() error { return m.processes.Check(m.ctx, n) })
	}
	for _, n := range m.Nodes {
		m.eventually(n.Name+" after "+after, func() error { return m.CheckOVNKube(m.ctx, n) })
	}
	m.sessions.goOn(after)
}

var writer = regexp.MustCompile(`ovn-k8s-watcher (\S+) term (\d+)`)

// termsGrow fails if a log of the Northbound database has a transaction of a former term after one of a later term, or a term
// with two writers.
func (m *masters) termsGrow(log string) {
	m.Helper()
	last, by := 0, ""
	all := writer.FindAllStringSubmatch(log, -1)
	for _, w := range all {
		term, err := strconv.Atoi(w[2])
		m.must(err)
		if term < last || term == last && w[1] != by {
			m.Errorf("a transaction of %s with term %d after one of %s with term %d", w[1], term, by, last)
		}
		last, by = term, w[1]
	}
	m.Logf("%d transactions, the last in term %d", len(all), last)
	if last < 5 {
		m.Errorf("%d terms, want five or more", last)
	}
}
