package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"testing"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/overlay/progress"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// A joiner is a minion-init between its reading of the database and its transaction.
type joiner struct {
	*Store
	w     state
	after topology.Cluster
}

func (j joiner) commit(ctx context.Context) error {
	_, err := j.changeNode(ctx, j.w, j.after)
	return err
}

// newCluster starts a Northbound database with a cluster of one node, m.
func newCluster(t testing.TB) *ovntest.Central {
	t.Helper()
	require.Nothing(t, require.Central, ovntest.Missing())
	c, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cluster, err := topology.New(names.ClusterRouter, prefixes("10.0.0.0/8"), prefixes("100.64.0.0/16"))
	if err == nil {
		cluster, err = cluster.WithNode("m", prefixes("10.0.0.0/24"))
	}
	if err != nil {
		t.Fatal(err)
	}
	s := newJoiner(t, c, "")
	want := map[nb.Unit][]nb.Row{topology.ClusterUnit: cluster.Rows(), topology.NodeUnit("m"): cluster.NodeRows("m")}
	if _, err := (&nbsync.Sync{DB: s.db}).ApplyAll(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	return c
}

func prefixes(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }

// newJoiner connects a Store that reads one node, or all.
func newJoiner(t testing.TB, c *ovntest.Central, node string) *Store {
	t.Helper()
	s := New(config.Config{NB: []string{c.NB}}, progress.New(false, io.Discard, io.Discard), false, node)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// request asks for a node with a subnet.
func request(node, subnet string) membership.Node {
	return membership.Node{Network: membership.Network{Subnets: prefixes("10.0.0.0/8")}, Name: node, Pods: prefixes(subnet), SystemID: "id-" + node}
}

// join has a node with a subnet read the database.
func join(t *testing.T, c *ovntest.Central, node, subnet string) joiner {
	t.Helper()
	j := joiner{Store: newJoiner(t, c, node)}
	var err error
	if j.w, err = j.readState(t.Context()); err != nil {
		t.Fatal(err)
	}
	if j.after, err = request(node, subnet).Join(nil)(j.w.State); err != nil {
		t.Fatal(err)
	}
	return j
}

// S2: in a boot storm each join broke the transactions of all others.
func TestJoinsDoNotBreakEachOther(t *testing.T) {
	c := newCluster(t)
	var all []joiner
	for i := range 20 {
		all = append(all, join(t, c, fmt.Sprintf("n%d", i), fmt.Sprintf("10.1.%d.0/24", i)))
	}
	for _, j := range all {
		if err := j.commit(t.Context()); err != nil {
			t.Errorf("%s: %v", j.only, err)
		}
		again := join(t, c, j.only, j.after.Nodes[j.only][0].String())
		if changes, err := again.changeNode(t.Context(), again.w, again.after); len(changes) > 0 || err != nil {
			t.Errorf("%s again: %v, %v", j.only, changes, err)
		}
	}
	s := newJoiner(t, c, "")
	w, err := s.readState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(w.Topology().Nodes); n != 21 {
		t.Errorf("%d nodes are recorded", n)
	}
	if diff, err := (&nbsync.Sync{DB: s.db}).Plan(membership.Rows(topology.Cluster{}, w.Topology(), topology.NodeUnit("n7"))); err != nil || len(diff.Changes) > 0 {
		t.Errorf("what is missing: %v, %v", diff.Changes, err)
	}
}

func TestJoinsThatCollide(t *testing.T) {
	type command struct{ node, subnet string }
	for name, tt := range map[string]struct {
		first, second command
		nbctl         []string // in the place of first
	}{
		"one subnet":                        {first: command{"a", "10.1.1.0/24"}, second: command{"b", "10.1.1.0/24"}},
		"one node":                          {first: command{"a", "10.1.1.0/24"}, second: command{"a", "10.1.2.0/24"}},
		"a longer subnet, first":            {first: command{"a", "10.1.1.128/25"}, second: command{"b", "10.1.1.0/24"}},
		"a longer subnet, second":           {first: command{"a", "10.1.1.0/24"}, second: command{"b", "10.1.1.128/25"}},
		"a node that moves there":           {first: command{"m", "10.1.1.0/24"}, second: command{"b", "10.1.1.0/24"}},
		"another cluster subnet":            {nbctl: []string{"set", "Logical_Router", names.ClusterRouter, "external_ids:" + names.ClusterSubnets + "=10.1.0.0/16"}, second: command{"b", "10.1.1.0/24"}},
		"a join by a former release":        {nbctl: []string{"remove", "Logical_Router", names.ClusterRouter, "external_ids", names.SubnetLengths}, second: command{"b", "10.1.1.0/24"}},
		"after a former release, any other": {nbctl: []string{"set", "Logical_Router", names.ClusterRouter, "external_ids:ovn-k8s-node-z=10.9.0.0/24"}, second: command{"b", "10.1.1.0/25"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			second := join(t, c, tt.second.node, tt.second.subnet)
			if tt.nbctl != nil {
				if _, err := c.NBCtl(tt.nbctl...); err != nil {
					t.Fatal(err)
				}
			} else if err := join(t, c, tt.first.node, tt.first.subnet).commit(t.Context()); err != nil {
				t.Fatalf("first: %v", err)
			}
			before, err := c.NBCtl("get", "Logical_Router", names.ClusterRouter, "external_ids")
			if err != nil {
				t.Fatal(err)
			}
			if err := second.commit(t.Context()); !errors.Is(err, nbsync.ErrConflict) && !errors.Is(err, errReadAll) {
				t.Errorf("second: %v", err)
			}
			if after, err := c.NBCtl("get", "Logical_Router", names.ClusterRouter, "external_ids"); after != before {
				t.Errorf("the record was %s and is %s (%v)", before, after, err)
			}
		})
	}
}

// L9: the check for another host and the change share one reading of the record: with 1 000 gateways it is large.
func TestAJoinReadsTheRecordOnce(t *testing.T) {
	c := newCluster(t)
	for _, want := range []uint64{3, 3} { // the router, the record, the change; the router, the record, the holders of the ports
		s := newJoiner(t, c, "n1")
		if _, err := s.Topology(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Change(t.Context(), topology.NodeUnit("n1"), request("n1", "10.1.1.0/24").Join(nil)); err != nil {
			t.Fatal(err)
		}
		if n := s.db.Transactions(); n != want {
			t.Errorf("%d transactions, want %d", n, want)
		}
	}
}

// A join reads its own rows and the record, independent of the size of the database.
func TestAJoinReadsFewRows(t *testing.T) {
	c := newCluster(t)
	for i := range 10 {
		n := fmt.Sprintf("n%d", i)
		if err := join(t, c, n, fmt.Sprintf("10.1.%d.0/24", i)).commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.NBCtl("lsp-add", n, "default_p"+n); err != nil {
			t.Fatal(err)
		}
	}
	j := join(t, c, "n3", "10.1.3.0/24")
	for _, r := range list[nbdb.LogicalRouter](j.w.few.Cache(), nbdb.LogicalRouterTable) {
		if len(r.Ports) != 1 {
			t.Errorf("%d ports of the router, want 1", len(r.Ports))
		}
	}
	for _, g := range list[nbdb.PortGroup](j.w.few.Cache(), nbdb.PortGroupTable) {
		if len(g.Ports) != 1 {
			t.Errorf("%d ports of the group, want 1", len(g.Ports))
		}
	}
	read := map[string]int{}
	for _, table := range ovsdb.NBTables() {
		if n := j.w.few.Cache().Table(table).Len(); n > 0 {
			read[table] = n
		}
	}
	for table, most := range map[string]int{
		nbdb.LogicalRouterTable: 1, nbdb.LogicalRouterPortTable: 1, nbdb.LogicalSwitchTable: 1, nbdb.LogicalSwitchPortTable: 3,
		nbdb.LoadBalancerGroupTable: 2, nbdb.PortGroupTable: 1,
	} {
		if read[table] != most {
			t.Errorf("%d rows of %s, want %d", read[table], table, most)
		}
		delete(read, table)
	}
	if len(read) > 0 {
		t.Errorf("also read: %v", read)
	}
}
