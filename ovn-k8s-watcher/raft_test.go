package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ovn-k8s/test/netfault"
	"ovn-k8s/test/reaper"
)

// A member is one server of a clustered Northbound database (ovsdb(7), "Clustered
// Database Service Model").
type member struct {
	*world
	name, remote, raft string
	process            *reaper.Process
}

// raft replaces the world's Northbound database by a cluster of three servers.
func (w *world) raft() []*member {
	w.Helper()
	var all []*member
	var remotes []string
	for i := range 3 {
		m := &member{world: w, name: fmt.Sprint("m", i), remote: freeRemote(w.T), raft: freeRemote(w.T)}
		args := []string{"create-cluster", m.file(".db"), "/usr/share/ovn/ovn-nb.ovsschema", m.raft}
		if i > 0 {
			args = []string{"join-cluster", m.file(".db"), "OVN_Northbound", m.raft, all[0].raft}
		}
		if out, err := exec.Command("ovsdb-tool", args...).CombinedOutput(); err != nil {
			w.Fatalf("%v: %s", err, out)
		}
		m.start()
		all, remotes = append(all, m), append(remotes, m.remote)
	}
	w.Cleanup(func() {
		for _, m := range all {
			m.process.Stop()
		}
	})
	w.central.StopNorthd()
	w.central.StopNB()
	w.central.NB = strings.Join(remotes, ",")
	w.eventually("all are members", func() bool {
		for _, m := range all {
			if m.status()["Status"] != "cluster member" {
				return false
			}
		}
		return true
	})
	return all
}

// freeRemote is a free remote for a server to listen on.
func freeRemote(t *testing.T) string {
	t.Helper()
	port, err := netfault.FreePort("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("tcp:127.0.0.1:", port)
}

func (m *member) file(ext string) string { return filepath.Join(m.dir, m.name+ext) }

func (m *member) start() {
	m.Helper()
	port := m.remote[strings.LastIndex(m.remote, ":")+1:]
	p, err := reaper.Start(nil, "ovsdb-server", "-vconsole:off", "--log-file="+m.file(".log"), "--unixctl="+m.file(".ctl"), "--pidfile="+m.file(".pid"),
		"--remote=ptcp:"+port+":127.0.0.1", m.file(".db"))
	if err != nil {
		m.Fatal(err)
	}
	m.process = p
}

// appctl runs a command of the server; a stopped server gives "".
func (m *member) appctl(args ...string) string {
	out, _ := exec.Command("ovs-appctl", append([]string{"--timeout=2", "-t", m.file(".ctl")}, args...)...).Output()
	return string(out)
}

// status are the lines of cluster/status of a member, by key.
func (m *member) status() map[string]string {
	all := map[string]string{}
	for l := range strings.Lines(m.appctl("cluster/status", "OVN_Northbound")) {
		if key, value, ok := strings.Cut(l, ": "); ok {
			all[key] = strings.TrimSpace(value)
		}
	}
	return all
}

func (m *member) leads() bool { return m.status()["Role"] == "leader" }

// leader waits until one of the members is the leader, and the others follow it in the same term: a member cut off
// believes to be the leader for a while.
func leader(w *world, of []*member) *member {
	w.Helper()
	var found *member
	w.eventually("all have one leader", func() bool {
		found = nil
		leaders, terms := map[string]bool{}, map[string]bool{}
		for _, m := range of {
			s := m.status()
			if s["Role"] == "leader" {
				found = m
			}
			id, _, _ := strings.Cut(s["Server ID"], " ")
			leaders[strings.Replace(s["Leader"], "self", id, 1)], terms[s["Term"]] = true, true
		}
		return found != nil && len(leaders) == 1 && len(terms) == 1
	})
	return found
}

// depose makes another member than m the leader. m may be elected again, so it repeats this until another is.
func (m *member) depose(others []*member) {
	m.Helper()
	m.eventually("another is the leader", func() bool {
		if m.leads() {
			m.appctl("cluster/failure-test", "transfer-leadership")
		}
		return slices.ContainsFunc(others, (*member).leads)
	})
}

func without(all []*member, m *member) (others []*member) {
	for _, o := range all {
		if o != m {
			others = append(others, o)
		}
	}
	return others
}

// The watcher follows the leader of a clustered database through all failures.
func TestClusteredNorthbound(t *testing.T) {
	w := newWorld(t, nil)
	all := w.raft()
	w.topology(manyNodes())
	p := w.start()
	w.burst(0, 30)
	w.settled(30)
	pods := 30
	for _, tt := range []struct {
		name       string
		begin, end func(*member)
	}{
		{"killed", func(m *member) { m.process.Stop() }, (*member).start},
		{"stopped", func(m *member) { m.signal(m.name+".pid", syscall.SIGSTOP) }, func(m *member) { m.signal(m.name+".pid", syscall.SIGCONT) }},
		{"cut off", func(m *member) { m.appctl("cluster/failure-test", "stop-raft-rpc") }, func(m *member) { m.appctl("cluster/failure-test", "clear") }},
		{"deposed", func(m *member) { m.depose(without(all, m)) }, func(*member) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.T = t
			before := leader(w, all)
			end := sync.OnceFunc(func() { tt.end(before) })
			defer end() // for the next ones, if this one fails
			lines := len(p.complaints())
			began := time.Now()
			tt.begin(before)
			after := leader(w, without(all, before))
			w.burst(pods, 30)
			pods += 30
			w.settled(pods)
			t.Logf("leader %s, then %s; settled after %s; %q", before.name, after.name, time.Since(began).Round(time.Millisecond), p.complaints()[lines:])
			end()
			w.settled(pods)
		})
		w.T = t
	}
}
