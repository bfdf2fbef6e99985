package cni_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ovn-k8s/test/limit"
)

func testWithoutOpenVSwitch(t *testing.T, w *world) {
	s, other := w.sandbox(t, nil), w.sandbox(t, nil)
	for _, x := range []*sandbox{s, other} {
		x.assign(t)
		x.add(t)
	}
	w.stop("ovsdb-server")
	if res := other.call(t, run{command: "ADD"}); res.Code != 11 || !strings.Contains(res.Msg+res.Details, "is ovsdb-server running?") {
		t.Errorf("ADD: %+v", res)
	}
	if res := s.call(t, run{command: "STATUS"}); res.Code != 51 {
		t.Errorf("STATUS: %+v", res)
	}
	s.del(t)
	if left := w.traces(t); len(left) != 1 { // the other's
		t.Errorf("left by DEL: %v", left)
	}
	w.must(t, exec.Command("ip", "netns", "del", filepath.Base(s.netns)))
	w.startOVSDB(t)
	if !slices.ContainsFunc(w.traces(t), func(l string) bool { return strings.Contains(l, s.id) }) {
		t.Error("the port should be left in the database")
	}
	// The userspace datapath forwards nothing until ovs-vswitchd connects again, up to 8 s later (vswitchd/bridge.c of
	// Open vSwitch, bridge_run).
	await(t, "the network of the other pod", func() bool { return other.exec("ping", "-n", "-c1", "-W1", "10.1.0.1").Run() == nil })
	other.del(t)
}

// limitOVSDB limits the size of the files that Open vSwitch's database writes: "1" is a full disk, "unlimited" has room. A write
// beyond the limit fails; SIGXFSZ, ignored by our daemons, would kill the server (setrlimit(2)).
func (w *world) limitOVSDB(t *testing.T, size string) {
	t.Helper()
	pid, err := os.ReadFile(w.dir + "/ovsdb-server.pid")
	if err != nil {
		t.Fatal(err)
	}
	w.must(t, exec.Command("prlimit", "--pid="+strings.TrimSpace(string(pid)), "--fsize="+size+":unlimited"))
}

// testFullDatabase: the disk of Open vSwitch's database is full, perhaps of a pod's files. The runtime can delete the pod, and a
// later DEL removes its port.
func testFullDatabase(t *testing.T, w *world) {
	s, other := w.sandbox(t, nil), w.sandbox(t, nil)
	for _, x := range []*sandbox{s, other} {
		x.assign(t)
		x.add(t)
	}
	w.limitOVSDB(t, "1")
	if res := w.sandbox(t, nil).call(t, run{command: "DEL"}); res.Code != 0 { // writes nothing
		t.Errorf("DEL of nothing: %+v", res)
	}
	for range 2 {
		s.del(t)
	}
	if out, err := w.in("ip", "link", "show", s.host()).CombinedOutput(); err == nil {
		t.Errorf("left by DEL: %s", out)
	}
	if log := w.log(t); !strings.Contains(log, "leaving the port in the database, has it a full disk? ") || !strings.Contains(log, "I/O error") {
		t.Errorf("the log does not name the disk: %s", log)
	}
	w.must(t, exec.Command("ip", "netns", "del", filepath.Base(s.netns)))
	w.limitOVSDB(t, "unlimited")
	if !slices.ContainsFunc(w.traces(t), func(l string) bool { return strings.Contains(l, s.id) }) {
		t.Error("the port should be left in the database")
	}
	other.ping(t, "10.1.0.1")
	other.del(t)
}

// testWithoutIPv6: a kernel without IPv6, as with ipv6.disable=1.
func testWithoutIPv6(t *testing.T, w *world) {
	const setup = "mount -t tmpfs tmpfs /proc/sys/net/ipv6"
	s := w.sandbox(t, nil)
	s.assign(t)
	for _, command := range []string{"ADD", "DEL"} {
		if res := s.call(t, run{command: command, setup: setup}); res.Code != 0 {
			t.Fatalf("%s: %+v", command, res)
		}
		if command == "ADD" {
			s.ping(t, "10.1.0.1")
		}
	}
}

// silent starts a database that accepts connections and reads, but never answers a transaction. It returns its run
// directory.
func (w *world) silent(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("unix", dir+"/db.sock")
	if err != nil {
		t.Fatal(err)
	}
	relay(t, l, "unix", w.dir+"/db.sock", func(server, client net.Conn) {
		for buffer, deaf := make([]byte, 64<<10), false; ; {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			if deaf = deaf || bytes.Contains(buffer[:n], []byte(`"transact"`)); !deaf {
				_, _ = server.Write(buffer[:n])
			}
		}
	})
	return dir
}

// counting starts a proxy of the database, and returns its run directory and the number of transactions asked of it.
func (w *world) counting(t *testing.T) (string, *atomic.Int64) {
	t.Helper()
	dir, asked := t.TempDir(), &atomic.Int64{}
	l, err := net.Listen("unix", dir+"/db.sock")
	if err != nil {
		t.Fatal(err)
	}
	relay(t, l, "unix", w.dir+"/db.sock", func(server, client net.Conn) {
		for buffer := make([]byte, 64<<10); ; {
			n, err := client.Read(buffer)
			if err != nil {
				return
			}
			asked.Add(int64(bytes.Count(buffer[:n], []byte(`"transact"`))))
			_, _ = server.Write(buffer[:n])
		}
	})
	return dir, asked
}

// testQuestions: an ADD by the server asks Open vSwitch's database four times: for changes before it, for the pod's earlier
// ports, for its port, and to add that.
func testQuestions(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	dir, asked := w.counting(t)
	w.stopServer(t)
	w.startServer(t, "OVS_RUNDIR="+dir)
	before := asked.Load()
	s.add(t)
	if n := asked.Load() - before; n != 4 {
		t.Errorf("asked %d times, want 4", n)
	}
	w.stopServer(t)
	w.startServer(t)
	s.del(t)
}

// testSilentOpenVSwitch: all commands time out, and DEL removes as much as possible.
func testSilentOpenVSwitch(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	s.add(t)
	env := map[string]string{"OVS_RUNDIR": w.silent(t)}
	if w.served {
		w.stopServer(t)
		w.startServer(t, "OVS_RUNDIR="+env["OVS_RUNDIR"])
	}
	runs := map[*run]int{}
	for command, code := range map[string]int{"DEL": 11, "GC": 11, "STATUS": 51} {
		r := s.start(t, run{command: command, env: env, conf: map[string]any{"cni.dev/valid-attachments": []any{}}})
		runs[r] = code
		hung := time.AfterFunc(limit.Of(time.Minute), func() { _ = r.cmd.Process.Kill() })
		defer hung.Stop()
	}
	for r, code := range runs {
		if res := r.end(t); res.Code != code || !strings.Contains(res.Details, "no answer within 25s: is ovsdb-server stopped or overloaded?") {
			t.Errorf("%s: %+v", r.command, res)
		}
	}
	if out, err := w.in("ip", "link", "show", s.host()).CombinedOutput(); err == nil {
		t.Errorf("left by DEL: %s", out)
	}
	if w.served {
		w.stopServer(t)
		w.startServer(t)
	}
	s.del(t)
}
