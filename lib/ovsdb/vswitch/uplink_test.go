package vswitch_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/ovsdb/vswitch"
)

func TestStandaloneBridgeWithUplink(t *testing.T) {
	n := newNode(t)
	n.run("ip", "-n", n.netns, "link", "add", "eth0", "type", "veth", "peer", "name", "far")
	s := n.connect()
	ctx := n.ctx()
	want := vswitch.StandaloneBridge{
		Name: "breth0", MAC: "0a:00:00:00:00:05", MTU: 1450, DatapathType: "netdev",
		ExternalIDs: map[string]string{"bridge-id": "breth0"},
	}
	if got, err := s.PreferredDatapath(ctx); got != "netdev" || err != nil {
		t.Fatalf("PreferredDatapath: %q, %v", got, err)
	}
	for range 2 {
		if err := s.EnsureStandaloneBridge(ctx, want); err != nil {
			t.Fatal(err)
		}
		if err := s.EnsureUplink(ctx, "breth0", "eth0", vswitch.PortRow{}); err != nil {
			t.Fatal(err)
		}
	}
	sent := s.Transactions()
	if err := s.EnsureStandaloneBridge(ctx, want); err != nil || s.Transactions() != sent {
		t.Errorf("a bridge that is right was written again (%v)", err)
	}
	if out := n.run("ip", "-n", n.netns, "link", "show", "breth0"); !strings.Contains(out, "mtu 1450") || !strings.Contains(out, want.MAC) {
		t.Errorf("breth0: %s", out)
	}
	row, err := s.FindBridge(ctx, "breth0")
	is := &vswitch.BridgeRow{
		DatapathType: "netdev", FailMode: "standalone", OtherConfig: map[string]string{"hwaddr": want.MAC},
		ExternalIDs: want.ExternalIDs, MTU: want.MTU, Ports: []string{"eth0"},
	}
	if diff := cmp.Diff(is, row); diff != "" || err != nil {
		t.Errorf("FindBridge: %v (-want +got)\n%s", err, diff)
	}
	if got, err := s.BridgeOfPort(ctx, "eth0"); got != "breth0" || err != nil {
		t.Errorf("BridgeOfPort: %q, %v", got, err)
	}
	if got := n.vsctl("get", "Bridge", "breth0", "fail_mode"); got != "standalone" {
		t.Errorf("fail_mode %s", got)
	}

	wrong := want
	wrong.DatapathType = ""
	if err := s.EnsureStandaloneBridge(ctx, wrong); err == nil || !strings.Contains(err.Error(), `bridge breth0 has datapath_type "netdev", but "" is needed`) {
		t.Errorf("wrong datapath type: %v", err)
	}
	n.vsctl("--no-wait", "add-br", "other") // of the kernel's datapath; ovs-vsctl 4.0 would fail without it
	if err := s.EnsureUplink(ctx, "other", "eth0", vswitch.PortRow{}); err == nil || !strings.Contains(err.Error(), "port eth0 belongs to bridge breth0 already") {
		t.Errorf("port of another bridge: %v", err)
	}
	if err := s.EnsureUplink(ctx, "none", "eth1", vswitch.PortRow{}); err == nil || !strings.Contains(err.Error(), "there is no bridge none") {
		t.Errorf("no bridge: %v", err)
	}
	for range 2 {
		if err := s.DeleteBridge(ctx, "breth0"); err != nil {
			t.Fatal(err)
		}
	}
	if row, err := s.FindBridge(ctx, "breth0"); row != nil || err != nil {
		t.Errorf("FindBridge after DeleteBridge: %v, %v", row, err)
	}
	if got := n.vsctl("list-br"); got != "other" {
		t.Errorf("bridges: %s", got)
	}
}

func TestABridgeGetsBackWhatItHad(t *testing.T) {
	n := newNode(t)
	s := n.connect()
	ctx := n.ctx()
	b := vswitch.StandaloneBridge{
		Name: "br0", MAC: "0a:00:00:00:00:05", MTU: 1450, DatapathType: "netdev", ExternalIDs: map[string]string{"bridge-id": "br0"},
	}
	for _, setup := range [][]string{
		{},
		{"--", "set", "Bridge", "br0", "fail_mode=secure", `other_config:hwaddr="0a:00:00:00:00:06"`, "other_config:a=b", "external_ids:bridge-id=x", "external_ids:c=d",
			"--", "set", "Interface", "br0", "mtu_request=1400"},
	} {
		n.vsctl(append([]string{"--if-exists", "del-br", "br0", "--", "add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=netdev"}, setup...)...)
		before, err := s.FindBridge(ctx, "br0")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.EnsureStandaloneBridge(ctx, b); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := s.RestoreBridge(ctx, b, *before); err != nil {
				t.Fatal(err)
			}
			after, err := s.FindBridge(ctx, "br0")
			if diff := cmp.Diff(before, after); diff != "" || err != nil {
				t.Errorf("%v (-want +got)\n%s", err, diff)
			}
		}
	}
	n.vsctl("del-br", "br0")
	if err := s.RestoreBridge(ctx, b, vswitch.BridgeRow{}); err != nil {
		t.Errorf("a bridge that is gone: %v", err)
	}
}

// A port made again has the configuration of the former one, but for a QoS row that is gone.
func TestAPortGetsBackWhatItHad(t *testing.T) {
	n := newNode(t)
	n.run("ip", "-n", n.netns, "link", "add", "eth0", "type", "veth", "peer", "name", "far")
	s := n.connect()
	ctx := n.ctx()
	n.vsctl("add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=netdev", "--", "add-port", "br0", "eth0")
	settings := []string{"set", "Port", "eth0", "tag=5", "trunks=6,7", "vlan_mode=native-tagged", "cvlans=8", "other_config:x=y", "external_ids:a=b", "qos=@q",
		"--", "set", "Interface", "eth0", "ofport_request=77", "mtu_request=1400", "ingress_policing_rate=100000", "ingress_policing_burst=10000",
		"options:n_rxq=1", "other_config:c=d", "external_ids:e=f", "--", "--id=@q", "create", "QoS", "type=linux-htb"}
	qos := n.vsctl(settings...)
	list := func() string {
		return n.vsctl("--columns=tag,trunks,vlan_mode,cvlans,other_config,external_ids,qos", "list", "Port", "eth0", "--",
			"--columns=ofport_request,mtu_request,ingress_policing_rate,ingress_policing_burst,options,other_config,external_ids,type", "list", "Interface", "eth0")
	}
	was, err := s.FindPort(ctx, "br0", "eth0")
	if err != nil || was == nil {
		t.Fatal(was, err)
	}
	if got, want := was.VLAN(), "tag=5 vlan_mode=native-tagged trunks=6,7"; got != want {
		t.Errorf("VLAN: %q, want %q", got, want)
	}
	again := func() string {
		t.Helper()
		if _, err := s.DeletePort(ctx, "br0", "eth0"); err != nil {
			t.Fatal(err)
		}
		if err := s.EnsureUplink(ctx, "br0", "eth0", *was); err != nil {
			t.Fatal(err)
		}
		return list()
	}
	before := list()
	if diff := cmp.Diff(before, again()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	n.vsctl("clear", "Port", "eth0", "qos", "--", "destroy", "QoS", qos)
	before = list()
	if diff := cmp.Diff(before, again()); diff != "" {
		t.Errorf("without the QoS row (-want +got)\n%s", diff)
	}
	if p, err := s.FindPort(ctx, "br0", "none"); p != nil || err != nil {
		t.Errorf("no port: %v, %v", p, err)
	}
}
