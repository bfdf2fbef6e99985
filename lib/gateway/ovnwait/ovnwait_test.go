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
	"ovn-k8s/test/limit"
	"ovn-k8s/test/ovntest"
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
