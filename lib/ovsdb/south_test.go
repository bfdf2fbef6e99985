package ovsdb_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb"
)

// openSouth starts a server with a Southbound database, and connects to it.
func openSouth(t *testing.T) (*server, *ovsdb.DB) {
	t.Helper()
	s := newServer(t, "/usr/share/ovn/ovn-sb.ovsschema")
	var c config.Config
	c.OVNRemote = s.remote()
	db, err := ovsdb.OpenSouth(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return s, db
}

// P13: a change of a chassis to the userspace datapath is seen in the Southbound database.
func TestUserspace(t *testing.T) {
	s, db := openSouth(t)
	sbctl := func(args ...string) {
		t.Helper()
		run(t, "ovn-sbctl", append([]string{"--db=" + s.remote(), "--timeout=60"}, args...)...)
	}
	await := func(userspace, ok bool) {
		t.Helper()
		s.await(func() bool {
			u, o := db.Userspace()
			return u == userspace && o == ok
		})
	}
	await(false, false)
	sbctl("chassis-add", "one", "geneve", "192.0.2.1", "--", "set", "Chassis", "one", "other_config:datapath-type=system")
	await(false, true)
	sbctl("chassis-add", "two", "geneve", "192.0.2.2", "--", "set", "Chassis", "two", "other_config:datapath-type=netdev")
	await(true, true)
	sbctl("set", "Chassis", "two", `other_config:datapath-type=""`)
	await(false, true)
	nb := open(t, newServer(t, nbSchema).remote())
	if !nb.Allows(nbdb.LoadBalancerTable, "selection_fields", "ip_src") || nb.Allows(nbdb.LoadBalancerTable, "selection_fields", "nonsense") {
		t.Error("the values that a Northbound database allows are others")
	}
	if db.Allows(nbdb.LoadBalancerTable, "selection_fields", "ip_src") {
		t.Error("a Southbound database allows a value of a Northbound column")
	}
}

// PortsDown lists exactly the ports not made by a host.
func TestPortsDown(t *testing.T) {
	s, db := openSouth(t)
	run(t, "ovn-sbctl", "--db="+s.remote(), "--timeout=60",
		"--", "--id=@d", "create", "Datapath_Binding", "tunnel_key=1",
		"--", "create", "Port_Binding", "logical_port=default_a", "datapath=@d", "tunnel_key=1", "up=false",
		"--", "create", "Port_Binding", "logical_port=default_b", "datapath=@d", "tunnel_key=2", "up=true",
		"--", "create", "Port_Binding", "logical_port=rtoj", "datapath=@d", "tunnel_key=3", "type=patch")
	down, err := db.PortsDown(t.Context())
	if diff := cmp.Diff(map[string]bool{"default_a": true}, down); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
