package registry

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// largeTopology has n nodes, all of them gateways.
func largeTopology(t *testing.T, n int) topology.Cluster {
	t.Helper()
	c, err := topology.New(names.ClusterRouter, []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}, []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes, c.Gateways = map[string][]netip.Prefix{}, map[string]topology.Gateway{}
	for i := range n {
		a := netip.AddrFrom4([4]byte{10, byte(128 + i/256), byte(i), 0})
		name := fmt.Sprintf("node-%04d.example.com", i)
		c.Nodes[name] = []netip.Prefix{netip.PrefixFrom(a, 24)}
		c.Gateways[name] = topology.Gateway{
			Mode: topology.Physical, Interface: "breth0", Chassis: "chassis-" + name, MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", i/256, i%256),
			IPs: []netip.Prefix{netip.PrefixFrom(a, 16)}, NextHops: []netip.Addr{netip.MustParseAddr("10.255.255.1")}, Tunnel: a, Node: name,
		}
	}
	return c
}

// S3: the copy of the topology is bounded before the API server refuses it.
func TestTheCopyOfTheTopologyIsBounded(t *testing.T) {
	if data, err := copyOf(ConfigMap("kube-system"), largeTopology(t, 1000)); err != nil || len(data) == 0 {
		t.Errorf("1 000 gateways: %v", err)
	}
	_, err := copyOf(ConfigMap("kube-system"), largeTopology(t, 5000))
	if err == nil || !strings.Contains(err.Error(), "takes 1048576") || strings.Contains(err.Error(), "\n") {
		t.Errorf("5 000 gateways: %v", err)
	}
}

// S3: transactions do not wait for the copy of the topology. The newest one wins.
func TestCopiesOfTheTopologyWaitForNobody(t *testing.T) {
	var current topology.Cluster
	y := New(nil, ConfigMap("kube-system"), func(func() []nb.Unit) {}, func() (topology.Cluster, bool) { return current, true })
	cluster := []nb.Unit{topology.ClusterUnit}
	step := func(what string, dirty []nb.Unit, want error, jobs int) {
		t.Helper()
		if err := y.Sync(dirty); err != want || len(y.jobs) != jobs {
			t.Errorf("%s: %v, %d jobs", what, err, len(y.jobs))
		}
	}
	done := func(err error) []nb.Unit { return y.copied(<-y.jobs, err) }
	first, second := largeTopology(t, 1), largeTopology(t, 2)
	current = first
	step("the first", cluster, nil, 1)
	step("while the API server does not answer", cluster, nil, 1)
	refused := errors.New("refused")
	if touched := done(refused); len(touched) != 1 {
		t.Errorf("after a failure: %v", touched)
	}
	step("another unit", nil, nil, 0)
	step("told once", cluster, refused, 0)
	step("tried again", cluster, refused, 1)
	current = second
	step("another one meanwhile", cluster, refused, 1)
	if touched := done(nil); len(touched) != 1 {
		t.Errorf("the newest: %v", touched)
	}
	step("the newest", cluster, nil, 1)
	if touched := done(nil); len(touched) != 0 || !y.saved.Equal(second) {
		t.Errorf("at the end: %v", touched)
	}
	step("at the end", cluster, nil, 0)
}
