package desired

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/answer"
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// outsideService is a Service with addresses outside.
func outsideService(name string, number int, addrs ...string) *corev1.Service {
	s := newService(name, number)
	s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, addrs
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	return s
}

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// P3: one of two gateways on a LAN answers for an address. If it is down, the other one does.
func TestOneGatewayAnswers(t *testing.T) {
	w := NewWorld()
	w.Put(withGateways(t, cluster(t, 1, 2, 3), 1, 3))
	w.Put(outsideService("web", 1, "198.18.0.200"))
	a, unit := addr("198.18.0.200"), nb.Unit("answer/198.18.0.200")
	first := w.Answers.Answering(a)
	rows, err := w.Rows(unit)
	want := `Load_Balancer answer/198.18.0.200 name="answer/198.18.0.200" options={neighbor_responder="all"} vips={198.18.0.200=""} in=Logical_Router/GR_` + first + ".load_balancer"
	if first == "" || err != nil || len(rows) != 1 || rows[0].String() != want {
		t.Fatalf("%q answers: %v, %v", first, rows, err)
	}
	rows, _ = w.Rows("service/default/web")
	if text := fmt.Sprint(rows); !strings.Contains(text, `neighbor_responder="none"`) {
		t.Errorf("all gateways answer: %s", text)
	}
	if touched := w.Put(facts.Silent{first: true}); !slices.Contains(touched, unit) || w.Answers.Answering(a) == first || w.Answers.Answering(a) == "" {
		t.Errorf("%s is down, %q answers, touched %v", first, w.Answers.Answering(a), touched)
	}
	if w.Put(facts.Silent{"gw1": true, "gw3": true}); w.Answers.Answering(a) == "" {
		t.Error("all gateways seem down, none answers")
	}
	if w.Put(facts.Silent{}); w.Answers.Answering(a) != first {
		t.Errorf("%s is back, %s answers", first, w.Answers.Answering(a))
	}
	if touched := w.Remove(outsideService("web", 1)); !slices.Contains(touched, unit) || w.Answers.Answering(a) != "" {
		t.Errorf("without the Service %q answers, touched %v", w.Answers.Answering(a), touched)
	}
}

// P5: a claim to a gateway suffices for the credential of a kubelet. Its next hop takes no address from a load balancer, in any
// order of events, and none of a host from a Service there. It does refuse an external IP, chosen by the author of a Service.
func TestANextHopTakesNoAddressOfALoadBalancer(t *testing.T) {
	const vip, its = "198.18.0.200", "198.18.0.77"
	balanced := outsideService("web", 1)
	balanced.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: vip}}
	host := &corev1.Node{}
	host.Name, host.Status.Addresses = "n1", []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: its}}
	for _, mode := range []string{topology.Bridge, topology.Local} {
		for hop, of := range map[string]*corev1.Service{vip: balanced, its: outsideService("web", 1, its)} {
			c := withGateways(t, cluster(t, 1, 2, 3), 1, 3)
			c.NumberedBy = names.Ovnkube // only there nodes claim
			bad := topology.Gateway{
				Mode: mode, Interface: "breth0", Chassis: "c2", Node: "n2", MAC: "02:00:00:00:00:02", IPs: prefixes("198.18.0.2/32"), NextHops: []netip.Addr{addr(hop)},
			}
			if hop == its {
				c.Gateways = maps.Clone(c.Gateways) // a gateway there: a host may be the router of others
				g := c.Gateways["gw1"]
				g.IPs = prefixes(its + "/24")
				c.Gateways["gw1"] = g
			}
			claimed, err := c.WithGateway("bad", bad)
			if err != nil {
				t.Fatal(err)
			}
			for _, puts := range [][]any{{c, host, of, claimed}, {claimed, of, host}} {
				w := NewWorld()
				for _, o := range puts {
					w.Put(o)
				}
				rows, err := w.Rows("service/default/web")
				if text := fmt.Sprint(rows); err != nil || !strings.Contains(text, hop+":80") {
					t.Errorf("next hop %s (%s): %v %v", hop, mode, text, err)
				}
				if a := w.Answers.Answering(addr(hop)); (a != "") != (hop == vip) {
					t.Errorf("next hop %s (%s): %q answers", hop, mode, a)
				}
				w.Remove(of) // it comes before external IPs
				w.Put(outsideService("other", 2, vip))
				rows, _ = w.Rows("service/default/other")
				if text := fmt.Sprint(rows); hop == vip && strings.Contains(text, vip) != (mode == topology.Local) {
					t.Errorf("an external IP at next hop %s (%s): %v", hop, mode, text)
				}
			}
		}
	}
}

// P3: no gateway answers for the router of its LAN, or hosts there would lose it: also if the router is a load balancer, and its
// controller writes its address. P5: one node's claim silences no other gateway.
func TestTheRouterAnswersForItself(t *testing.T) {
	const unit = nb.Unit("service/default/web")
	router := addr("198.18.0.1")
	balanced := outsideService("web", 1)
	balanced.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: router.String()}}
	hops := func(all map[int]string) topology.Cluster {
		c := cluster(t, 1, 2, 3).WithChassis("n1", "chassis1").WithChassis("n3", "chassis3")
		c.NumberedBy = names.Ovnkube
		for _, n := range slices.Sorted(maps.Keys(all)) {
			c = withGateways(t, c, n)
			name := fmt.Sprint("gw", n)
			g := c.Gateways[name]
			g.NextHops = []netip.Addr{addr(all[n])}
			c.Gateways = maps.Clone(c.Gateways)
			c.Gateways[name] = g
		}
		return c
	}
	administrator := hops(map[int]string{1: "198.18.0.1", 3: "198.18.0.2"})
	administrator.NumberedBy = ""
	labelled := sayer("n1", 1, "198.18.0.11")
	labelled.Labels = map[string]string{names.LabelControlPlane: ""}
	w := NewWorld()
	w.Put(sayer("n1", 1, "198.18.0.11"))
	w.Put(balanced)
	const why = "address 198.18.0.1 of service default/web is that of the router outside to which gateways send: no gateway answers for it"
	for _, step := range []struct {
		name    string
		put     any
		answers string
		why     string
	}{
		{"two gateways", hops(map[int]string{1: "198.18.0.1", 3: "198.18.0.1"}), "", why},
		{"one gateway", hops(map[int]string{1: "198.18.0.1"}), "", ""},
		{"another gateway, with another router", hops(map[int]string{1: "198.18.0.1", 3: "198.18.0.2"}), "gw3", ""},
		{"the label of the control plane", labelled, "", why},
		{"no label", sayer("n1", 1, "198.18.0.11"), "gw3", ""},
		{"gateways of the administrator", administrator, "", why},
		{"another router", hops(map[int]string{1: "198.18.0.2", 3: "198.18.0.2"}), "gw1", ""},
		{"two gateways again", hops(map[int]string{1: "198.18.0.1", 3: "198.18.0.1"}), "", why},
	} {
		before, was := state(w, nil), w.Answers.Answering(router)
		touched := w.Put(step.put)
		rows, err := w.Rows(unit)
		if text := fmt.Sprint(rows); !strings.Contains(text, "198.18.0.1:80") || (err != nil) != (step.why != "") || err != nil && !strings.Contains(err.Error(), step.why) {
			t.Errorf("%s: %v\n%s", step.name, err, text)
		}
		is := w.Answers.Answering(router)
		if (is == "") != (step.answers == "") || step.answers == "gw3" && is != "gw3" || is != was && !slices.Contains(touched, answer.Unit(router)) {
			t.Errorf("%s: %q answers instead of %q, touched %v", step.name, is, was, touched)
		}
		for u, rows := range state(w, nil) {
			if rows != before[u] && before[u] != "" && !slices.Contains(touched, u) {
				t.Errorf("%s: %s changed and was not reported", step.name, u)
			}
		}
	}
	proxy := corev1.LoadBalancerIPModeProxy
	balanced.Status.LoadBalancer.Ingress[0].IPMode = &proxy
	w.Put(balanced)
	if rows, err := w.Rows(unit); err != nil || w.Answers.Answering(router) != "" || strings.Contains(fmt.Sprint(rows), "198.18.0.1:80") {
		t.Errorf("mode Proxy: %v, %v, %q answers", rows, err, w.Answers.Answering(router))
	}
}

// The address of a load balancer comes before the external IP of an older Service. Its Problem says why, also when only the
// right of the holder changes.
func TestAnAddressTakenByALoadBalancer(t *testing.T) {
	const vip, unit = "198.18.0.200", nb.Unit("service/default/web")
	young := outsideService("a-young", 2, vip) // with equal age first by name
	w := NewWorld()
	w.Put(outsideService("web", 1, vip))
	w.Put(young)
	const held = "198.18.0.200:80/TCP of service default/web is in use by "
	for _, tt := range []struct{ ip, want string }{
		{"", held + "service default/a-young: choose another one"},
		{vip, held + "the load balancer of service default/a-young, whose address it is: choose another one"},
	} {
		if tt.ip != "" {
			young = young.DeepCopy()
			young.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: tt.ip}}
			if touched := w.Put(young); !slices.Contains(touched, unit) {
				t.Errorf("not touched: %v", touched)
			}
		}
		if _, err := w.Rows(unit); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v\nwant %s", err, tt.want)
		}
	}
}

// A gateway that is closed to clients outside has no load balancers of Services and answers for no address.
func TestAClosedGateway(t *testing.T) {
	w := NewWorld()
	c := withGateways(t, cluster(t, 1, 2, 3), 1, 3)
	w.Put(c)
	const unit = nb.Unit("service/default/web")
	w.Put(outsideService("web", 1, "198.18.0.200", "198.18.0.11")) // the latter is gw1's
	rows, _ := w.Rows(unit)
	if text := fmt.Sprint(rows); !strings.Contains(text, "Logical_Router/GR_gw1") {
		t.Errorf("no load balancer at the gateway: %s", text)
	}
	g := c.Gateways["gw1"]
	g.Closed = true
	c.Gateways = maps.Clone(c.Gateways)
	c.Gateways["gw1"] = g
	touched := w.Put(c)
	for _, u := range []nb.Unit{topology.GatewayUnit("gw1"), unit} {
		if !slices.Contains(touched, u) {
			t.Errorf("%s is not touched: %v", u, touched)
		}
	}
	if got := w.Answers.Answering(addr("198.18.0.200")); got != "gw3" {
		t.Errorf("%q answers", got)
	}
	rows, _ = w.Rows(unit)
	if text := fmt.Sprint(rows); strings.Contains(text, "Logical_Router/GR_gw1") {
		t.Errorf("a load balancer at the closed gateway: %s", text)
	}
	for name, want := range map[string]bool{"gw1": false, "gw3": true} {
		rows, _ := w.Rows(topology.GatewayUnit(name))
		if got := strings.Contains(fmt.Sprint(rows), "load_balancer_group"); got != want {
			t.Errorf("%s has load balancers: %v", name, got)
		}
	}
}

// P3: gateways do not answer for addresses of other networks or of hosts.
func TestWhatNoGatewayAnswersFor(t *testing.T) {
	w := NewWorld()
	w.Put(withGateways(t, cluster(t, 1, 3), 1, 3))
	n := &corev1.Node{}
	n.Name, n.Status.Addresses = "n1", []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "198.18.0.77"}}
	w.Put(n)
	w.Put(facts.Protected{addr("198.18.0.66"): "the API server"})
	refused := []string{
		"203.0.113.9",  // elsewhere
		"198.18.0.77",  // a node's
		"198.18.0.11",  // a gateway's
		"198.18.0.1",   // a next hop's
		"198.18.0.66",  // the API server's
		"2001:db8::99", // of a family missing on gateways
	}
	w.Put(outsideService("web", 1, append(refused, "198.18.0.200")...))
	for _, text := range refused {
		if g := w.Answers.Answering(addr(text)); g != "" {
			t.Errorf("%s answers for %s", g, text)
		}
	}
	if w.Answers.Answering(addr("198.18.0.200")) == "" {
		t.Error("no gateway answers for 198.18.0.200")
	}
	if touched := w.Put(facts.Protected{}); !slices.Contains(touched, "answer/198.18.0.66") || w.Answers.Answering(addr("198.18.0.66")) == "" {
		t.Errorf("no gateway answers for 198.18.0.66, which is free now: touched %v", touched)
	}
	c, _ := w.Facts().Cluster.WithoutGateway("gw3")
	g := c.Gateways["gw1"]
	g.Mode = topology.Local
	c.Gateways["gw1"] = g
	w.Put(c)
	if g := w.Answers.Answering(addr("198.18.0.200")); g != "" {
		t.Errorf("%s answers, which is a local gateway", g)
	}
}

// P3: with the external policy Local, a gateway on a node with an endpoint answers, if there is one.
func TestAGatewayWithEndpointsAnswers(t *testing.T) {
	w := NewWorld()
	w.Put(withGateways(t, cluster(t, 1, 2, 3), 1, 2, 3).WithChassis("n1", "chassis1").WithChassis("n2", "chassis2").WithChassis("n3", "chassis3"))
	a := addr("198.18.0.200")
	local := outsideService("local", 1, a.String())
	local.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	w.Put(local)
	if w.Answers.Answering(a) == "" {
		t.Error("without endpoints no gateway answers: clients are not refused")
	}
	for i := range 3 {
		node, endpoint := fmt.Sprint("n", i+1), fmt.Sprintf("10.0.%d.9", i+1)
		touched := w.Put(newSlice("s", "local", endpoint+"@"+node))
		if g := w.Answers.Answering(a); g != fmt.Sprint("gw", i+1) {
			t.Errorf("the endpoint is on %s, %s answers, touched %v", node, g, touched)
		}
	}
	w.Put(newSlice("s", "local", "10.0.1.9@n1", "10.0.2.9@n2"))
	// Another Service at the same address, on another port.
	other := outsideService("other", 2, a.String())
	other.Spec.ExternalTrafficPolicy, other.Spec.Ports[0].Port = corev1.ServiceExternalTrafficPolicyLocal, 443
	w.Put(other)
	for i := range 2 {
		node := fmt.Sprint("n", i+1)
		if w.Put(newSlice("o", "other", fmt.Sprintf("10.0.%d.10@%s", i+1, node))); w.Answers.Answering(a) != fmt.Sprint("gw", i+1) {
			t.Errorf("both Services have an endpoint on %s, %s answers", node, w.Answers.Answering(a))
		}
	}
}

// P3: the cost of a gateway or a Service does not grow with unrelated addresses and gateways.
func TestAnswersCostWhatMoves(t *testing.T) {
	w := manyNodes(t, 1000)
	c := w.Facts().Cluster
	c.Gateways = maps.Clone(c.Gateways) // facts are immutable
	for name, g := range c.Gateways {
		g.IPs = []netip.Prefix{netip.PrefixFrom(g.IPs[0].Addr(), 8)} // one LAN
		c.Gateways[name] = g
	}
	w.Put(c)
	var all []any
	for i := range 10000 {
		all = append(all, outsideService(fmt.Sprint("s", i), i, fmt.Sprintf("198.99.%d.%d", i/250, i%250)))
	}
	w.Replace(&corev1.Service{}, slices.Values(all))
	moved := func(touched []nb.Unit) (out []nb.Unit) {
		for _, u := range touched {
			if _, ok := answer.Of(u); ok {
				out = append(out, u)
			}
		}
		return out
	}
	share := len(w.Answers.AnsweredBy("node-7"))
	if share == 0 || share > 40 {
		t.Errorf("node-7 answers for %d of 10000 addresses", share)
	}
	down := moved(w.Put(facts.Silent{"node-7": true}))
	up := moved(w.Put(facts.Silent{}))
	if len(down) != share || len(up) != share || len(w.Answers.AnsweredBy("node-7")) != share {
		t.Errorf("node-7 answers for %d addresses; when it goes %d move, and %d when it is back", share, len(down), len(up))
	}
	if n := moved(w.Put(outsideService("s1", 1, "198.99.0.1", "198.99.200.1"))); len(n) != 1 {
		t.Errorf("a new address touches %v", n)
	}
}
