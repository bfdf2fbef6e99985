package vswitch_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/reaper"
	"ovn-k8s/test/require"
)

// TestMain is also the two ends of a TCP connection, for tests of rates.
func TestMain(m *testing.M) {
	switch os.Getenv("VSWITCH_TEST_ROLE") {
	case "receive":
		receive()
	case "send":
		send()
	default:
		os.Exit(m.Run())
	}
}

const payload = 1 << 20

func receive() {
	l, err := net.Listen("tcp", ":5001")
	exitOn(err)
	fmt.Println("ready")
	c, err := l.Accept()
	exitOn(err)
	_, err = io.CopyN(io.Discard, c, payload)
	exitOn(err)
	_, err = c.Write([]byte{1})
	exitOn(err)
}

// send prints the time until all bytes had arrived.
func send() {
	c, err := net.Dial("tcp", os.Args[1])
	exitOn(err)
	start := time.Now()
	_, err = c.Write(make([]byte, payload))
	exitOn(err)
	_, err = c.Read(make([]byte, 1))
	exitOn(err)
	fmt.Println(time.Since(start))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A node is a real Open vSwitch with the userspace datapath, in a network
// namespace of its own.
type node struct {
	t          testing.TB
	dir, netns string
	db, daemon *reaper.Process
}

func newNode(t testing.TB) *node {
	t.Helper()
	missing := ""
	for _, tool := range []string{"ip", "ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovn-controller", "ethtool"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = tool
		}
	}
	if os.Geteuid() != 0 {
		missing = "root"
	}
	require.Nothing(t, require.Node, missing)
	dir, err := os.MkdirTemp("", "vs")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir, netns: strings.TrimPrefix(dir, os.TempDir()+"/")}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n.run("ip", "netns", "add", n.netns)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", n.netns).Run() })
	n.run("ovsdb-tool", "create", dir+"/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
	t.Cleanup(func() { stop(&n.daemon); stop(&n.db) })
	n.startDB()
	n.vsctl("--no-wait", "init")
	n.startDaemon()
	n.vsctl("set", "Open_vSwitch", ".", "external_ids:ovn-bridge-datapath-type="+host.Datapath())
	return n
}

func (n *node) run(name string, args ...string) string {
	n.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (n *node) vsctl(args ...string) string {
	n.t.Helper()
	return n.run("ovs-vsctl", append([]string{"--db=unix:" + n.dir + "/db.sock", "--timeout=20"}, args...)...)
}

// ip runs ip(8) in the node's namespace.
func (n *node) ip(args ...string) string {
	n.t.Helper()
	return n.run("ip", append([]string{"-n", n.netns}, args...)...)
}

// in makes a command that runs in a namespace.
func in(netns string) reaper.Command {
	return func(name string, args ...string) *exec.Cmd {
		return exec.Command("ip", append([]string{"netns", "exec", netns, name}, args...)...)
	}
}

func (n *node) start(name string, args ...string) *reaper.Process {
	n.t.Helper()
	env := []string{"OVS_RUNDIR=" + n.dir, "OVS_LOGDIR=" + n.dir, "OVN_RUNDIR=" + n.dir, name}
	p, err := reaper.Start(in(n.netns), "env", append(env, args...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	return p
}

func (n *node) startDB() {
	n.t.Helper()
	_ = os.Remove(n.dir + "/db.sock")
	n.db = n.start("ovsdb-server", "--remote=punix:"+n.dir+"/db.sock", n.dir+"/conf.db")
	n.await(func() bool {
		return exec.Command("ovsdb-client", "--timeout=1", "list-dbs", "unix:"+n.dir+"/db.sock").Run() == nil
	})
}

func (n *node) startDaemon() {
	n.t.Helper()
	n.daemon = n.start("ovs-vswitchd", append(host.VswitchdArgs(), "--unixctl="+n.dir+"/vswitchd.ctl", "unix:"+n.dir+"/db.sock")...)
}

func stop(p **reaper.Process) {
	if *p != nil {
		(*p).Stop()
	}
	*p = nil
}

// await polls a condition without an event.
func (n *node) await(ok func() bool) {
	n.t.Helper()
	for end := time.Now().Add(limit.Of(time.Minute)); !ok(); {
		if time.Now().After(end) {
			n.t.Fatal("waited too long")
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (n *node) connect() *vswitch.Switch {
	n.t.Helper()
	s, err := vswitch.Connect(n.ctx(), n.dir, nil)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(s.Close)
	return s
}

// ctx is long enough for anything in these tests.
func (n *node) ctx() context.Context {
	ctx, cancel := context.WithTimeout(n.t.Context(), limit.Of(30*time.Second))
	n.t.Cleanup(cancel)
	return ctx
}

// veth makes a veth pair from the node to a new namespace "pod".
func (n *node) veth(name, addr string) (netns string) {
	n.t.Helper()
	netns = n.netns + name
	n.run("ip", "netns", "add", netns)
	n.t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", netns).Run() })
	n.ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", netns)
	n.ip("link", "set", name, "up")
	n.run("ip", "-n", netns, "addr", "add", addr, "dev", "eth0")
	n.run("ip", "-n", netns, "link", "set", "eth0", "up")
	// The userspace datapath does not fill in checksums.
	n.run("ip", "netns", "exec", netns, "ethtool", "-K", "eth0", "tx", "off")
	return netns
}

func (n *node) bridge(name string) {
	n.t.Helper()
	n.vsctl("add-br", name, "--", "set", "Bridge", name, "datapath_type="+host.Datapath())
}

func (n *node) count(table string) int {
	n.t.Helper()
	return len(strings.Fields(n.vsctl("--bare", "--columns=_uuid", "list", table)))
}

// transfer sends 1 MiB by TCP and returns how long it took.
func (n *node) transfer(from, to, addr string) time.Duration {
	n.t.Helper()
	rx := in(to)(os.Args[0])
	rx.Env = append(os.Environ(), "VSWITCH_TEST_ROLE=receive")
	ready, err := rx.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := rx.Start(); err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = rx.Process.Kill(); _ = rx.Wait() }()
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(n.t.Context(), limit.Of(60*time.Second))
	defer cancel()
	tx := exec.CommandContext(ctx, "ip", "netns", "exec", from, os.Args[0], addr+":5001")
	tx.Env = append(os.Environ(), "VSWITCH_TEST_ROLE=send")
	out, err := tx.Output()
	if err != nil {
		n.t.Fatalf("sending: %v", err)
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(out)))
	if err != nil {
		n.t.Fatal(err)
	}
	return d
}
