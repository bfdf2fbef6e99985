package store

import (
	"errors"
	"strings"
	"testing"

	"ovn-k8s/lib/desired/membership"
	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// begin numbers the nodes of a cluster.
func begin(t *testing.T, c *ovntest.Central, ranges string, adopt bool) error {
	t.Helper()
	n := membership.Numbering{Program: names.Ovnkube, Join: prefixes("100.64.0.0/16"), Adopt: adopt}
	var err error
	if n.Ranges, err = nodesubnet.ParseRanges(ranges); err == nil {
		_, err = newJoiner(t, c, "").Change(t.Context(), topology.ClusterUnit, n.Begin())
	}
	return err
}

func fails(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: error %v, want %q", what, err, want)
	}
}

// The record says who gives nodes their subnets. Nodes made by hand are taken over on request only, and keep theirs.
func TestNumbering(t *testing.T) {
	c := newCluster(t)
	fails(t, "nodes made by hand", begin(t, c, "10.0.0.0/8/24", false), "the nodes of this cluster were made by minion-init, with subnets of their own: m: give --adopt")
	fails(t, "no range for a node", begin(t, c, "10.128.0.0/14/23", true), "cluster subnets 10.128.0.0/14/23 lack those of nodes m (10.0.0.0/24)")
	early := join(t, c, "early", "10.0.7.0/24")
	if err := begin(t, c, "10.0.0.0/8/24", true); err != nil {
		t.Fatal(err)
	}
	if err := early.commit(t.Context()); !errors.Is(err, nbsync.ErrConflict) {
		t.Errorf("a node that joins meanwhile: %v", err)
	}
	s := newJoiner(t, c, "")
	w, err := s.readState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Topology(); got.NumberedBy != names.Ovnkube || ipnet.Join(got.Nodes["m"]) != "10.0.0.0/24" || len(got.Nodes) != 1 {
		t.Errorf("the record: %+v", got)
	}
	for what, n := range map[string]membership.Node{"another node": request("n", "10.0.8.0/24"), "another subnet": request("m", "10.0.8.0/24")} {
		_, err := n.Join(nil)(w.State)
		fails(t, what, err, "ovnkube gives the nodes of this cluster their subnets: run \"ovnkube -init-node="+n.Name+"\" on this host instead; or if ovnkube is no more, "+
			"run \"ovn-nbctl remove Logical_Router ovn_cluster_router external_ids ovn-k8s-numbered-by\" first")
	}
	if _, err := request("m", "10.0.0.0/24").Join(nil)(w.State); err != nil {
		t.Errorf("a node at boot: %v", err)
	}

	// A second start changes nothing. It may add ranges, and remove those without nodes.
	if changes, err := s.Change(t.Context(), topology.ClusterUnit, membership.Numbering{Program: names.Ovnkube,
		Ranges: nodesubnet.Ranges{{CIDR: prefixes("10.0.0.0/8")[0], Length: 24}}, Join: prefixes("100.64.0.0/16")}.Begin()); err != nil || len(changes) > 0 {
		t.Errorf("again: %v, %v", changes, err)
	}
	for _, ranges := range []string{"10.0.0.0/8/24,10.0.0.0/8/23", "10.1.0.0/16"} {
		if err := begin(t, c, ranges, false); err == nil {
			t.Errorf("%s was accepted", ranges)
		}
	}
	for _, ranges := range []string{"10.0.0.0/16,10.2.0.0/16", "10.2.0.0/16/25,10.0.0.0/16,10.3.0.0/16"} {
		if err := begin(t, c, ranges, false); err != nil {
			t.Errorf("%s: %v", ranges, err)
		}
	}
	if got, err := c.NBCtl("get", "Logical_Router", names.ClusterRouter, "external_ids:"+names.ClusterSubnets); strings.TrimSpace(got) != `"10.2.0.0/16,10.0.0.0/16,10.3.0.0/16"` {
		t.Errorf("the record has %s, %v", got, err)
	}
	if _, err := c.NBCtl("remove", "Logical_Router", names.ClusterRouter, "external_ids", names.NumberedBy); err != nil {
		t.Fatal(err)
	}
	if w, err = newJoiner(t, c, "").readState(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := request("n", "10.0.8.0/24")
	n.Subnets = w.Topology().Subnets
	if _, err := n.Join(nil)(w.State); err != nil {
		t.Errorf("after the way out: %v", err)
	}
}

// Without a cluster, one is made. Switches of an older release are taken over on request only: else their subnets would
// be given to others.
func TestNumberingOfOtherDatabases(t *testing.T) {
	require.Nothing(t, require.Central, ovntest.Missing())
	c, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := begin(t, c, "10.128.0.0/14/23,10.0.0.0/16", false); err != nil {
		t.Fatal(err)
	}
	if got, err := c.NBCtl("get", "Logical_Router", names.ClusterRouter, "external_ids:"+names.NumberedBy); strings.TrimSpace(got) != names.Ovnkube {
		t.Errorf("the record has %s, %v", got, err)
	}
	if _, err := c.NBCtl("ls-add", "old", "--", "set", "Logical_Switch", "old", "external_ids:gateway_ip=10.0.1.1/24", "other_config:subnet=10.0.1.0/24"); err != nil {
		t.Fatal(err)
	}
	fails(t, "a switch of an older release", begin(t, c, "10.128.0.0/14/23,10.0.0.0/16", false), "the nodes of this cluster were made by an older release: old: give --adopt")
	fails(t, "one without a range", begin(t, c, "10.128.0.0/14/23", true), "lack those of nodes old (10.0.1.0/24)")
	if err := begin(t, c, "10.128.0.0/14/23,10.0.0.0/16", true); err != nil {
		t.Fatal(err)
	}
	if got, err := c.NBCtl("get", "Logical_Switch", "old", "external_ids:"+names.Owner); strings.TrimSpace(got) != `"node/old"` {
		t.Errorf("the switch is %s's, %v", got, err)
	}
}
