package southbound_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb/southbound"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// open starts a Southbound database without ovn-northd, and connects to it. sbctl writes it.
func open(t *testing.T) (db *southbound.DB, sbctl func(args ...string)) {
	t.Helper()
	require.Nothing(t, require.Central, ovntest.Missing())
	c, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.StopNorthd()
	db, err = southbound.Open(t.Context(), config.Config{OVNRemote: c.SB}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db, func(args ...string) {
		t.Helper()
		if out, err := c.SBCtl(args...); err != nil {
			t.Fatal(out, err)
		}
	}
}

// P13: a change of a chassis to the userspace datapath is seen in the Southbound database.
func TestUserspace(t *testing.T) {
	db, sbctl := open(t)
	await := func(userspace, ok bool) {
		t.Helper()
		for end := time.Now().Add(limit.Of(time.Minute)); ; <-time.After(10 * time.Millisecond) {
			u, o := db.Userspace()
			if u == userspace && o == ok {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("userspace: %t, any chassis: %t", u, o)
			}
		}
	}
	await(false, false)
	sbctl("chassis-add", "one", "geneve", "192.0.2.1", "--", "set", "Chassis", "one", "other_config:datapath-type=system")
	await(false, true)
	sbctl("chassis-add", "two", "geneve", "192.0.2.2", "--", "set", "Chassis", "two", "other_config:datapath-type=netdev")
	await(true, true)
	sbctl("set", "Chassis", "two", `other_config:datapath-type=""`)
	await(false, true)
	if db.Allows(nbdb.LoadBalancerTable, "selection_fields", "ip_src") {
		t.Error("a Southbound database allows a value of a Northbound column")
	}
}

// PortsDown lists exactly the ports not made by a host.
func TestPortsDown(t *testing.T) {
	db, sbctl := open(t)
	sbctl("--", "--id=@d", "create", "Datapath_Binding", "tunnel_key=1",
		"--", "create", "Port_Binding", "logical_port=default_a", "datapath=@d", "tunnel_key=1", "up=false",
		"--", "create", "Port_Binding", "logical_port=default_b", "datapath=@d", "tunnel_key=2", "up=true",
		"--", "create", "Port_Binding", "logical_port=rtoj", "datapath=@d", "tunnel_key=3", "type=patch")
	down, err := db.PortsDown(t.Context())
	if diff := cmp.Diff(map[string]bool{"default_a": true}, down); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// P5: the tunnel addresses of hosts are read from the Southbound database.
func TestTunnels(t *testing.T) {
	db, sbctl := open(t)
	sbctl("chassis-add", "one", "geneve", "192.0.2.1", "--", "chassis-add", "two", "geneve", "192.0.2.2")
	if err := db.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(db.Tunnels()); got != "map[one:[192.0.2.1] two:[192.0.2.2]]" {
		t.Error(got)
	}
}

// Hosts has chassis and tunnels of one connection: both, or neither and not ok.
func TestHosts(t *testing.T) {
	db, sbctl := open(t)
	sbctl("chassis-add", "one", "geneve", "192.0.2.1")
	if err := db.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(db.Hosts()); got != "map[one:true] map[one:[192.0.2.1]] true" {
		t.Error(got)
	}
	db.Close()
	if chassis, tunnels, ok := db.Hosts(); chassis != nil || tunnels != nil || ok {
		t.Errorf("without a connection: %v, %v, %v", chassis, tunnels, ok)
	}
}
