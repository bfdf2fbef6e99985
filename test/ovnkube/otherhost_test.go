package ovnkube

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/world"
)

// The databases move to another host as in install.md: with their files, or without them, after the loss of their
// host. No session between pods ends, with the files none at all; pods start, and the comparison finds nothing.
func TestDatabasesOnAnotherHost(t *testing.T) {
	for _, kind := range []string{"watcher and helpers", "ovnkube"} {
		t.Run(kind, func(t *testing.T) {
			m := &databaseMove{inUse(t, kind == "ovnkube", programs), kind == "ovnkube"}
			m.to(m.Node("minion1"), true)
			m.works("minion1")
			resume := m.pause(func(what string) bool { return !strings.Contains(what, betweenPods) })
			m.to(m.Node("minion2"), false)
			resume()
			m.works("minion2")
		})
	}
}

// A databaseMove moves both databases of a cluster in use.
type databaseMove struct {
	*sessions
	ovnkube bool
}

// to moves the databases to a host, with or without their files.
func (m *databaseMove) to(n *world.Node, files bool) {
	m.Helper()
	former := m.Central
	stop(former)
	next, err := n.StartCentral("")
	m.must(err)
	m.Cleanup(next.Close)
	if files {
		stop(next)
		for _, db := range []string{"ovnnb_db.db", "ovnsb_db.db"} {
			content, err := os.ReadFile(filepath.Join(former.Dir, db))
			m.must(err)
			m.must(os.WriteFile(filepath.Join(next.Dir, db), content, 0o600))
		}
		m.must(errors.Join(next.StartNB(), next.StartSB(), next.StartNorthd()))
	}
	m.Central = next
	for _, n := range m.Nodes {
		m.follow(n)
	}
	m.eventually("the comparison", func() error { return m.Check(m.ctx) })
}

// works fails the test unless sessions go on and pods start.
func (m *databaseMove) works(at string) {
	m.Helper()
	m.goOn("the move to " + at)
	m.Logf("sessions were silent for at most %v", m.silence())
	m.must(m.create(m.ctx, "at-"+at, "minion2"))
	m.await("at-" + at)
	m.must(m.Check(m.ctx))
}

// follow tells a host the addresses of the databases.
func (m *databaseMove) follow(n *world.Node) {
	m.Helper()
	if m.ovnkube {
		m.must(m.RestartOVNKube(m.ctx, n, n.Arguments()...))
		return
	}
	_, _, err := n.Run(m.ctx, "ovs-vsctl", "set", "Open_vSwitch", ".", "external_ids:ovn-nb="+m.Central.NBTCP, "external_ids:ovn-remote="+m.Central.SBTCP)
	m.must(err)
}

func stop(c *ovntest.Central) {
	c.StopNorthd()
	c.StopNB()
	c.StopSB()
}
