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
		if err := s.EnsureUplink(ctx, "breth0", "eth0"); err != nil {
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
	if diff := cmp.Diff(&vswitch.BridgeRow{DatapathType: "netdev", ExternalIDs: want.ExternalIDs, Ports: []string{"eth0"}}, row); diff != "" || err != nil {
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
	n.vsctl("add-br", "other")
	if err := s.EnsureUplink(ctx, "other", "eth0"); err == nil || !strings.Contains(err.Error(), "port eth0 belongs to bridge breth0 already") {
		t.Errorf("port of another bridge: %v", err)
	}
	if err := s.EnsureUplink(ctx, "none", "eth1"); err == nil || !strings.Contains(err.Error(), "there is no bridge none") {
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
