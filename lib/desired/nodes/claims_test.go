package nodes

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/nodeclaim"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// claim publishes a claim of a host with some address.
func (s *simulation) claim(name, chassis, ip string, edit func(*topology.Gateway)) {
	g := &topology.Gateway{
		Mode: topology.Bridge, Interface: "breth0", MAC: "0a:58:c0:a8:02:03", IPs: []netip.Prefix{netip.MustParsePrefix(ip)}, Tunnel: netip.MustParsePrefix(ip).Addr(),
	}
	if edit != nil {
		edit(g)
	}
	n := s.nodes[name].DeepCopy()
	s.nodes[name] = n
	maps.Copy(n.Annotations, nodeclaim.Claim{Chassis: chassis, Gateway: g}.Annotations(name))
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: netip.MustParsePrefix(ip).Addr().String()}}
}

// The claim of a node becomes its chassis and its gateway. That of another's address, chassis, bridge or tunnel does not.
func TestClaims(t *testing.T) {
	s := simulate(t, "10.0.0.0/16/24")
	for i := range 4 {
		s.add(fmt.Sprint("n", i))
	}
	s.next(s.list())
	s.claim("n1", "c1", "192.0.2.1/24", nil)
	step := s.next(s.put("n1"))
	if g := s.record.Gateways["n1"]; len(step.Problems) > 0 || s.record.Chassis["n1"] != "c1" || g.Chassis != "c1" || g.Node != "n1" || !g.First || len(g.Join) != 1 {
		t.Fatalf("%+v, problems %v", s.record, step.Problems)
	}
	if step := s.next(s.put("n1")); !step.Before.Equal(step.Record) {
		t.Errorf("again: %+v", step.Record)
	}
	for _, open := range []bool{true, false} {
		s.claim("n1", "c1", "192.0.2.1/24", func(g *topology.Gateway) { g.Closed = !open })
		s.next(s.put("n1"))
		if g := s.record.Gateways["n1"]; g.Closed == open {
			t.Errorf("NodePorts %v: %+v", open, g)
		}
	}
	s.claim("n2", "c1", "192.0.2.2/24", nil)
	s.problem(s.next(s.put("n2")), "n2", "system-id c1 in annotation k8s.ovn.org/node-chassis-id is that of node n1")
	s.claim("n2", "c2", "192.0.2.2/24", func(g *topology.Gateway) { g.IPs = s.record.Gateways["n1"].IPs })
	s.problem(s.next(s.put("n2")), "n2", "physical IP 192.0.2.1 is that of node n1")
	s.claim("n2", "c2", "192.0.2.2/24", func(g *topology.Gateway) { g.Tunnel = netip.MustParseAddr("192.0.2.1") })
	s.problem(s.next(s.put("n2")), "n2", "tunnel address 192.0.2.1 is that of node n1")
	s.nodes["n2"].Annotations[names.GatewayAnnotation] = s.nodes["n1"].Annotations[names.GatewayAnnotation]
	s.problem(s.next(s.put("n2")), "n2", `interface-id "breth0_n1" is not`)
	s.claim("n2", "c2", "10.0.0.1/24", nil)
	s.problem(s.next(s.put("n2")), "n2", "physical IP 10.0.0.1/24 is in a network of the cluster's own")
	s.claim("n2", "c2", "192.0.2.2/24", func(g *topology.Gateway) {
		for i := range 200 {
			g.NextHops = append(g.NextHops, netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}))
		}
	})
	if p := s.next(s.put("n2")).Problems[topology.NodeUnit("n2")]; p == nil || len(p.Error()) > 800 {
		t.Errorf("many values: %v", p)
	}
	s.claim("n2", "c2", "192.0.2.2/24", func(g *topology.Gateway) {
		g.NextHops = []netip.Addr{netip.MustParseAddr("192.0.2.253"), netip.MustParseAddr("192.0.2.254")}
	})
	s.problem(s.next(s.put("n2")), "n2", "default gateways 192.0.2.253,192.0.2.254: give at most one IPv4 and one IPv6 address")
	if len(s.record.Gateways) != 1 {
		t.Errorf("gateways: %+v", s.record.Gateways)
	}

	// A refused claim counts when the other node is gone.
	s.claim("n2", "c1", "192.0.2.2/24", nil)
	s.problem(s.next(s.put("n2")), "n2", "is that of node n1")
	s.problem(s.next(s.remove("n1")), "n2", "")
	if s.record.Chassis["n2"] != "c1" || s.record.Gateways["n2"].Chassis != "c1" || len(s.record.Gateways) != 1 || s.record.Nodes["n1"] != nil || s.record.Chassis["n1"] != "" {
		t.Errorf("after n1 is gone: %+v", s.record)
	}

	// A gateway that is no more, and one with an annotation that cannot be read: the former one stays.
	s.nodes["n2"].Annotations[names.GatewayAnnotation] = "{"
	s.problem(s.next(s.put("n2")), "n2", "is not JSON")
	if len(s.record.Gateways) != 1 {
		t.Errorf("after a bad annotation: %+v", s.record.Gateways)
	}
	maps.Copy(s.nodes["n2"].Annotations, nodeclaim.Claim{Chassis: "c1"}.Annotations("n2"))
	s.problem(s.next(s.put("n2")), "n2", "")
	if len(s.record.Gateways) != 0 || s.record.Chassis["n2"] != "c1" {
		t.Errorf("without a gateway: %+v", s.record)
	}
}

// P5: a host may be the router of others, and whoever reports the address of the router keeps nobody from it. That the next hop
// takes no address from a Node is decided elsewhere: see TestNextHopsAndReports.
func TestAClaimToANextHopOfAnother(t *testing.T) {
	s := simulate(t, "10.0.0.0/16/24")
	for _, name := range []string{"victim", "router", "n1", "n2"} {
		s.add(name)
	}
	s.nodes["victim"].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	s.next(s.list())
	via := func(hop, mode string) func(*topology.Gateway) {
		return func(g *topology.Gateway) { g.Mode, g.NextHops = mode, []netip.Addr{netip.MustParseAddr(hop)} }
	}
	for _, mode := range []string{topology.Bridge, topology.Local} {
		for _, ip := range []string{"192.0.2.3/32", "192.0.2.3/24"} {
			s.claim("n1", "c1", ip, via("192.0.2.1", mode)) // the router of others, without a gateway
			s.problem(s.next(s.put("n1")), "n1", "")
			if g := s.record.Gateways["n1"]; g.Mode != mode || !slices.Equal(g.NextHops, []netip.Addr{netip.MustParseAddr("192.0.2.1")}) {
				t.Errorf("%s, %s: %+v", mode, ip, g)
			}
		}
	}
	// A Node keeps nobody from the router by reporting its address.
	s.claim("n1", "c1", "192.0.2.3/24", via("192.0.2.254", topology.Bridge))
	s.problem(s.next(s.put("n1")), "n1", "")
	victim := s.nodes["victim"].DeepCopy()
	victim.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.254"}}
	s.nodes["victim"] = victim
	s.next(s.put("victim"))
	s.claim("n2", "c2", "192.0.2.4/24", via("192.0.2.253", topology.Bridge)) // another rack's, of no gateway before
	victim = victim.DeepCopy()
	victim.Status.Addresses = append(victim.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "192.0.2.253"})
	s.nodes["victim"] = victim
	s.next(s.put("victim"))
	s.problem(s.next(s.put("n2")), "n2", "")
	s.claim("n1", "c1", "192.0.2.5/24", via("192.0.2.254", topology.Bridge))
	s.problem(s.next(s.put("n1")), "n1", "")
	s.claim("n2", "c2", "192.0.2.4/24", via("192.0.2.254", topology.Bridge))
	s.problem(s.next(s.put("n2")), "n2", "")
	// A host with a gateway may be the router of others.
	s.claim("router", "c3", "192.0.2.9/24", via("192.0.2.254", topology.Bridge))
	s.problem(s.next(s.put("router")), "router", "")
	s.claim("n2", "c2", "192.0.2.4/24", via("192.0.2.9", topology.Bridge))
	s.problem(s.next(s.put("n2")), "n2", "")
	// Also one with a local gateway: nobody takes the address of its tunnel.
	s.claim("router", "c3", "192.0.2.9/24", func(g *topology.Gateway) { g.Mode, g.Tunnel = topology.Local, netip.MustParseAddr("192.0.2.10") })
	router := s.nodes["router"].DeepCopy()
	router.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}}
	s.nodes["router"] = router
	s.problem(s.next(s.put("router")), "router", "")
	s.claim("n2", "c2", "192.0.2.4/24", via("192.0.2.10", topology.Bridge))
	s.problem(s.next(s.put("n2")), "n2", "")
}

// A Node does not get the address of an older one by reporting it, too; later reports do not take it from a gateway.
func TestAClaimToAnAddressOfAnOlderNode(t *testing.T) {
	s := simulate(t, "10.0.0.0/16/24")
	for _, name := range []string{"old", "new"} {
		s.add(name)
	}
	s.nodes["old"].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	s.next(s.list())
	s.claim("new", "c2", "192.0.2.1/24", nil)
	s.problem(s.next(s.put("new")), "new", "physical IP 192.0.2.1 is that of node old")
	s.claim("new", "c2", "192.0.2.2/24", nil)
	s.problem(s.next(s.put("new")), "new", "")
	s.nodes["old"].Status.Addresses = append(s.nodes["old"].Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "192.0.2.2"})
	s.put("old")
	s.claim("new", "c2", "192.0.2.2/24", func(g *topology.Gateway) { g.Closed = true })
	s.problem(s.next(s.put("new")), "new", "")
	if !s.record.Gateways["new"].Closed {
		t.Errorf("%+v", s.record.Gateways)
	}
}

// A Node keeps younger ones from no more addresses than count elsewhere, however many it reports.
func TestManyAddressesOfAnOlderNode(t *testing.T) {
	s := simulate(t, "10.0.0.0/16/24")
	s.add("old")
	for i := range 254 {
		s.nodes["old"].Status.Addresses = append(s.nodes["old"].Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", 254-i)})
	}
	s.next(s.list())
	refused := 0
	for i := range 254 {
		name := fmt.Sprint("n", i)
		s.add(name)
		s.claim(name, fmt.Sprint("c", i), fmt.Sprintf("192.0.2.%d/24", i+1), nil)
		if s.next(s.put(name)).Problems[topology.NodeUnit(name)] != nil {
			refused++
		}
	}
	if refused != 64 {
		t.Errorf("gateways of %d younger Nodes are refused, want 64", refused)
	}
}

// A local gateway may have any address, as many have the same: it takes none from a gateway of another mode, and keeps none
// for its own change of mode.
func TestALocalGatewayWithAnAddressOfAnother(t *testing.T) {
	s := simulate(t, "10.0.0.0/16/24")
	for _, name := range []string{"victim", "quiet", "a-thief"} {
		s.add(name)
	}
	s.nodes["quiet"].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.3"}} // and no gateway
	s.claim("victim", "c1", "192.0.2.1/24", nil)
	s.claim("a-thief", "c2", "192.0.2.2/24", nil)
	s.next(s.list())
	for _, stolen := range []string{"192.0.2.1/24", "192.0.2.3/24"} {
		s.claim("a-thief", "c2", "192.0.2.2/24", func(g *topology.Gateway) { g.Mode, g.IPs[0] = topology.Local, netip.MustParsePrefix(stolen) })
		s.problem(s.next(s.put("a-thief")), "a-thief", "")
		s.start() // fails if the record cannot be read
		if step := s.next(s.list()); len(s.record.Gateways) != 2 || len(step.Problems) > 0 {
			t.Errorf("%s: after a start: %v, problems %v", stolen, s.record.Gateways.Names(), step.Problems)
		}
		s.claim("victim", "c1", "192.0.2.1/24", func(g *topology.Gateway) { g.Closed = !s.record.Gateways["victim"].Closed })
		s.problem(s.next(s.put("victim")), "victim", "")
		s.claim("a-thief", "c2", "192.0.2.2/24", func(g *topology.Gateway) { g.IPs[0] = netip.MustParsePrefix(stolen) })
		s.problem(s.next(s.put("a-thief")), "a-thief", "is that of node")
	}
}

// A gateway gets packets of its own node's pods only, and of all of them: egress subnets other than the node's are left out,
// at each start again.
func TestEgressSubnetsOfOthers(t *testing.T) {
	s := simulate(t, "10.0.0.0/16/24,fd00::/48")
	for _, name := range []string{"n0", "n1"} {
		s.add(name)
	}
	s.next(s.list())
	for _, foreign := range []string{"10.0.1.0/24", "10.0.0.0/16", "0.0.0.0/0", "10.0.0.0/25", "fd00:0:0:1::/64", "fd00::/65"} {
		bad, own := netip.MustParsePrefix(foreign), s.record.Nodes["n0"][0]
		if bad.Overlaps(own) {
			own = s.record.Nodes["n0"][1]
		}
		s.claim("n0", "c0", "192.0.2.1/24", func(g *topology.Gateway) { g.Rampout = []netip.Prefix{bad, own} })
		s.problem(s.next(s.put("n0")), "n0", "egress subnet "+foreign+" is none of the node's subnets 10.0.0.0/24,fd00::/64, and is left out")
		if got := s.record.Gateways["n0"].Rampout; !slices.Equal(got, []netip.Prefix{own}) {
			t.Errorf("%s: the gateway has %s", foreign, got)
		}
		for _, family := range ipnet.Families() {
			if s.record.PinnedByPolicy(family) {
				t.Errorf("%s: all hosts have rows for it", foreign)
			}
		}
		s.start()
		if step := s.next(s.list()); !step.Before.Equal(step.Record) {
			t.Errorf("%s: a start wrote %+v", foreign, step.Record.Gateways)
		}
	}
	for i, name := range []string{"n0", "n1"} {
		own := s.record.Nodes[name]
		s.claim(name, fmt.Sprint("c", i), fmt.Sprintf("192.0.2.%d/24", i+1), func(g *topology.Gateway) { g.Rampout = own })
		s.problem(s.next(s.put(name)), name, "")
		if got := s.record.Gateways[name].Rampout; !slices.Equal(got, own) {
			t.Errorf("%s: egress subnets %v, want %v", name, got, own)
		}
	}
}

// A Node does not get the system-id of a mere gateway's host, unless the gateway has its name: then gateway-init ran
// before the host became a node.
func TestTheChassisOfAGateway(t *testing.T) {
	s := simulate(t, "10.0.0.0/16/24")
	c := s.record
	var err error
	for i, name := range []string{"Outer", "N1"} {
		if c, err = c.WithGateway(name, topology.Gateway{Mode: topology.Physical, Interface: "eth1", Chassis: fmt.Sprint("c", i), MAC: "0a:58:c0:a8:02:04",
			IPs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", 90+i))}}); err != nil {
			t.Fatal(err)
		}
	}
	s.record = c
	s.start()
	for _, name := range []string{"n1", "thief"} {
		s.add(name)
	}
	s.next(s.list())
	none := nodeclaim.Claim{Chassis: "c0"}
	maps.Copy(s.nodes["thief"].Annotations, none.Annotations("thief"))
	s.problem(s.next(s.put("thief")), "thief", `is that of gateway Outer: if the host is a clone, remove /etc/openvswitch/system-id.conf and restart Open vSwitch; if it was gateway Outer, run "ovn-k8s-overlay gateway-remove --node-name=Outer" on it`)
	s.claim("thief", "c1", "192.0.2.3/24", nil)
	s.problem(s.next(s.put("thief")), "thief", "is that of node n1")
	s.claim("n1", "c1", "192.0.2.91/24", nil)
	s.problem(s.next(s.put("n1")), "n1", "")
	if s.record.Chassis["n1"] != "c1" || s.record.Chassis["thief"] != "" || s.record.Gateways["N1"].Node != "n1" || len(s.record.Gateways) != 2 {
		t.Errorf("%v, gateways %+v", s.record.Chassis, s.record.Gateways)
	}
	s.problem(s.next(nil), "thief", "is that of node n1")
	outer, _ := s.record.WithoutGateway("Outer")
	s.claim("thief", "c0", "192.0.2.3/24", nil)
	s.problem(s.next(append(s.put("thief"), s.index.Record(outer)...)), "thief", "")
}

// Hosts that publish nothing have what commands recorded: a cluster is taken over host by host.
func TestCommandsAndClaims(t *testing.T) {
	s := simulate(t, "10.0.0.0/16/24")
	c, err := s.record.WithNode("n1", []netip.Prefix{netip.MustParsePrefix("10.0.7.0/25")})
	if err != nil {
		t.Fatal(err)
	}
	c = c.WithChassis("n1", "c1")
	for _, name := range []string{"N1", "outer"} {
		if c, err = c.WithGateway(name, topology.Gateway{Mode: topology.Physical, Interface: "eth1", Chassis: map[string]string{"N1": "c1", "outer": "c9"}[name], MAC: "0a:58:c0:a8:02:04",
			IPs: []netip.Prefix{netip.MustParsePrefix(map[string]string{"N1": "192.0.2.9/24", "outer": "192.0.2.99/24"}[name])}}); err != nil {
			t.Fatal(err)
		}
	}
	s.record = c.WithNodeOnChassis("n1", "c1")
	s.start()
	s.add("n1")
	step := s.next(s.list())
	if !step.Before.Equal(step.Record) || s.nodes["n1"].Annotations[names.HostSubnetAnnotation] != "10.0.7.0/25" {
		t.Errorf("%+v, annotations %v", step.Record, s.nodes["n1"].Annotations)
	}
	s.claim("n1", "c1", "192.0.2.9/24", nil)
	s.next(s.put("n1"))
	if g := s.record.Gateways["N1"]; g.Mode != topology.Bridge || g.Node != "n1" || len(s.record.Gateways) != 2 {
		t.Errorf("the gateway was not taken over: %+v", s.record.Gateways)
	}
	s.next(s.remove("n1"))
	if _, ok := s.record.Gateways["outer"]; !ok || len(s.record.Gateways) != 1 || len(s.record.Nodes) != 0 {
		t.Errorf("a gateway that is no node's: %+v", s.record.Gateways)
	}
}

// A Node is deleted and registers again. Its host also has a gateway of another name, which was made after it.
func TestANodeWithAnotherGatewayRegistersAgain(t *testing.T) {
	s := simulate(t, "10.0.0.0/16/24")
	for _, name := range []string{"n1", "thief"} {
		s.add(name)
	}
	s.next(s.list())
	s.claim("n1", "c1", "192.0.2.1/24", nil)
	s.problem(s.next(s.put("n1")), "n1", "")
	c, err := s.record.WithGateway("edge", topology.Gateway{Mode: topology.Physical, Interface: "eth1", Chassis: "c1", Node: "n1", MAC: "0a:58:c0:a8:02:04",
		IPs: []netip.Prefix{netip.MustParsePrefix("192.0.2.9/24")}})
	if err != nil {
		t.Fatal(err)
	}
	s.record = c
	s.next(s.index.Record(c))
	annotations := maps.Clone(s.nodes["n1"].Annotations)
	const refused = `is that of gateway edge: if the host is a clone, remove /etc/openvswitch/system-id.conf and restart Open vSwitch; if it was gateway edge, run "ovn-k8s-overlay gateway-remove --node-name=edge" on it`
	for _, restart := range []bool{false, true} {
		s.next(s.remove("n1"))
		if _, ok := s.record.Gateways["edge"]; !ok || len(s.record.Gateways) != 1 || len(s.record.Chassis) != 0 {
			t.Errorf("without n1: gateways %+v, chassis %v", s.record.Gateways, s.record.Chassis)
		}
		if restart {
			s.start()
			s.next(s.list())
		}
		s.claim("thief", "c1", "192.0.2.2/24", nil)
		s.problem(s.next(s.put("thief")), "thief", refused)
		s.add("n1").Annotations = maps.Clone(annotations)
		s.problem(s.next(s.put("n1")), "n1", "")
		if s.record.Chassis["n1"] != "c1" || s.record.Gateways["edge"].Node != "n1" || s.record.Gateways["n1"].Chassis != "c1" {
			t.Errorf("again: chassis %v, gateways %+v", s.record.Chassis, s.record.Gateways)
		}
		s.problem(s.next(s.put("thief")), "thief", "is that of node n1")
	}
	s.claim("n1", "c5", "192.0.2.1/24", nil) // another host in its place
	s.problem(s.next(s.put("n1")), "n1", "")
	s.problem(s.next(s.put("thief")), "thief", refused)
	if edge := s.record.Gateways["edge"]; edge.NodeIn(s.record) != "" || s.record.Gateways["n1"].NodeIn(s.record) != "n1" {
		t.Errorf("on another host: %+v", s.record)
	}
	s.claim("n1", "c1", "192.0.2.1/24", nil)
	s.problem(s.next(s.put("n1")), "n1", "")
	if edge := s.record.Gateways["edge"]; edge.NodeIn(s.record) != "n1" {
		t.Errorf("back: %+v", s.record)
	}
}
