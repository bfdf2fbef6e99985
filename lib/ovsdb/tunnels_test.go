package ovsdb

import (
	"fmt"
	"os/exec"
	"testing"

	"ovn-k8s/lib/config"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// P5: the tunnel addresses of hosts are read from the Southbound database.
func TestTunnels(t *testing.T) {
	require.Nothing(t, require.Central, ovntest.Missing())
	c, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, host := range [][]string{{"one", "192.0.2.1"}, {"two", "192.0.2.2"}} {
		if out, err := exec.Command("ovn-sbctl", "--db="+c.SB, "chassis-add", host[0], "geneve", host[1]).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	out, _ := exec.Command("ovn-sbctl", "--db="+c.SB, "list", "encap").CombinedOutput()
	t.Logf("%s", out)
	db, err := OpenSouth(t.Context(), config.Config{OVNRemote: c.SB}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if got := fmt.Sprint(db.Tunnels()); got != "map[one:[192.0.2.1] two:[192.0.2.2]]" {
		t.Error(got)
	}
}
