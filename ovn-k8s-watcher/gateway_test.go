package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync"
)

// gateways adds gateways to the topology like gateway-init: hosts are the addresses of their hosts, by name.
func (w *world) gateways(c topology.Cluster, hosts map[string]string) topology.Cluster {
	w.Helper()
	for name, host := range hosts {
		n := name[len(name)-1:]
		var err error
		c, err = c.WithGateway(name, topology.Gateway{
			Mode: topology.Physical, Interface: "eth1", Chassis: "chassis-" + name, MAC: "02:00:00:00:00:0" + n,
			IPs: prefixes("10.0.0." + n + "/24"), NextHops: []netip.Addr{netip.MustParseAddr("10.0.0.9")}, Tunnel: netip.MustParseAddr(host),
		})
		if err != nil {
			w.Fatal(err)
		}
	}
	w.record(c, slices.Collect(maps.Keys(hosts))...)
	return c
}

// record writes gateways of a topology, and the topology.
func (w *world) record(c topology.Cluster, gateways ...string) {
	w.Helper()
	want := map[nb.Unit][]nb.Row{topology.ClusterUnit: c.Rows()}
	for _, name := range gateways {
		want[topology.GatewayUnit(name)] = slices.Concat(c.GatewayRows(name), c.GatewayRoutes(name))
	}
	db := w.open()
	defer db.Close()
	if _, err := (&nbsync.Sync{DB: db}).ApplyAll(w.Context(), want); err != nil {
		w.Fatal(err)
	}
}

// waysOut lists the next hops of the default routes.
func (w *world) waysOut() string {
	w.Helper()
	var hops []string
	routes, err := w.central.NBCtl("lr-route-list", names.ClusterRouter)
	if err != nil {
		return "" // no router yet
	}
	for l := range strings.Lines(routes) {
		if f := strings.Fields(l); len(f) > 1 && f[0] == "0.0.0.0/0" {
			hops = append(hops, f[1])
		}
	}
	slices.Sort(hops)
	return strings.Join(hops, " ")
}

// A host that refuses a connection is up. The kernel itself refuses to connect to a multicast address, such as
// 224.0.0.1.
func TestADeadGatewayIsLeftUntilItIsBack(t *testing.T) {
	w := newWorld(t, nil)
	c := w.topology(map[string]string{"node1": "192.168.2.0/24"})
	c = w.gateways(c, map[string]string{"gw1": "127.0.0.1", "gw2": "224.0.0.1"})
	if got := w.waysOut(); got != "100.64.0.2 100.64.0.3" && got != "100.64.0.3 100.64.0.2" {
		t.Fatalf("at first: %s", got)
	}
	alive := c.Gateways["gw1"].Join[0].String()
	p := w.start()
	w.eventually("the dead gateway is left", func() bool { return w.waysOut() == alive })
	w.eventually("a line says so", func() bool { return strings.Contains(p.log.String(), "is dead: only pods of its own node send to it") })
	if got := w.nbctl("--bare", "--columns=name", "find", "Logical_Router", "name=GR_gw2"); got == "" {
		t.Error("the dead gateway's router is gone")
	}

	p.kill()
	before, err := w.central.NBTransactions()
	if err != nil {
		t.Fatal(err)
	}
	if status, out, stderr := w.once(w.args("--check")...); status != 0 {
		t.Errorf("a comparison: %d %s%s", status, out, stderr)
	}
	w.start()
	w.pod("new", "node1", nil)
	w.annotation("new")
	if after, err := w.central.NBTransactions(); err != nil || after != before+2 || w.waysOut() != alive {
		t.Errorf("a restart and one pod took %d transactions (%v); ways out: %s", after-before, err, w.waysOut())
	}

	// Run again, gateway-init makes the routes, without knowledge of the failure.
	w.gateways(c, map[string]string{"gw2": "224.0.0.1"})
	w.eventually("the gateway is left again", func() bool { return w.waysOut() == alive })
	c = w.gateways(c, map[string]string{"gw2": "127.0.0.2"})
	w.eventually("the gateway is back", func() bool { return w.waysOut() == "100.64.0.2 100.64.0.3" })

	// If all gateways look down, the watcher rather has the problem.
	w.gateways(c, map[string]string{"gw1": "224.0.0.2", "gw2": "224.0.0.3"})
	w.pod("another", "node1", nil)
	w.annotation("another")
	w.eventually("both stay", func() bool { return w.waysOut() == "100.64.0.2 100.64.0.3" })
}

// A pod with the same logical port name as a gateway's NIC gets no port and one report: the gateway's port stays.
func TestAPodDoesNotTakeAGatewaysPort(t *testing.T) {
	w := newWorld(t, nil)
	c := w.topology(map[string]string{"node1": "192.168.2.0/24"})
	c, err := c.WithGateway("gw1", topology.Gateway{
		Mode: topology.Physical, Interface: "default", Chassis: "chassis-gw1", MAC: "02:00:00:00:00:01", IPs: prefixes("10.0.0.1/24"),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.record(c, "gw1")
	p := w.start()
	w.pod("gw1", "node1", nil)
	const want = "the logical port of pod default/gw1 would be default_gw1, which is that of the NIC of gateway gw1: give the pod or its namespace another name"
	if got := w.event("Pod", "gw1", "NameTaken"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	w.pod("other", "node1", nil)
	w.annotation("other")
	if got := w.port("default_gw1", "addresses"); got != "unknown" {
		t.Errorf("the gateway's port has the addresses %q", got)
	}
	if n := p.says(want); n != 1 {
		t.Errorf("%d lines say so", n)
	}
	w.delete("gw1")
	w.pod("gw2", "node1", nil)
	w.annotation("gw2")
	if got := w.port("default_gw1", "addresses"); got != "unknown" {
		t.Errorf("after the pod, the gateway's port has the addresses %q", got)
	}
}

// Every node's own addresses are routed to its management port.
func TestRoutesToNodes(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	w.start()
	address := func(address string) {
		t.Helper()
		patch := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q},{"type":"Hostname","address":"node1"}]}}`, address)
		if err := w.patchNodeStatus("node1", patch); err != nil {
			t.Fatal(err)
		}
	}
	route := func() string { return w.nbctl("lr-route-list", names.ClusterRouter) }
	for _, a := range []string{"10.1.2.3", "10.1.2.4"} {
		address(a)
		w.eventually("a route to "+a, func() bool {
			return strings.Contains(strings.Join(strings.Fields(route()), " "), a+" 192.168.2.2 dst-ip") && strings.Count(route(), "dst-ip") == 1
		})
	}
	address("192.168.2.77") // a pod's
	w.eventually("no route", func() bool { return !strings.Contains(route(), "dst-ip") })
}

// patchNodeStatus changes a Node as its kubelet does.
func (w api) patchNodeStatus(node, patch string) error {
	_, err := cluster.Client().CoreV1().Nodes().Patch(w.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

// Gateways come back from the copy of the topology, with the same addresses.
func TestGatewaysSurviveAnEmptiedDatabase(t *testing.T) {
	w := newWorld(t, nil)
	c := w.topology(map[string]string{"node1": "192.168.2.0/24"})
	w.gateways(c, map[string]string{"gw1": "127.0.0.1", "gw2": "127.0.0.2"})
	w.start()
	w.pod("a", "node1", nil)
	w.annotation("a")
	rows := func() string {
		return w.nbctl("--bare", "--columns=name,networks,mac", "find", "Logical_Router_Port", "external_ids:connect_to_join=yes")
	}
	before := strings.Fields(rows())
	if err := w.central.StartEmptyNB(); err != nil {
		t.Fatal(err)
	}
	w.eventually("the gateways are back", func() bool { return w.waysOut() == "100.64.0.2 100.64.0.3" })
	after := strings.Fields(rows())
	slices.Sort(before)
	slices.Sort(after)
	if !slices.Equal(before, after) {
		t.Errorf("was %v, is %v", before, after)
	}
}
