package vswitch_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/names"
)

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
