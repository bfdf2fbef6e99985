package vswitch_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

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
	for _, tt := range []struct {
		name, want string
		late       bool
	}{
		{"pod2", "waiting for interface pod2 (logical port ns_pod): not in the database: another command has removed it", false},
		{"pod1", "waiting for interface pod1 (logical port ns_pod): ovn-controller has not installed its flows: no ovn-installed: context deadline exceeded", true},
	} {
		if err := s.WaitInstalled(ctx, tt.name, "ns_pod"); err == nil || err.Error() != tt.want || errors.Is(err, context.DeadlineExceeded) != tt.late {
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
	controller.Stop()
	n.vsctl("remove", "Interface", "pod1", "external_ids", names.OVNInstalled)
	ended := make(chan error, 1)
	go func() { ended <- s.WaitInstalled(n.ctx(), "pod1", "ns_pod") }()
	n.vsctl("del-port", "br-int", "pod1")
	if err := <-ended; err == nil || !strings.HasSuffix(err.Error(), ": not in the database: another command has removed it") {
		t.Errorf("after its end: %v", err)
	}
	n.vsctl("--no-wait", "add-port", "br-int", "pod2", "--", "set", "Interface", "pod2", "external_ids:"+names.IfaceID+"=ns_pod")
	want := "waiting for interface pod2 (logical port ns_pod): ovs-vswitchd says: could not open network device pod2 (No such device): another command has removed it"
	if err := s.WaitInstalled(n.ctx(), "pod2", "ns_pod"); err == nil || err.Error() != want {
		t.Errorf("without the device: %v, want %s", err, want)
	}
}
