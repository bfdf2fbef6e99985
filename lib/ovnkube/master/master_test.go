package master_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/nodeclaim"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
)

// AC-23, AC-24: a master makes the cluster, and numbers 100 Nodes at once in few transactions. AC-25: a restart writes
// nothing, to the database and to the API server.
func TestHundredNodes(t *testing.T) {
	const count, most = 100, 10
	n := newNetwork(t)
	m := n.start("10.128.0.0/14/23,fd00::/48", false)
	eventually(t, "the cluster", func() bool {
		return n.find("Logical_Router", "name", "external_ids:k8s-cluster-router=yes") == names.ClusterRouter
	})
	if got := n.find("Logical_Switch", "name", "name=join"); got != "join" {
		t.Errorf("the join switch is %q", got)
	}
	n.node("first", nil)
	n.awaitSubnet("first", "10.128.0.0/23,fd00::/64")
	before, err := n.central.NBTransactions()
	must(t, err)
	nodes := cluster.Client().CoreV1().Nodes()
	watch, err := nodes.Watch(t.Context(), metav1.ListOptions{})
	must(t, err)
	defer func() { watch.Stop() }()
	var g errgroup.Group
	start := time.Now()
	for i := range count {
		g.Go(func() error {
			_, err := cluster.CreateNode(t.Context(), fmt.Sprintf("n%d", i), netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", i+1)))
			return err
		})
	}
	must(t, g.Wait())
	created := time.Since(start)
	subnets := map[string]string{}
	for len(subnets) < count+1 {
		node, ok := (<-watch.ResultChan()).Object.(*corev1.Node)
		if !ok { // the API server ends a watch whose events were not taken for a moment; the next one begins with all Nodes
			watch, err = nodes.Watch(t.Context(), metav1.ListOptions{})
			must(t, err)
			continue
		}
		if s := node.Annotations[names.HostSubnetAnnotation]; s != "" {
			subnets[node.Name] = s
		}
	}
	took := time.Since(start)
	eventually(t, "routes to all hosts", func() bool {
		return strings.Count(n.find("Logical_Router_Static_Route", "ip_prefix"), "192.0.2.") == count
	})
	after, err := n.central.NBTransactions()
	must(t, err)
	t.Logf("%d Nodes were created in %v and annotated in %v, by %d transactions", count, created, took, after-before)
	if after-before > most {
		t.Errorf("%d transactions for %d Nodes, want at most %d", after-before, count, most)
	}
	given := map[string]bool{}
	for name, s := range subnets {
		four, six, _ := strings.Cut(s, ",")
		p, err := netip.ParsePrefix(four)
		if err != nil || p.Bits() != 23 || given[s] || !strings.HasSuffix(six, "::/64") {
			t.Errorf("node %s has %s", name, s)
		}
		given[s] = true
		first := netip.PrefixFrom(p.Addr().Next(), p.Bits())
		if got := n.find("Logical_Switch", "other_config", "name="+name); got != "subnet="+four {
			t.Errorf("the switch of %s has %q", name, got)
		}
		if got := n.find("Logical_Router_Port", "networks", "name=rtos-"+name); !strings.Contains(got, first.String()) {
			t.Errorf("the router's port to %s has %q, want %s", name, got, first)
		}
	}
	n.restartWritesNothing(m, "10.128.0.0/14/23,fd00::/48")
}

// restartWritesNothing starts a master again, and returns it.
func (n *network) restartWritesNothing(m process, ranges string) process {
	n.Helper()
	eventually(n.T, "the copy of the topology", func() bool { // it comes last
		cm, err := cluster.Client().CoreV1().ConfigMaps(namespace).Get(n.Context(), names.TopologyConfigMap, metav1.GetOptions{})
		if err != nil {
			return false
		}
		list, err := cluster.Client().CoreV1().Nodes().List(n.Context(), metav1.ListOptions{})
		must(n.T, err)
		return !slices.ContainsFunc(list.Items, func(node corev1.Node) bool {
			return cm.Data[names.NodePrefix+node.Name] != node.Annotations[names.HostSubnetAnnotation]
		})
	})
	m.stop()
	stopped := time.Now()
	records, err := n.central.NBRecords()
	must(n.T, err)
	m = n.start(ranges, false)
	n.node("probe", nil) // when it is numbered, all other Nodes were looked at
	n.awaitSubnet("probe", "")
	copies := 0
	for _, w := range writes(n.T, stopped) {
		if strings.HasPrefix(w, "update configmaps") { // one is of the probe
			copies++
		}
		if !strings.HasSuffix(w, " probe") && copies != 1 {
			n.Errorf("a restart wrote: %s", w)
		}
		if strings.Contains(w, "patch nodes") {
			break // what follows may be about the probe
		}
	}
	now, err := n.central.NBRecords()
	must(n.T, err)
	for _, r := range now[len(records):] {
		if r.Comment == "ovn-northd" {
			continue
		}
		if r.Rows["Logical_Router_Port"] == 1 {
			break // the probe
		}
		if len(r.Rows) > 1 || r.Rows["NB_Global"] != 1 {
			n.Errorf("a restart wrote %v (%s)", r.Rows, r.Comment)
		}
	}
	return m
}

// claim is the claim of a host with a gateway.
func claim(node string, i int) map[string]string {
	ip := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
	return nodeclaim.Claim{Chassis: fmt.Sprintf("chassis-%d", i), Gateway: &topology.Gateway{
		Mode: topology.Bridge, Interface: "breth0", MAC: fmt.Sprintf("0a:58:c0:00:02:%02x", i), IPs: []netip.Prefix{netip.PrefixFrom(ip, 24)},
		NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.254")}, Tunnel: ip, MTU: 1400,
	}}.Annotations(node)
}

// AC-29, AC-30: all rows of a Node that is deleted go, also while no master runs, and its subnet is free.
func TestDeletedNodes(t *testing.T) {
	const ranges = "10.0.0.0/23/24"
	n := newNetwork(t)
	m := n.start(ranges, false)
	for i, name := range []string{"a", "b"} {
		address := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i+1)}
		n.node(name, func(o *corev1.Node) {
			o.Status.Addresses, o.Annotations = append(o.Status.Addresses, address), claim(name, i+1)
		})
	}
	subnet := map[string]string{"a": n.awaitSubnet("a", ""), "b": n.awaitSubnet("b", "")}
	rows := func(name string) (all string) {
		for _, what := range [][2]string{{"Logical_Switch", name}, {"Logical_Switch", "ext_" + name}, {"Logical_Router", "GR_" + name}, {"Logical_Router_Port", "rtos-" + name},
			{"Logical_Router_Port", "rtoe-GR_" + name}, {"Logical_Switch_Port", "jtor-GR_" + name}, {"Logical_Switch_Port", "k8s-" + name}, {"Logical_Switch_Port", "breth0_" + name}} {
			all += n.find(what[0], "name", "name="+what[1]) + " "
		}
		i := int(name[0]-'a') + 1
		all += n.find("Chassis_Template_Var", "chassis", fmt.Sprintf("chassis=chassis-%d", i)) + " "
		for _, table := range []string{"Logical_Router_Static_Route", "Logical_Router_Policy", "NAT"} {
			for _, unit := range []string{"node/", "host/", "gateway/"} {
				all += n.find(table, "_uuid", fmt.Sprintf("external_ids:ovn-k8s-owner=%q", unit+name)) + " "
			}
		}
		return strings.TrimSpace(all)
	}
	complete := func(name string) bool { return len(strings.Fields(rows(name))) > 10 }
	eventually(t, "the gateways' rows", func() bool { return complete("a") && complete("b") })
	n.delete("a")
	eventually(t, "all rows of a are gone", func() bool { return rows("a") == "" })
	n.node("c", nil)
	n.awaitSubnet("c", subnet["a"])
	m.stop()
	n.delete("b")
	n.node("d", nil)
	n.start(ranges, false)
	n.awaitSubnet("d", subnet["b"])
	eventually(t, "all rows of b are gone", func() bool { return rows("b") == "" })
	if keys := n.find("Logical_Router", "external_ids", "name="+names.ClusterRouter); strings.Contains(keys, "chassis-") || strings.Contains(keys, "gateway") {
		t.Errorf("the record has %s", keys)
	}
}

// AC-28: a node without a subnet has an Event, the others go on, and a freed subnet serves it. AC-27: ranges are used in
// their order, and may be added. One with nodes cannot be taken away.
func TestRanges(t *testing.T) {
	n := newNetwork(t)
	m := n.start("10.0.0.0/23/24", false)
	for _, name := range []string{"a", "b", "c"} {
		n.node(name, nil)
		if name != "c" {
			n.awaitSubnet(name, "")
		}
	}
	n.awaitEvent("c", "SubnetsFull", "node c waits for a subnet: all subnets of 10.0.0.0/23/24 are in use")
	freed := n.subnet("a")
	n.delete("a")
	n.awaitSubnet("c", freed)
	n.node("d", nil)
	n.awaitEvent("d", "SubnetsFull", "node d waits")
	m.stop()
	m = n.start("10.0.0.0/23/24,10.9.0.0/16/25", false)
	n.awaitSubnet("d", "10.9.0.0/25")
	m.stop()
	for _, ranges := range []string{"10.0.0.0/23/24", "10.9.0.0/16"} {
		if got := n.start(ranges, false).failure(t); !strings.Contains(got, "lack those of nodes ") || strings.Contains(got, "\n") {
			t.Errorf("%s: %s", ranges, got)
		}
	}
	n.restartWritesNothing(n.start("10.0.0.0/23/24,10.9.0.0/16/25", false), "10.0.0.0/23/24,10.9.0.0/16/25")
}

// AC-31: annotations that are none or another's are replaced, with an Event. One that fits is granted.
func TestAnnotations(t *testing.T) {
	n := newNetwork(t)
	wish := func(subnet string) func(*corev1.Node) {
		return func(o *corev1.Node) { o.Annotations = map[string]string{names.HostSubnetAnnotation: subnet} }
	}
	n.node("a", wish("10.0.77.0/24"))
	n.node("b", wish("foo"))
	n.start("10.0.0.0/16/24", false)
	n.awaitSubnet("a", "10.0.77.0/24")
	n.awaitEvent("b", "BadSubnetAnnotation", `"foo" is not a subnet`)
	n.awaitSubnet("b", "10.0.0.0/24")
	n.annotate("b", map[string]string{names.HostSubnetAnnotation: "", names.SubnetsAnnotation: `{"default":"10.0.77.0/24"}`})
	n.awaitEvent("b", "BadSubnetAnnotation", "have subnet 10.0.77.0/24, which another node has: replaced by its subnets 10.0.0.0/24")
	n.awaitSubnet("b", "10.0.0.0/24")
	n.annotate("a", map[string]string{names.SubnetsAnnotation: strings.Repeat("x", 10_000)})
	n.awaitEvent("a", "BadSubnetAnnotation", "has 10000 bytes")
	eventually(t, "the annotation is replaced", func() bool {
		node, err := cluster.Client().CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		must(t, err)
		return node.Annotations[names.SubnetsAnnotation] == `{"default":"10.0.77.0/24"}`
	})
}

// A claim of another node's chassis or address is refused, with an Event. It counts when the other node is gone.
func TestClaims(t *testing.T) {
	n := newNetwork(t)
	n.start("10.0.0.0/16/24", false)
	n.node("a", func(o *corev1.Node) { o.Annotations = claim("a", 1) })
	router := func(name string) string { return n.find("Logical_Router", "options", "name=GR_"+name) }
	eventually(t, "the gateway", func() bool { return strings.Contains(router("a"), "chassis=chassis-1") })
	n.node("b", func(o *corev1.Node) { o.Annotations = claim("b", 1) })
	n.awaitEvent("b", "NodeClaimRefused", "system-id chassis-1 in annotation k8s.ovn.org/node-chassis-id is that of node a")
	n.awaitSubnet("b", "")
	other := claim("b", 1)
	other[names.ChassisAnnotation] = "chassis-2"
	n.annotate("b", other)
	n.awaitEvent("b", "NodeClaimRefused", "tunnel address 192.0.2.1 is that of node a")
	n.annotate("b", map[string]string{names.GatewayAnnotation: strings.Repeat("[", 100_000)})
	n.awaitEvent("b", "BadNodeClaim", "it has 100000 bytes, and at most 4096 are allowed")
	if got := router("b"); got != "" {
		t.Errorf("b has a gateway: %s", got)
	}
	n.annotate("b", other)
	n.delete("a")
	eventually(t, "the gateway moves", func() bool { return strings.Contains(router("b"), "chassis=chassis-2") && router("a") == "" })
}

// The rows of a gateway are made and removed once: the watcher does not change them back when the events of a transaction
// tell of the rows before the record.
func TestRowsOfAGatewayAreMadeOnce(t *testing.T) {
	n := newNetwork(t)
	n.start("10.0.0.0/16/24", false)
	n.node("a", nil)
	n.awaitSubnet("a", "")
	const rounds = 20
	without := nodeclaim.Claim{Chassis: "chassis-1"}.Annotations("a")
	for range rounds {
		for _, annotations := range []map[string]string{claim("a", 1), without} {
			n.annotate("a", annotations)
			wanted := annotations[names.GatewayAnnotation] != without[names.GatewayAnnotation]
			eventually(t, fmt.Sprintf("a gateway: %v", wanted), func() bool { return (n.find("Logical_Router", "name", "name=GR_a") != "") == wanted })
		}
	}
	n.node("b", nil)
	n.awaitSubnet("b", "") // all changes before are logged
	for _, change := range []string{"created", "deleted"} {
		if got := n.log.count(change + " logical router GR_a"); got != rounds {
			t.Errorf("%s %d times, want %d", change, got, rounds)
		}
	}
}

// AC-26: the database was emptied, and no master ran: the copy has the subnets. Without the copy, the annotations have. A Node
// with a name that is too long for a key of the copy keeps nobody from it.
func TestEmptiedDatabase(t *testing.T) {
	const ranges = "10.0.0.0/16/24"
	n := newNetwork(t)
	m := n.start(ranges, false)
	long := strings.Repeat("a.", 120) + "a"
	n.node(long, func(node *corev1.Node) { node.Labels = nil }) // a label has at most 63 characters
	n.awaitEvent(long, "BadNodeName", "choose a shorter one")
	subnets := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		n.node(name, nil)
		subnets[name] = n.awaitSubnet(name, "")
	}
	n.delete("b")
	eventually(t, "b is gone", func() bool { return n.find("Logical_Switch", "name", "name=b") == "" })
	m = n.restartWritesNothing(m, ranges)
	for round, keep := range []bool{true, false} {
		m.stop()
		if !keep {
			must(t, cluster.Client().CoreV1().ConfigMaps(namespace).Delete(t.Context(), names.TopologyConfigMap, metav1.DeleteOptions{}))
		}
		n.central.StopNB()
		must(t, n.central.StartEmptyNB())
		m = n.start(ranges, false)
		name := fmt.Sprint("new", round)
		n.node(name, nil)
		got := n.awaitSubnet(name, "")
		for other, s := range subnets {
			if other == "b" {
				continue
			}
			if got == s {
				t.Errorf("round %d: %s had %s, and %s has it", round, other, s, name)
			}
			eventually(t, fmt.Sprintf("round %d: the switch of %s has %s", round, other, s), func() bool { // perhaps later than the new one
				return n.find("Logical_Switch", "other_config", "name="+other) == "subnet="+s
			})
			if now := n.subnet(other); now != s {
				t.Errorf("round %d: %s had %s, and has %s", round, other, s, now)
			}
		}
		subnets[name] = got
	}
	m.stop()
}

// A row of somebody else with the name of a node blocks that node only.
func TestForeignSwitch(t *testing.T) {
	n := newNetwork(t)
	n.nbctl("ls-add", "a")
	n.start("10.0.0.0/16/24", false)
	for _, name := range []string{"a", "b"} {
		n.node(name, nil)
	}
	n.awaitSubnet("b", "")
	n.awaitEvent("a", "NodeNotReady", "a")
	if got := n.subnet("a"); got != "" {
		t.Errorf("a has %s", got)
	}
	n.nbctl("ls-del", "a")
	n.awaitSubnet("a", "")
}

// A cluster of the early Go era, with a gateway, is taken over with its subnets, addresses and rows, on request.
func TestEarlyGoEra(t *testing.T) {
	n := newNetwork(t)
	// §4.1, §4.2, §4.4 of the era: the router is named after the master, and found by its tag.
	n.nbctl("lr-add", "master", "--", "set", "Logical_Router", "master", "external_ids:k8s-cluster-router=yes",
		"--", "ls-add", "join", "--", "lrp-add", "master", "rtoj-master", "00:00:00:11:22:33", "100.64.1.1/24", "--", "set", "Logical_Router_Port", "rtoj-master", "external_ids:connect_to_join=yes",
		"--", "lsp-add", "join", "jtor-master", "--", "set", "Logical_Switch_Port", "jtor-master", "type=router", "options:router-port=rtoj-master", `addresses="00:00:00:11:22:33"`,
		"--", "lr-add", "GR_a", "--", "set", "Logical_Router", "GR_a", "options:chassis=chassis-1", "external_ids:physical_ip=192.0.2.1",
		"--", "lrp-add", "GR_a", "rtoj-GR_a", "00:00:00:44:55:66", "100.64.1.7/24", "--", "set", "Logical_Router_Port", "rtoj-GR_a", "external_ids:connect_to_join=yes")
	for i, name := range []string{"a", "gone"} {
		n.nbctl("ls-add", name, "--", "set", "Logical_Switch", name, fmt.Sprintf("other_config:subnet=10.1.%d.0/24", i), fmt.Sprintf("external_ids:gateway_ip=10.1.%d.1/24", i),
			"--", "lrp-add", "master", "rtos-"+name, fmt.Sprintf("00:00:00:00:00:%02x", i+1), fmt.Sprintf("10.1.%d.1/24", i),
			"--", "lsp-add", name, "stor-"+name, "--", "set", "Logical_Switch_Port", "stor-"+name, "type=router", "options:router-port=rtos-"+name, fmt.Sprintf("addresses=\"00:00:00:00:00:%02x\"", i+1),
			"--", "lsp-add", name, "k8s-"+name)
	}
	uuid := n.find("Logical_Switch", "_uuid", "name=a")
	n.node("a", func(o *corev1.Node) { o.Annotations = map[string]string{names.HostSubnetAnnotation: "10.1.0.0/24"} })
	if got := n.start("10.1.0.0/16", false).failure(t); !strings.Contains(got, "made by an older release: a, gone: give --adopt") || strings.Contains(got, "\n") {
		t.Errorf("without --adopt: %s", got)
	}
	if n.find("Logical_Router", "name", "name="+names.ClusterRouter) != "" {
		t.Error("a refused start has changed the database")
	}
	n.start("10.1.0.0/16", true)
	n.node("b", nil)
	n.awaitSubnet("b", "10.1.2.0/24")
	eventually(t, "gone is gone", func() bool {
		return n.find("Logical_Switch", "name", "name=gone")+n.find("Logical_Router_Port", "name", "name=rtos-gone") == ""
	})
	if got := n.find("Logical_Switch", "_uuid,other_config", "name=a"); got != uuid+" subnet=10.1.0.0/24" {
		t.Errorf("the switch of a was %s, and is %s", uuid, got)
	}
	// Pods have the MAC of the router's port in their neighbour tables.
	keptMAC := func() bool {
		return n.find("Logical_Router_Port", "mac", "name=rtos-a")+" "+n.find("Logical_Switch_Port", "addresses", "name=stor-a") == "00:00:00:00:00:01 00:00:00:00:00:01"
	}
	eventually(t, "a has an owner", func() bool { return strings.Contains(n.find("Logical_Switch", "external_ids", "name=a"), names.Owner) })
	if !keptMAC() {
		t.Error("the router's port to a has another MAC than before")
	}
	n.nbctl("set", "Logical_Router_Port", "rtos-a", `mac="00:00:00:00:00:99"`, "--", "lsp-set-addresses", "stor-a", "00:00:00:00:00:98")
	eventually(t, "the MAC is repaired", keptMAC)
	n.annotate("a", claim("a", 1))
	eventually(t, "the gateway is taken over", func() bool {
		return strings.Contains(n.find("Logical_Router", "external_ids", "name=GR_a"), names.Owner)
	})
	if got := n.find("Logical_Router_Port", "networks", "name=rtoj-GR_a"); got != "100.64.1.7/24" {
		t.Errorf("the gateway has %s on the join switch", got)
	}
}

// Two masters: one leads, the other takes over, and nothing is given twice.
func TestTwoMasters(t *testing.T) {
	n := newNetwork(t)
	const ranges = "10.0.0.0/16/24"
	masters := []process{n.start(ranges, false), n.start(ranges, false)}
	given := map[string]string{}
	for i := range 12 {
		name := fmt.Sprint("n", i)
		n.node(name, nil)
		s := n.awaitSubnet(name, "")
		if other := given[s]; other != "" {
			t.Errorf("%s and %s have %s", name, other, s)
		}
		given[s] = name
		if i%3 == 2 {
			masters[i/3%2].stop()
			masters[i/3%2] = n.start(ranges, false)
		}
	}
}
