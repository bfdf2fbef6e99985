package vswitch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/ovntest"
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
	n.daemon = n.start("ovs-vswitchd", append(host.VswitchdArgs(), "unix:"+n.dir+"/db.sock")...)
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

func TestConnectErrors(t *testing.T) {
	_, err := vswitch.Connect(t.Context(), "/nowhere", nil)
	want := "connecting to Open vSwitch at unix:/nowhere/db.sock: connect: no such file or directory: is ovsdb-server running?"
	if err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
}

func TestEnsureInternalPort(t *testing.T) {
	n := newNode(t)
	s := n.connect()
	p := vswitch.InternalPort{
		Bridge: "br-int", Name: "k8s-node1", MAC: "0a:58:c0:a8:01:02", MTU: 1400,
		ExternalIDs: map[string]string{names.IfaceID: "k8s-node1"},
	}
	ensure := func(want bool) {
		t.Helper()
		before := s.Transactions()
		changed, err := s.EnsureInternalPort(n.ctx(), p)
		if err != nil {
			t.Fatal(err)
		}
		wantTx := map[bool]uint64{true: 1}[want]
		if changed != want || s.Transactions()-before != wantTx {
			t.Errorf("changed=%v by %d transactions, want %v by %d", changed, s.Transactions()-before, want, wantTx)
		}
		link := n.ip("link", "show", "k8s-node1")
		if !strings.Contains(link, p.MAC) || !strings.Contains(link, fmt.Sprintf("mtu %d ", p.MTU)) {
			t.Errorf("the device has not MAC %s and MTU %d:\n%s", p.MAC, p.MTU, link)
		}
	}
	plan := func(want ...string) {
		t.Helper()
		lines, err := s.PlanInternalPort(n.ctx(), p)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("plan (-want +got)\n%s", diff)
		}
	}
	plan("add bridge br-int", "add port k8s-node1 to bridge br-int")
	ensure(true)
	if got := n.vsctl("get", "Bridge", "br-int", "datapath_type", "fail_mode", "other_config"); got != host.Datapath()+"\nsecure\n{disable-in-band=\"true\"}" {
		t.Errorf("br-int: %q", got)
	}
	plan()
	ensure(false)

	n.vsctl("set", "Interface", "k8s-node1", "external_ids:foreign=x", "external_ids:iface-id=wrong", "mtu_request=1500")
	plan("set Interface k8s-node1 mtu_request=1400 (was 1500)", "set Interface k8s-node1 external_ids:iface-id=k8s-node1 (was wrong)")
	ensure(true)
	if got := n.vsctl("get", "Interface", "k8s-node1", "external_ids"); got != `{foreign=x, iface-id=k8s-node1}` {
		t.Errorf("external_ids: %s", got)
	}
	p.MAC = "0a:58:c0:a8:01:03"
	ensure(true)

	// A deleted port returns, and a bridge stays as it is.
	n.vsctl("set", "Open_vSwitch", ".", "external_ids:ovn-bridge-datapath-type=system")
	if changed, err := s.DeletePort(n.ctx(), "br-int", "k8s-node1"); !changed || err != nil {
		t.Fatalf("deleting: %v, %v", changed, err)
	}
	if exec.Command("ip", "-n", n.netns, "link", "show", "k8s-node1").Run() == nil {
		t.Error("the device is still there")
	}
	if changed, err := s.DeletePort(n.ctx(), "br-int", "k8s-node1"); changed || err != nil {
		t.Errorf("deleting again: %v, %v", changed, err)
	}
	ensure(true)
	if got, err := s.DatapathType(n.ctx(), "br-int"); got != host.Datapath() || err != nil {
		t.Errorf("datapath type %q, %v", got, err)
	}
}

func TestEnsureInternalPortErrors(t *testing.T) {
	n := newNode(t)
	s := n.connect()
	n.vsctl("add-br", "other", "--", "set", "Bridge", "other", "datapath_type="+host.Datapath(), "--", "add-port", "other", "p1", "--", "set", "Interface", "p1", "type=internal")
	_, err := s.EnsureInternalPort(n.ctx(), vswitch.InternalPort{Bridge: "br-int", Name: "p1"})
	if want := "adding port p1 to br-int: port p1 belongs to bridge other already"; err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
	n.ip("link", "add", "taken", "type", "veth", "peer", "name", "taken2")
	_, err = s.EnsureInternalPort(n.ctx(), vswitch.InternalPort{Bridge: "br-int", Name: "taken"})
	if want := "waiting for network device taken: ovs-vswitchd says: could not "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("\n got %v\nwant %s…", err, want)
	}
	stop(&n.daemon)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = s.EnsureInternalPort(ctx, vswitch.InternalPort{Bridge: "br-int", Name: "late"})
	if want := "waiting for network device late: context deadline exceeded: is ovs-vswitchd running?"; err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
}

func (n *node) bridge(name string) {
	n.t.Helper()
	n.vsctl("add-br", name, "--", "set", "Bridge", name, "datapath_type="+host.Datapath())
}

func (n *node) count(table string) int {
	n.t.Helper()
	return len(strings.Fields(n.vsctl("--bare", "--columns=_uuid", "list", table)))
}

func TestAttachAndDetach(t *testing.T) {
	n := newNode(t)
	n.bridge("br-int")
	n.veth("pod1", "10.9.0.1/24")
	s := n.connect()
	p := vswitch.PodPort{Bridge: "br-int", Name: "pod1", IngressRate: 20e6, ExternalIDs: map[string]string{names.IfaceID: "ns_pod", names.Sandbox: "1"}}
	attach := func(want uint64) {
		t.Helper()
		before := s.Transactions()
		if err := s.AttachPort(n.ctx(), p); err != nil {
			t.Fatal(err)
		}
		if got := s.Transactions() - before; got != want {
			t.Errorf("%d transactions, want %d", got, want)
		}
	}
	ids := func(want string) {
		t.Helper()
		if got := n.vsctl("get", "Interface", "pod1", "external_ids"); got != want {
			t.Errorf("external_ids %s, want %s", got, want)
		}
	}
	attach(1)
	attach(0)
	if got := n.vsctl("get", "QoS", n.vsctl("get", "Port", "pod1", "qos"), "type", "other_config:max-rate"); got != "linux-htb\n\"20000000\"" {
		t.Errorf("QoS %q", got)
	}
	// ovn-controller's keys stay as long as they are about this pod.
	n.vsctl("set", "Interface", "pod1", "external_ids:ovn-installed=true")
	attach(0)
	p.ExternalIDs[names.Sandbox] = "2"
	attach(1)
	ids(`{iface-id=ns_pod, ovn-installed="true", sandbox="2"}`)
	p.ExternalIDs = map[string]string{names.IfaceID: "ns_other"}
	attach(1)
	ids(`{iface-id=ns_other}`)

	p.IngressRate = 10e6
	attach(1)
	if n.count("QoS") != 1 {
		t.Error("a QoS row was left behind")
	}
	p.IngressRate = 0
	attach(1)
	if n.count("QoS") != 0 {
		t.Error("a QoS row was left behind")
	}

	p.IngressRate = 10e6
	attach(1)
	n.vsctl("--", "create", "QoS", "type=linux-htb") // of another owner
	for range 2 {
		if _, err := s.DetachWhere(n.ctx(), func(i vswitch.Interface) bool { return i.Name == "pod1" }); err != nil {
			t.Fatal(err)
		}
		if n.count("Port") != 1 || n.count("Interface") != 1 || n.count("QoS") != 1 {
			t.Errorf("left: %s", n.vsctl("show"))
		}
	}
	p.Bridge = "nowhere"
	err := s.AttachPort(n.ctx(), p)
	if want := "attaching pod1 to nowhere: there is no bridge nowhere"; err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
}

// The policer is for the kernel's datapath alone: see PodPort.
func TestEgressRate(t *testing.T) {
	n := newNode(t)
	n.vsctl("add-br", "netdev", "--", "set", "Bridge", "netdev", "datapath_type=netdev")
	n.vsctl("--no-wait", "add-br", "system")
	s := n.connect()
	for bridge, want := range map[string]string{"netdev": "0\n0", "system": "50000\n5000"} {
		p := vswitch.PodPort{Bridge: bridge, Name: "p-" + bridge, EgressRate: 50e6}
		if err := s.AttachPort(n.ctx(), p); err != nil {
			t.Fatal(err)
		}
		if got := n.vsctl("get", "Interface", p.Name, "ingress_policing_rate", "ingress_policing_burst"); got != want {
			t.Errorf("%s: %q, want %q", bridge, got, want)
		}
		p.EgressRate = 0
		if err := s.AttachPort(n.ctx(), p); err != nil {
			t.Fatal(err)
		}
		if got := n.vsctl("get", "Interface", p.Name, "ingress_policing_rate", "ingress_policing_burst"); got != "0\n0" {
			t.Errorf("%s without a limit: %q", bridge, got)
		}
	}
}

func TestDetachWhere(t *testing.T) {
	n := newNode(t)
	n.bridge("br-int")
	s := n.connect()
	for i := range 4 {
		p := vswitch.PodPort{Bridge: "br-int", Name: fmt.Sprint("pod", i), IngressRate: 1e6, ExternalIDs: map[string]string{names.CNINetwork: fmt.Sprint(i % 2)}}
		if err := s.AttachPort(n.ctx(), p); err != nil {
			t.Fatal(err)
		}
	}
	n.vsctl("del-port", "pod1") // leaves its QoS row behind
	before := s.Transactions()
	got, err := s.DetachWhere(n.ctx(), func(i vswitch.Interface) bool { return i.Bridge == "br-int" && i.ExternalIDs[names.CNINetwork] == "0" })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"pod0", "pod2"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if s.Transactions()-before != 1 || n.count("QoS") != 1 {
		t.Errorf("%d transactions, %d QoS rows left; want 1 and 1", s.Transactions()-before, n.count("QoS"))
	}
	all, err := s.Interfaces(n.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(all, func(i vswitch.Interface) bool { return i.Name == "pod3" }); i < 0 || all[i].Bridge != "br-int" {
		t.Errorf("interfaces: %+v", all)
	}
	n.await(func() bool { // ovs-vswitchd cannot open it
		all, err := s.Interfaces(n.ctx())
		return err == nil && slices.ContainsFunc(all, func(i vswitch.Interface) bool { return i.Name == "pod3" && i.Ofport < 0 && i.Error != "" })
	})
}

// A Switch of ConnectFor hears of no other port, and changes its own port in the same way as a full Switch.
func TestConnectFor(t *testing.T) {
	n := newNode(t)
	n.bridge("br-int")
	n.bridge("br-ex")
	all := n.connect()
	attach := func(s *vswitch.Switch, name, ifaceID string) {
		t.Helper()
		p := vswitch.PodPort{Bridge: "br-int", Name: name, IngressRate: 1e6, ExternalIDs: map[string]string{names.IfaceID: ifaceID}}
		if err := s.AttachPort(n.ctx(), p); err != nil {
			t.Fatal(err)
		}
	}
	attach(all, "earlier", "ns_pod")
	attach(all, "other0", "ns_other0")
	s, err := vswitch.ConnectFor(n.ctx(), n.dir, []string{"pod", "pod-long"}, "ns_pod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	follows := func(want ...string) {
		t.Helper()
		got, err := s.Interfaces(n.ctx())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(got, want, func(i vswitch.Interface, name string) bool { return i.Name == name }) {
			t.Errorf("it follows %+v, want %q", got, want)
		}
	}
	follows("earlier")
	attach(all, "other1", "ns_other1")
	if err := all.AwaitVswitchd(n.ctx()); err != nil {
		t.Fatal(err)
	}
	follows("earlier")
	if others, err := vswitch.HeardOfOthers(n.ctx(), s); others || err != nil {
		t.Errorf("it hears when others make ports: %v, %v", others, err)
	}
	if kind, err := s.DatapathType(n.ctx(), "br-int"); kind != host.Datapath() || err != nil {
		t.Errorf("%q, %v", kind, err)
	}
	bound := func(to string) func(vswitch.Interface) bool {
		return func(i vswitch.Interface) bool { return i.ExternalIDs[names.IfaceID] == to }
	}
	if gone, err := s.DetachWhere(n.ctx(), bound("ns_pod")); !slices.Equal(gone, []string{"earlier"}) || err != nil {
		t.Errorf("%q, %v", gone, err)
	}
	follows()
	attach(s, "pod", "ns_pod")
	follows("pod")
	attach(s, "pod", "ns_renamed") // corrects it
	follows("pod")
	if got, err := s.DetachWhere(n.ctx(), bound("ns_pod")); len(got) > 0 || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if n.vsctl("port-to-br", "pod") != "br-int" || n.count("QoS") != 3 {
		t.Errorf("%d QoS rows", n.count("QoS"))
	}
	n.vsctl("--no-wait", "add-port", "br-ex", "pod-long") // without a device; ovs-vsctl 4.0 would fail
	err = s.AttachPort(n.ctx(), vswitch.PodPort{Bridge: "br-int", Name: "pod-long"})
	if err == nil || !strings.Contains(err.Error(), "port pod-long belongs to bridge br-ex already") {
		t.Errorf("%v", err)
	}
}

// The largest number of plugins at once, and ovn-controller, which makes the bridge in between.
func TestManyAtOnce(t *testing.T) {
	n := newNode(t)
	var g errgroup.Group
	for i := range 50 {
		g.Go(func() error {
			s, err := vswitch.Connect(n.ctx(), n.dir, nil)
			if err != nil {
				return err
			}
			defer s.Close()
			name := fmt.Sprint("int", i)
			if _, err := s.EnsureInternalPort(n.ctx(), vswitch.InternalPort{Bridge: "br-int", Name: name}); err != nil {
				return err
			}
			return s.AttachPort(n.ctx(), vswitch.PodPort{Bridge: "br-int", Name: "shared"})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := n.count("Port"); got != 52 {
		t.Errorf("%d ports, want 52", got)
	}
}

func TestExternalIDsAreFollowed(t *testing.T) {
	n := newNode(t)
	s := n.connect()
	seen := make(chan map[string]string, 10)
	s.OnExternalIDs(func(ids map[string]string) { seen <- ids })
	n.vsctl("set", "Open_vSwitch", ".", "external_ids:k8s-api-token=1")
	if ids := <-seen; ids["k8s-api-token"] != "1" {
		t.Errorf("%v", ids)
	}
	if ids := s.ExternalIDs(); ids["k8s-api-token"] != "1" {
		t.Errorf("%v", ids)
	}
	stop(&n.db)
	n.startDB()
	n.vsctl("--no-wait", "set", "Open_vSwitch", ".", "external_ids:k8s-api-token=2")
	if ids := <-seen; ids["k8s-api-token"] != "2" {
		t.Errorf("after a restart: %v", ids)
	}
}

// A change during a restart of ovsdb-server is made afterwards.
func TestAttachDuringRestart(t *testing.T) {
	n := newNode(t)
	n.bridge("br-int")
	s := n.connect()
	stop(&n.db)
	done := make(chan error)
	go func() { done <- s.AttachPort(n.ctx(), vswitch.PodPort{Bridge: "br-int", Name: "pod1"}) }()
	n.startDB()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n.vsctl("port-to-br", "pod1") != "br-int" {
		t.Error("no port")
	}
}

func TestWaitInstalled(t *testing.T) {
	require.Nothing(t, require.Central, ovntest.Missing())
	n := newNode(t)
	central, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(central.Close)
	n.bridge("br-int")
	n.veth("pod1", "10.9.0.1/24")
	s := n.connect()
	if err := s.AttachPort(n.ctx(), vswitch.PodPort{Bridge: "br-int", Name: "pod1", ExternalIDs: map[string]string{names.IfaceID: "ns_pod"}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for _, tt := range []struct{ name, want string }{
		{"pod1", "waiting for interface pod1 (logical port ns_pod): ovn-controller has not installed its flows: no ovn-installed: context deadline exceeded"},
		{"pod2", "waiting for interface pod2 (logical port ns_pod): not in the database: context deadline exceeded"},
	} {
		if err := s.WaitInstalled(ctx, tt.name, "ns_pod"); !errors.Is(err, context.DeadlineExceeded) || err.Error() != tt.want {
			t.Errorf("\n got %v\nwant %s", err, tt.want)
		}
	}
	n.vsctl("set", "Open_vSwitch", ".", "external_ids:system-id=n1", "external_ids:ovn-remote="+central.SB,
		"external_ids:ovn-encap-type=geneve", "external_ids:ovn-encap-ip=127.0.0.1")
	controller := n.start("ovn-controller", "unix:"+n.dir+"/db.sock")
	t.Cleanup(controller.Stop)
	if out, err := central.NBCtl("ls-add", "sw", "--", "lsp-add", "sw", "ns_pod"); err != nil {
		t.Fatal(out, err)
	}
	if err := s.WaitInstalled(n.ctx(), "pod1", "ns_pod"); err != nil {
		t.Error(err)
	}
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

// The limit on traffic to a pod is real, with the userspace datapath too: 1 MiB
// at 4 Mbit/s takes over two seconds. (Only the lower bound is checked.)
func TestIngressRateIsKept(t *testing.T) {
	n := newNode(t)
	n.bridge("br-int")
	n.vsctl("set-fail-mode", "br-int", "standalone")
	a, b := n.veth("pod1", "10.9.0.1/24"), n.veth("pod2", "10.9.0.2/24")
	s := n.connect()
	for name, rate := range map[string]int64{"pod1": 4e6, "pod2": 0} {
		if err := s.AttachPort(n.ctx(), vswitch.PodPort{Bridge: "br-int", Name: name, IngressRate: rate}); err != nil {
			t.Fatal(err)
		}
	}
	n.vsctl("set", "Open_vSwitch", ".", "external_ids:x=y") // returns when ovs-vswitchd has applied the changes before
	limited, free := n.transfer(b, a, "10.9.0.1"), n.transfer(a, b, "10.9.0.2")
	t.Logf("limited %v, free %v", limited, free)
	if limited < 1800*time.Millisecond {
		t.Errorf("1 MiB arrived in %v, faster than 4 Mbit/s", limited)
	}
}

func TestPatchPortsConnectABridgeWithBrInt(t *testing.T) {
	n := newNode(t)
	n.bridge("br-int")
	s := n.connect()
	ctx := t.Context()
	if err := s.EnsurePatch(ctx, "breth0"); err == nil || !strings.Contains(err.Error(), "there is no bridge breth0") {
		t.Errorf("without the bridge: %v", err)
	}
	n.bridge("breth0")
	told := make(chan struct{}, 1)
	s.OnChange(func() {
		select {
		case told <- struct{}{}:
		default:
		}
	})
	if err := s.EnsurePatch(ctx, "breth0"); err != nil {
		t.Fatal(err)
	}
	<-told // soon after the cache has the change
	peers := func() string {
		out := n.vsctl("get", "Interface", "k8s-patch-breth0-br-int", "type", "options:peer") + " " +
			n.vsctl("get", "Interface", "k8s-patch-br-int-breth0", "type", "options:peer")
		return strings.ReplaceAll(out, "\"", "")
	}
	const want = "patch\nk8s-patch-br-int-breth0 patch\nk8s-patch-breth0-br-int"
	if got := peers(); got != want {
		t.Errorf("ports: %s", got)
	}
	before := s.Transactions()
	n.vsctl("set", "Interface", "k8s-patch-br-int-breth0", "external_ids:iface-id=breth0_node1")
	if err := s.EnsurePatch(ctx, "breth0"); err != nil || s.Transactions() != before {
		t.Errorf("again: %v, %d transactions", err, s.Transactions()-before)
	}
	n.vsctl("set", "Interface", "k8s-patch-br-int-breth0", "options:peer=other")
	n.vsctl("del-port", "k8s-patch-breth0-br-int")
	if err := s.EnsurePatch(ctx, "breth0"); err != nil {
		t.Fatal(err)
	}
	if got := peers(); got != want {
		t.Errorf("repaired: %s", got)
	}
	if got := n.vsctl("get", "Interface", "k8s-patch-br-int-breth0", "external_ids:iface-id"); got != "breth0_node1" {
		t.Errorf("iface-id: %s", got)
	}
}

// H16: patch ports used by the gateway helper only go with RemovePatch, or with their bridge. Ports taken over by a
// gateway stay.
func TestPatchPortsOfAHelperCanBeRemoved(t *testing.T) {
	n := newNode(t)
	n.bridge("br-int")
	n.bridge("breth0")
	s := n.connect()
	ctx := t.Context()
	ensure := func() {
		t.Helper()
		if err := s.EnsurePatch(ctx, "breth0"); err != nil {
			t.Fatal(err)
		}
		if row, err := s.FindBridge(ctx, "breth0"); err != nil || len(row.Ports) != 0 {
			t.Errorf("%+v, %v", row, err)
		}
	}
	ensure()
	// a helper of an earlier release has not tagged them
	n.vsctl("remove", "Interface", "k8s-patch-breth0-br-int", "external_ids", names.HelperPatch, "--", "remove", "Interface", "k8s-patch-br-int-breth0", "external_ids", names.HelperPatch)
	ensure()
	if err := s.RemovePatch(ctx, "breth0"); err != nil || n.vsctl("list-ports", "breth0")+n.vsctl("list-ports", "br-int") != "" {
		t.Errorf("%v: %s", err, n.vsctl("show"))
	}
	ensure()
	n.vsctl("set", "Interface", "k8s-patch-br-int-breth0", "external_ids:iface-id=breth0_node1", "external_ids:"+names.GatewayTag+"=node1")
	row, err := s.FindBridge(ctx, "breth0")
	if err := errors.Join(err, s.RemovePatch(ctx, "breth0")); err != nil || !slices.Equal(row.Ports, []string{"k8s-patch-breth0-br-int"}) ||
		n.vsctl("list-ports", "br-int") != "k8s-patch-br-int-breth0" {
		t.Errorf("a gateway's: %v: %+v %s", err, row, n.vsctl("show"))
	}
	n.vsctl("remove", "Interface", "k8s-patch-br-int-breth0", "external_ids", names.IfaceID, "--", "remove", "Interface", "k8s-patch-br-int-breth0", "external_ids", names.GatewayTag)
	if err := s.DeleteBridge(ctx, "breth0"); err != nil || n.vsctl("list-ports", "br-int") != "" || n.vsctl("list-br") != "br-int" {
		t.Errorf("%v: %s", err, n.vsctl("show"))
	}
}

// Reading a lost database ends.
func TestReadingEnds(t *testing.T) {
	n := newNode(t)
	s := n.connect()
	if _, err := s.Interfaces(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop(&n.daemon)
	stop(&n.db)
	s.ReadTimeout = 100 * time.Millisecond
	for what, read := range map[string]func() error{
		"interfaces": func() error { _, err := s.Interfaces(t.Context()); return err },
		"a bridge":   func() error { _, err := s.FindBridge(t.Context(), "br-int"); return err },
		"a new port": func() error {
			_, err := s.PlanInternalPort(t.Context(), vswitch.InternalPort{Bridge: "br-int", Name: "p"})
			return err
		},
		"detachments": func() error {
			_, err := s.DetachWhere(t.Context(), func(vswitch.Interface) bool { return true })
			return err
		},
	} {
		if err := read(); err == nil || !strings.Contains(err.Error(), "no answer from Open vSwitch's database within 100ms: is ovsdb-server running?") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
