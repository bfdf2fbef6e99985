package ovnwait

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/reaper"
	"ovn-k8s/test/require"
)

// What an earlier process has left ends even beside an ovs-vswitchd that listens and does not answer: it would forward
// no packet for ever.
func TestHeldFlowsAreReleasedBesideAHangingSwitch(t *testing.T) {
	missing := ""
	for _, tool := range []string{"ovsdb-tool", "ovsdb-server", "ovs-vsctl", "ovs-ofctl"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = tool
		}
	}
	require.Nothing(t, require.Node, missing)
	dir, err := os.MkdirTemp("", "ow") // short: the path of a socket has at most 107 characters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	vsctl := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("ovs-vsctl", append([]string{"--db=unix:" + dir + "/db.sock", "--no-wait", "--retry", "--timeout=20"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return string(out)
	}
	if out, err := exec.Command("ovsdb-tool", "create", dir+"/conf.db", "/usr/share/openvswitch/vswitch.ovsschema").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p, err := reaper.Start(exec.Command, "env", "OVS_RUNDIR="+dir, "ovsdb-server", "--remote=punix:"+dir+"/db.sock", dir+"/conf.db")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
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
	if got := vsctl("get", "Open_vSwitch", ".", "external_ids", "other_config"); got != "{}\n{}\n" {
		t.Errorf("left in the database: %s", got)
	}
}
