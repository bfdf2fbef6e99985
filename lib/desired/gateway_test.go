package desired

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// withGateways adds gateways with the given numbers to a topology, each on the node of its number.
func withGateways(t testing.TB, c topology.Cluster, numbers ...int) topology.Cluster {
	t.Helper()
	for _, n := range numbers {
		g := topology.Gateway{
			Mode: topology.Physical, Interface: "eth1", Chassis: fmt.Sprint("chassis", n), MAC: fmt.Sprintf("02:00:00:00:00:%02x", n),
			IPs: prefixes(fmt.Sprintf("198.18.0.%d/24", n+10)), NextHops: []netip.Addr{netip.MustParseAddr("198.18.0.1")}, Node: fmt.Sprint("n", n),
		}
		if n == 2 {
			g.Rampout = prefixes("10.0.2.8/29", "10.0.3.8/32") // the second by a policy
		}
		var err error
		if c, err = c.WithGateway(fmt.Sprint("gw", n), g); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// randomGatewayChange changes inputs of gateways.
func randomGatewayChange(t *testing.T, r *rand.Rand, w *World) (string, []nb.Unit) {
	t.Helper()
	some := func() (out []int) {
		for n := range 4 {
			if r.IntN(3) > 0 {
				out = append(out, n)
			}
		}
		return out
	}
	set := map[string]bool{}
	switch r.IntN(6) {
	case 4, 5:
		c := w.Facts().Cluster
		c.Gateways = maps.Clone(c.Gateways)
		name := fmt.Sprint("gw", r.IntN(4))
		g, ok := c.Gateways[name]
		if !ok {
			return "no " + name, nil
		}
		switch r.IntN(5) {
		case 0:
			g.Interface = fmt.Sprint("eth", r.IntN(3))
		case 1:
			g.Rampout = prefixes([]string{"10.0.1.8/29", "10.0.2.8/30", "fd00:0:0:1::/64", "fd00:0:0:2::/80"}[r.IntN(4)])
		case 2:
			g.Rampout = nil
		case 3:
			g.First, g.MTU, g.MAC = !g.First, 1400+r.IntN(2), fmt.Sprintf("0a:00:00:00:00:%02x", r.IntN(9))
		default:
			g.VLAN, g.Tunnel = r.IntN(3), netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(9))})
		}
		c.Gateways[name] = g
		return fmt.Sprint("gateway ", g), w.Put(c)
	case 3:
		declared := facts.Declared{}
		for _, n := range some() {
			declared[fmt.Sprint("chassis", n)] = []string{"physical", "bridge/local", "local/physical"}[r.IntN(3)]
		}
		return fmt.Sprint("declared ", declared), w.Put(declared)
	case 0:
		nodes, gateways := some(), some()
		return fmt.Sprint("topology ", nodes, " gateways ", gateways), w.Put(withGateways(t, cluster(t, nodes...), gateways...))
	case 1:
		for _, n := range some() {
			set[fmt.Sprint("gw", n)] = true
		}
		return fmt.Sprint("silent ", set), w.Put(facts.Silent(set))
	}
	if r.IntN(4) == 0 {
		return "chassis unknown", w.Put(facts.Registered(nil))
	}
	for _, n := range some() {
		set[fmt.Sprint("chassis", n)] = r.IntN(4) > 0
	}
	return fmt.Sprint("chassis ", set), w.Put(facts.Registered(set))
}

// A pod's logical port is NAMESPACE_POD, and the port of a gateway's NIC NIC_GATEWAY. If both have one name, the
// gateway has it, even if the pod was first.
func TestAPodDoesNotTakeAGatewaysPort(t *testing.T) {
	taken := newPod("gw1", "n1")
	taken.Namespace = "eth1"
	const unit = "pod/eth1/gw1"
	gone := func(w *World, touched []nb.Unit) {
		t.Helper()
		rows, err := w.Rows(unit)
		want := "the logical port of pod eth1/gw1 would be eth1_gw1, which is that of the NIC of gateway gw1: give the pod or its namespace another name"
		if len(rows) > 0 || err == nil || err.Error() != want || !slices.Contains(touched, nb.Unit(unit)) {
			t.Errorf("rows %v, %v, touched %v", rows, err, touched)
		}
		if problem := (*feature.Problem)(nil); !errors.As(err, &problem) || problem.Reason != "NameTaken" {
			t.Errorf("%#v", err)
		}
		if a, ok := w.Pods.Annotation(unit); ok {
			t.Errorf("it has the annotation %v", a)
		}
	}
	with, without := withGateways(t, cluster(t, 1), 1), cluster(t, 1)
	w := NewWorld()
	w.Put(with)
	gone(w, append(w.Put(taken), w.Allocate()...))
	w.Put(without)
	if touched := w.Allocate(); !slices.Contains(touched, nb.Unit(unit)) {
		t.Errorf("without the gateway: touched %v", touched)
	}
	if rows, err := w.Rows(unit); len(rows) != 1 || err != nil {
		t.Errorf("without the gateway: %v, %v", rows, err)
	}
	gone(w, append(w.Put(with), w.Allocate()...))
}

// leading lists the gateways with routes to them.
func leading(t *testing.T, w *World) string {
	t.Helper()
	var out []string
	for _, name := range w.Facts().Cluster.Gateways.Names() {
		rows, err := w.Rows(topology.GatewayUnit(name))
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(rows)
		if !strings.Contains(text, "Logical_Router GR_"+name) {
			t.Errorf("%s lacks its router: %s", name, text)
		}
		if strings.Contains(text, name+"/0.0.0.0/0 ip_prefix") && strings.Contains(text, " "+name+"/0.0.0.0/0 ") {
			out = append(out, name)
		}
	}
	return strings.Join(out, " ")
}

func TestDeadGateways(t *testing.T) {
	w := NewWorld()
	w.Put(withGateways(t, cluster(t, 1, 2, 3), 1, 2, 3))
	for _, tt := range []struct {
		what string
		put  any
		want string
	}{
		{"nothing is known", facts.Silent{}, "gw1 gw2 gw3"},
		{"one is silent", facts.Silent{"gw2": true}, "gw1 gw3"},
		{"one is not registered", facts.Registered{"chassis1": true, "chassis2": true}, "gw1"},
		{"none is left", facts.Silent{"gw1": true, "gw2": true}, "gw1 gw2 gw3"},
		{"that one answers", facts.Silent{"gw2": true}, "gw1"},
		{"all are registered", facts.Registered{"chassis1": true, "chassis2": true, "chassis3": true}, "gw1 gw3"},
		{"all answer", facts.Silent{}, "gw1 gw2 gw3"},
		{"a Southbound database made anew", facts.Registered{}, "gw1 gw2 gw3"},
		{"it fills again", facts.Registered{"chassis1": true, "chassis2": false, "chassis3": false}, "gw1 gw2 gw3"},
		{"one stays away", facts.Registered{"chassis1": true, "chassis2": false}, "gw1 gw2"},
		// H8, H11: hosts unable to forward packets.
		{"all are registered again", facts.Registered{"chassis1": true, "chassis2": true, "chassis3": true}, "gw1 gw2 gw3"},
		{"one declares another mode down", facts.Declared{"chassis1": "local"}, "gw1 gw2 gw3"},
		{"one declares itself down", facts.Declared{"chassis1": "local/physical"}, "gw2 gw3"},
		{"all declare themselves down", facts.Declared{"chassis1": "physical", "chassis2": "physical", "chassis3": "physical"}, "gw1 gw2 gw3"},
		{"of these one is silent", facts.Silent{"gw2": true}, "gw1 gw3"},
		{"one can forward", facts.Declared{"chassis1": "physical", "chassis2": "physical"}, "gw3"},
		{"all can forward", facts.Declared{}, "gw1 gw3"},
		{"and answer", facts.Silent{}, "gw1 gw2 gw3"},
	} {
		w.Put(tt.put)
		if got := leading(t, w); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
}

// Pods of other hosts leave by other gateways while theirs is down. Those of its own host do so only if the host says that it
// cannot forward: they cannot send anything else either, or their ovn-controller does not run, which would end their sessions
// at its return.
func TestPodsPinnedToADeadGateway(t *testing.T) {
	w := NewWorld()
	w.Put(withGateways(t, cluster(t, 1, 2, 3), 1, 2, 3))
	const own, others = "gw2/from/10.0.2.8/29 ", "gw2/from/10.0.3.8/32 "
	for _, tt := range []struct {
		what string
		put  any
		want string
	}{
		{"it is alive", facts.Silent{}, own + others},
		{"it is silent", facts.Silent{"gw2": true}, own},
		{"it declares itself down, too", facts.Declared{"chassis2": "physical"}, ""},
		{"it can forward", facts.Declared{}, own},
		{"it answers", facts.Silent{}, own + others},
		{"it is not registered", facts.Registered{"chassis1": true, "chassis3": true}, own},
		{"it is registered", facts.Registered{"chassis1": true, "chassis2": true, "chassis3": true}, own + others},
		{"it declares itself down", facts.Declared{"chassis2": "physical"}, ""},
	} {
		w.Put(tt.put)
		rows, err := w.Rows(topology.GatewayUnit("gw2"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, pin := range []string{own, others} {
			if strings.Contains(fmt.Sprint(rows), pin) {
				got += pin
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
}

// If no gateway that is up has a route outside in a family, the others with such routes keep them.
func TestDeadGatewaysOfAFamily(t *testing.T) {
	c, err := topology.New(names.ClusterRouter, prefixes("10.0.0.0/16", "fd01::/48"), prefixes("100.64.0.0/16", "fd98::/64"))
	if err != nil {
		t.Fatal(err)
	}
	for name, ips := range map[string][]netip.Prefix{
		"both1": prefixes("198.18.0.11/24", "fd00:18::11/64"), "both2": prefixes("198.18.0.12/24", "fd00:18::12/64"), "ipv4": prefixes("198.18.0.13/24"),
	} {
		c, err = c.WithGateway(name, topology.Gateway{Mode: topology.Physical, Interface: "eth1", Chassis: "at-" + name, MAC: "02:00:00:00:00:" + ips[0].Addr().String()[len("198.18.0."):], IPs: ips})
		if err != nil {
			t.Fatal(err)
		}
	}
	w := NewWorld()
	w.Put(c)
	for _, tt := range []struct {
		what string
		put  any
		want string
	}{
		{"all answer", facts.Silent{}, "both1:4 both1:6 both2:4 both2:6 ipv4:4"},
		{"one is silent", facts.Silent{"both1": true}, "both2:4 both2:6 ipv4:4"},
		{"no other has IPv6", facts.Silent{"both1": true, "both2": true}, "both1:6 both2:6 ipv4:4"},
		{"one of them answers, and is declared down", facts.Declared{"at-both1": "physical"}, "both1:6 both2:6 ipv4:4"},
		{"again", facts.Silent{"both2": true}, "both1:6 ipv4:4"},
		{"all are silent", facts.Silent{"both1": true, "both2": true, "ipv4": true}, "both1:4 both1:6 both2:4 both2:6 ipv4:4"},
	} {
		w.Put(tt.put)
		var got []string
		for _, name := range w.Facts().Cluster.Gateways.Names() {
			rows, err := w.Rows(topology.GatewayUnit(name))
			if err != nil {
				t.Fatal(err)
			}
			for family, all := range map[string]string{"4": "0.0.0.0/0", "6": "::/0"} {
				if strings.Contains(fmt.Sprint(rows), " "+name+"/"+all+" ") {
					got = append(got, name+":"+family)
				}
			}
		}
		slices.Sort(got)
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
}
