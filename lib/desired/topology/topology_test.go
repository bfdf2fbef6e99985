package topology

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

func prefixes(s string) (out []netip.Prefix) {
	for p := range strings.SplitSeq(s, ",") {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func dual(t *testing.T) Cluster {
	t.Helper()
	c, err := New(names.ClusterRouter, prefixes("192.168.0.0/16,fd01::/48"), prefixes("100.64.0.0/16,fd98::/64"))
	if err == nil {
		c, err = c.WithNode("Kube-Master", prefixes("192.168.1.0/24,fd01:0:0:1::/64"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func text(rows []nb.Row) string {
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(r.String() + "\n")
	}
	return b.String()
}

func TestRows(t *testing.T) {
	c := dual(t)
	want := `Logical_Router ovn_cluster_router external_ids={k8s-cluster-router="yes", ovn-k8s-cluster-subnets="192.168.0.0/16,fd01::/48", ovn-k8s-join-subnets="100.64.0.0/16,fd98::/64", ovn-k8s-node-kube-master="192.168.1.0/24,fd01:0:0:1::/64", ovn-k8s-router="ovn_cluster_router", ovn-k8s-subnet-lengths="ipv4/24 ipv6/64"} name="ovn_cluster_router"
Logical_Switch join name="join"
Load_Balancer_Group ovn-k8s-cluster name="ovn-k8s-cluster"
Load_Balancer_Group ovn-k8s-switches name="ovn-k8s-switches"
Load_Balancer_Group ovn-k8s-gateways name="ovn-k8s-gateways"
Port_Group ovn_k8s_entries name="ovn_k8s_entries"
Logical_Router_Port rtoj-ovn_cluster_router external_ids={connect_to_join="yes"} mac="00:00:00:11:F3:5F" name="rtoj-ovn_cluster_router" networks=["100.64.0.1/16" "fd98::1/64"] in=Logical_Router/ovn_cluster_router.ports
Logical_Switch_Port jtor-ovn_cluster_router addresses=["00:00:00:11:F3:5F"] name="jtor-ovn_cluster_router" options={router-port="rtoj-ovn_cluster_router"} type="router" in=Logical_Switch/join.ports
Logical_Switch kube-master external_ids={gateway_ip="192.168.1.1/24,fd01:0:0:1::1/64"} name="kube-master" other_config={subnet="192.168.1.0/24"} load_balancer_group=Load_Balancer_Group/ovn-k8s-cluster load_balancer_group=Load_Balancer_Group/ovn-k8s-switches
Logical_Router_Port rtos-kube-master mac="00:00:00:AA:B4:49" name="rtos-kube-master" networks=["192.168.1.1/24" "fd01:0:0:1::1/64"] in=Logical_Router/ovn_cluster_router.ports
Logical_Switch_Port stor-kube-master addresses=["00:00:00:AA:B4:49"] name="stor-kube-master" options={router-port="rtos-kube-master"} type="router" in=Logical_Switch/kube-master.ports in=Port_Group/ovn_k8s_entries.ports
Logical_Switch_Port k8s-kube-master addresses=["0a:58:c0:a8:01:02 192.168.1.2 fd01:0:0:1::2"] name="k8s-kube-master" in=Logical_Switch/kube-master.ports
`
	if diff := cmp.Diff(want, text(append(c.Rows(), c.NodeRows("Kube-Master")...))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRegistryRoundTrip(t *testing.T) {
	c := dual(t).WithChassis("Kube-Master", "chassis-1")
	c.NumberedBy, c.NextSubnets = names.Ovnkube, []netip.Prefix{netip.MustParsePrefix("10.0.9.0/24")}
	c.Nodes[strings.Repeat("a.", 120)+"a"] = prefixes("192.168.9.0/24,fd01:0:0:9::/64") // recorded by an earlier release
	back, err := ReadRegistry(c.Registry())
	if err != nil || !back.Equal(c) {
		t.Errorf("%+v, %v; want %+v", back, err, c)
	}
	router := c.Rows()[0].Model.(*nbdb.LogicalRouter)
	if back, err := FromRouter(router, nil, nil); err != nil || !back.Equal(c) {
		t.Errorf("%+v, %v; want %+v", back, err, c)
	}
	bad := c.Registry()
	bad["ovn-k8s-node-other"] = "192.168.1.128/25,fd01:0:0:2::/64"
	if back, err := ReadRegistry(bad); err == nil || !strings.Contains(err.Error(), "overlaps") || len(back.Nodes) != 2 {
		t.Errorf("%+v, %v", back.Nodes, err)
	}
}

func TestBadInputIsNamed(t *testing.T) {
	c := dual(t)
	for _, tt := range []struct {
		node, subnets string
		want          []string
	}{
		{"node2", "192.168.1.128/25,fd01:0:0:2::/64", []string{"subnet 192.168.1.128/25 of node node2 overlaps subnet 192.168.1.0/24 of node kube-master"}},
		{"node2", "10.0.0.0/24,fd01:0:0:2::/64", []string{"outside the cluster subnets"}},
		{"node2", "192.168.2.0/24", []string{"give one in each of 192.168.0.0/16,fd01::/48"}},
		{"node_2", "192.168.2.0/24,fd01:0:0:2::/64", []string{`node name "node_2" is not a DNS name`}},
		{"join", "192.168.2.0/24,fd01:0:0:2::/64", []string{"name of the join switch"}},
		{"a b", "10.0.0.0/24", []string{"DNS name", "outside"}},
		{strings.Repeat("a.", 116) + "a", "192.168.2.0/24,fd01:0:0:2::/64", []string{"has 233 characters, and the keys of ConfigMap ovn-k8s-topology have room for 232"}},
	} {
		_, err := c.WithNode(tt.node, prefixes(tt.subnets))
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: error %v, want %q", tt.node, tt.subnets, err, want)
			}
		}
	}
	if _, err := New("r", prefixes("100.64.0.0/10"), prefixes("100.64.0.0/16")); err == nil || !strings.Contains(err.Error(), "overlaps join subnet") {
		t.Errorf("overlap with the join subnet: %v", err)
	}
	if _, err := New("r", prefixes("fd00::/48"), prefixes("100.64.0.0/16")); err == nil || !strings.Contains(err.Error(), "lack one for fd00::/48") {
		t.Errorf("no join subnet of the family: %v", err)
	}
	if _, err := c.Resize(prefixes("192.168.2.0/24,fd01::/48"), prefixes("100.64.0.0/16,fd98::/64")); err == nil || !strings.Contains(err.Error(), "of node kube-master are outside") {
		t.Errorf("too small a cluster: %v", err)
	}
}

func TestChangesAreCopies(t *testing.T) {
	c := dual(t)
	moved, err := c.WithNode("kube-master", prefixes("192.168.9.0/24,fd01:0:0:9::/64"))
	if err != nil || c.Nodes["kube-master"][0].String() != "192.168.1.0/24" || moved.Nodes["kube-master"][0].String() != "192.168.9.0/24" {
		t.Errorf("%v %v %v", c.Nodes, moved.Nodes, err)
	}
	if without, had := c.WithoutNode("KUBE-MASTER"); !had || len(without.Nodes) != 0 || len(c.Nodes) != 1 {
		t.Errorf("%v %v", without.Nodes, had)
	}
	if _, had := c.WithoutNode("nobody"); had {
		t.Error("a node that does not exist was taken away")
	}
}

// Gateway.equal compares all fields.
func TestEveryFieldOfAGatewayIsCompared(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Gateway]()) {
		var g Gateway
		v := reflect.ValueOf(&g).Elem().FieldByIndex(f.Index)
		switch v.Interface().(type) {
		case netip.Addr:
			v.Set(reflect.ValueOf(netip.IPv6Loopback()))
		case []netip.Addr, []netip.Prefix:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case string:
			v.SetString("x")
		case int:
			v.SetInt(1)
		case bool:
			v.SetBool(true)
		default:
			t.Fatalf("no value for %s", f.Name)
		}
		if g.Equal(Gateway{}) || !g.Equal(g) {
			t.Errorf("%s is not compared", f.Name)
		}
	}
}
