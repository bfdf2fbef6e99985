package ovntest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"ovn-k8s/test/reaper"
	"ovn-k8s/test/require"
)

// ConfDB starts an ovsdb-server with an empty database of Open vSwitch until the end of a test, without ovs-vswitchd. It returns
// the run directory, and a function to run ovs-vsctl(8), which fails the test on an error. more are other programs of the test.
func ConfDB(t testing.TB, more ...string) (dir string, vsctl func(args ...string) string) {
	t.Helper()
	missing := ""
	for _, tool := range append([]string{"ovsdb-tool", "ovsdb-server", "ovs-vsctl"}, more...) {
		if _, err := exec.LookPath(tool); err != nil {
			missing = tool
		}
	}
	require.Nothing(t, require.Node, missing)
	dir, err := os.MkdirTemp("", "db") // short: the path of a socket has at most 107 characters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if out, err := exec.Command("ovsdb-tool", "create", dir+"/conf.db", "/usr/share/openvswitch/vswitch.ovsschema").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p, err := reaper.Start(exec.Command, "env", "OVS_RUNDIR="+dir, "ovsdb-server", "--remote=punix:"+dir+"/db.sock", dir+"/conf.db")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return dir, func(args ...string) string {
		t.Helper()
		out, err := exec.Command("ovs-vsctl", append([]string{"--db=unix:" + dir + "/db.sock", "--no-wait", "--retry", "--timeout=20"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
}
