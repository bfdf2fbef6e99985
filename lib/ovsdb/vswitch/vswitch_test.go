package vswitch_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ovn-kubernetes/libovsdb/client"
	"golang.org/x/sync/errgroup"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/ovsdb/vswitchdb"
	"ovn-k8s/test/host"
)

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
	got, err := s.DetachWhere(n.ctx(), func(i vswitch.Interface) bool { return i.Bridge == "" && i.ExternalIDs[names.CNINetwork] == "0" })
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

// Waiting for one interface costs nothing while others change: pods that start together do not wake each other.
func TestOtherInterfacesDoNotWake(t *testing.T) {
	n := newNode(t)
	n.bridge("br-int")
	n.vsctl("add-port", "br-int", "pod1", "--", "add-port", "br-int", "pod2", "--", "set", "Interface", "pod1", "type=internal", "--", "set", "Interface", "pod2", "type=internal")
	stop(&n.daemon) // its own changes would count
	s := n.connect()
	value := func(c client.Client, name string) string {
		row := &vswitchdb.Interface{Name: name}
		if err := c.Get(n.ctx(), row); err != nil {
			return err.Error()
		}
		return row.ExternalIDs["value"]
	}
	calls, done := 0, make(chan error, 1)
	first := make(chan struct{})
	go func() {
		done <- s.AwaitInterface(n.ctx(), "pod1", func(c client.Client) (bool, error) {
			if calls++; calls == 1 {
				close(first)
			}
			return value(c, "pod1") == "last", nil
		})
	}()
	<-first
	const changes = 20
	for i := range changes {
		want := fmt.Sprint(i)
		n.vsctl("--no-wait", "set", "Interface", "pod2", "external_ids:value="+want)
		if err := s.AwaitInterface(n.ctx(), "pod2", func(c client.Client) (bool, error) { return value(c, "pod2") == want, nil }); err != nil {
			t.Fatal(err)
		}
	}
	n.vsctl("--no-wait", "set", "Interface", "pod1", "external_ids:value=last")
	if err := <-done; err != nil || calls > changes/2 { // a new connection wakes it, too
		t.Errorf("%v after %d calls", err, calls)
	}
}
