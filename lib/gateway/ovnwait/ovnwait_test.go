package ovnwait

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// What an earlier process has left ends even beside an ovs-vswitchd that listens and does not answer: it would forward
// no packet for ever.
func TestHeldFlowsAreReleasedBesideAHangingSwitch(t *testing.T) {
	dir, vsctl := ovntest.ConfDB(t, "ovs-ofctl")
	vsctl("init", "--", "set", "Open_vSwitch", ".", "external_ids:ovn-k8s-flow-restore-wait=true", "other_config:flow-restore-wait=true", "--", "add-br", "br-int")
	hanging, err := net.Listen("unix", dir+"/br-int.mgmt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hanging.Close() })
	sw, err := vswitch.Connect(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sw.Close()
	log := logrus.New()
	log.SetOutput(io.Discard)
	ctx, cancel := context.WithTimeout(t.Context(), limit.Of(time.Minute))
	defer cancel()
	sw.OnExternalIDs(func(ids map[string]string) {
		if ids[names.HeldFlows] == "" {
			cancel()
		}
	})
	New(sw, dir, logrus.NewEntry(log)).Run(ctx)
	if got := vsctl("get", "Open_vSwitch", ".", "external_ids", "other_config"); got != "{}\n{}" {
		t.Errorf("left in the database: %s", got)
	}
}

// A wait that is set while br-int has no flows is suspended like one that was set before.
func TestAWaitThatComesAfterTheBridge(t *testing.T) {
	require.Nothing(t, require.Node, host.Missing())
	ctx, cancel := context.WithTimeout(t.Context(), limit.Of(time.Minute))
	defer cancel()
	h := host.Alone(t, "alpha")
	do := func(args ...string) {
		t.Helper()
		if err := h.VSCtl(ctx, args...); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.StartSwitch(ctx); err != nil {
		t.Fatal(err)
	}
	do("add-br", "br-int", "--", "set", "Bridge", "br-int", "fail_mode=secure", "datapath_type="+host.Datapath())
	sw, err := vswitch.Connect(ctx, h.Path("/run/openvswitch"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sw.Close()
	suspended := make(chan string, 10)
	sw.OnExternalIDs(func(ids map[string]string) {
		if ids["ovn-ofctrl-wait-before-clear"] == "0" {
			suspended <- ids[names.SuspendedWait]
		}
	})
	log := logrus.New()
	log.SetOutput(io.Discard)
	running, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		New(sw, h.Path("/run/openvswitch"), logrus.NewEntry(log)).Run(running)
	}()
	defer func() { stop(); <-done }()
	for _, wait := range []string{"8000", "3000", "5000"} {
		do("set", "Open_vSwitch", ".", "external_ids:ovn-ofctrl-wait-before-clear="+wait)
		for got := ""; got != wait; {
			select {
			case got = <-suspended:
			case <-ctx.Done():
				t.Fatalf("a wait of %s ms is not suspended", wait)
			}
		}
	}
}
