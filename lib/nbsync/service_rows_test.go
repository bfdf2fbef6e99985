package nbsync_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/test/ovntest"
)

// A ground is a database of a cluster of many nodes with known hosts; some are gateways.
type ground struct {
	*testing.T
	central *ovntest.Central
	sync    *nbsync.Sync
	world   *desired.World
	cluster topology.Cluster
}

// grounds makes one with n nodes, in ten zones.
func grounds(t *testing.T, n int) *ground {
	central, _, sync := open(t)
	central.StopNorthd() // the test is about the rows alone
	c, err := topology.New("ovn_cluster_router", prefixes("10.128.0.0/14"), prefixes("100.64.0.0/16"))
	if err != nil {
		t.Fatal(err)
	}
	g := &ground{t, central, sync, desired.NewWorld(), c}
	for i := range n {
		c, node := g.node(i)
		g.world.Put(c)
		g.world.Put(node)
	}
	for i := range 3 {
		g.cluster, err = g.cluster.WithGateway(fmt.Sprint("gw", i), topology.Gateway{
			Mode: topology.Physical, Interface: "eth1", Chassis: fmt.Sprint("chassis-", i), MAC: fmt.Sprint("02:00:00:00:00:0", i),
			IPs: prefixes(fmt.Sprintf("198.51.100.%d/24", 1+i)), Node: fmt.Sprint("n", i),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	all := g.world.Put(g.cluster)
	g.apply(append(all, g.world.Units()...))
	return g
}

// node adds a node to the topology and returns the topology and the Node.
func (g *ground) node(i int) (topology.Cluster, *corev1.Node) {
	name := fmt.Sprint("n", i)
	c, err := g.cluster.WithNode(name, prefixes(fmt.Sprintf("10.128.%d.0/24", i)))
	if err != nil {
		g.Fatal(err)
	}
	g.cluster = c.WithChassis(name, fmt.Sprint("chassis-", i))
	return g.cluster, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone(i)}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.%d", i)}}},
	}
}

func zone(node int) string { return fmt.Sprint("z", node%10) }

// put records objects and updates the database for the units touched. It returns the number of transactions, and of
// changed rows of each table.
func (g *ground) put(objs ...any) (transactions int, rows map[string]int) {
	g.Helper()
	before := g.records()
	var touched []nb.Unit
	for _, o := range objs {
		touched = append(touched, g.world.Put(o)...)
	}
	g.apply(touched)
	after := g.records()[len(before):]
	rows = map[string]int{}
	for _, r := range after {
		for table, n := range r.Rows {
			rows[table] += n
		}
	}
	return len(after), rows
}

// apply gives units their rows in the database.
func (g *ground) apply(units []nb.Unit) {
	g.Helper()
	want := map[nb.Unit][]nb.Row{}
	for _, u := range units {
		rows, err := g.world.Rows(u)
		if err != nil {
			g.Fatal(err)
		}
		want[u] = rows
	}
	if _, failed := g.sync.Apply(g.Context(), want); len(failed) > 0 {
		g.Fatal(failed)
	}
}

func (g *ground) records() []ovntest.Record {
	g.Helper()
	all, err := g.central.NBRecords()
	if err != nil {
		g.Fatal(err)
	}
	return slices.DeleteFunc(all, func(r ovntest.Record) bool { return r.Comment == "ovn-northd" })
}

// numbered makes Service i with endpoints on ten nodes (one may be left out), and its slice.
func numbered(i, endpoints int, edit func(*corev1.Service, *discoveryv1.EndpointSlice)) (*corev1.Service, *discoveryv1.EndpointSlice) {
	name, tcp, none, port := fmt.Sprint("s", i), corev1.ProtocolTCP, "", int32(8080)
	ip := fmt.Sprintf("172.16.%d.%d", i/250, 1+i%250)
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: ip, ClusterIPs: []string{ip},
			Ports: []corev1.ServicePort{{Protocol: tcp, Port: 80, NodePort: int32(30000 + i)}},
		},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &none, Protocol: &tcp, Port: &port}},
	}
	for e := range endpoints {
		node := fmt.Sprint("n", e)
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.128.%d.%d", e, 3+i%200)}, NodeName: &node})
	}
	if edit != nil {
		edit(s, slice)
	}
	return s, slice
}

// Cost of one more endpoint, Service or node for each kind of Service, in a database with 1000 Services of 10
// endpoints and 100 nodes.
func TestRowsOfServicesInADatabase(t *testing.T) {
	const services, nodes = 1000, 100
	g := grounds(t, nodes)
	var all []any
	for i := range services {
		s, slice := numbered(i, 10, nil)
		all = append(all, s, slice)
	}
	_, rows := g.put(all...)
	if n := rows[nbdb.LoadBalancerTable]; n > 2*services {
		t.Errorf("%d load balancers for %d Services", n, services)
	}
	t.Logf("%d Services of 10 endpoints on %d nodes: %v", services, nodes, rows)
	local := corev1.ServiceInternalTrafficPolicyLocal
	for i, tt := range []struct {
		name           string
		balancers, one int // rows: of load balancers, and of anything when one endpoint comes
		edit           func(*corev1.Service, *discoveryv1.EndpointSlice)
	}{
		{"NodePort", 2, 2, nil},
		{"ClusterIP", 1, 1, func(s *corev1.Service, _ *discoveryv1.EndpointSlice) {
			s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeClusterIP, 0
		}},
		// L3: as many as without affinity, for any number of gateways.
		{"affinity", 2, 2, func(s *corev1.Service, _ *discoveryv1.EndpointSlice) {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		}},
		// Its endpoint's host has one more variable, and a policy routes replies back there.
		{"external policy Local", 3, 5, func(s *corev1.Service, _ *discoveryv1.EndpointSlice) {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}},
		{"internal policy Local", 2, 2, func(s *corev1.Service, _ *discoveryv1.EndpointSlice) {
			s.Spec.InternalTrafficPolicy = &local
		}},
		// One for each zone with endpoints, and one for all other nodes.
		{"hints", 7, 3, func(s *corev1.Service, slice *discoveryv1.EndpointSlice) {
			for e := range slice.Endpoints {
				slice.Endpoints[e].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone(e % 5)}}}
			}
		}},
		{"internal policy Local and affinity", 2, 2, func(s *corev1.Service, _ *discoveryv1.EndpointSlice) {
			s.Spec.SessionAffinity, s.Spec.InternalTrafficPolicy = corev1.ServiceAffinityClientIP, &local
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, slice := numbered(services+i, 9, tt.edit)
			_, rows := g.put(s, slice)
			made := rows[nbdb.LoadBalancerTable]
			_, slice = numbered(services+i, 10, tt.edit)
			transactions, rows := g.put(slice)
			sum := 0
			for _, n := range rows {
				sum += n
			}
			t.Logf("%d load balancers; one endpoint: %v", made, rows)
			if made > tt.balancers || transactions != 1 || sum > tt.one {
				t.Errorf("want at most %d load balancers, and for one endpoint 1 transaction (took %d) with %d rows", tt.balancers, transactions, tt.one)
			}
		})
	}
	c, node := g.node(nodes)
	transactions, rows := g.put(c, node)
	t.Logf("one node: %d transactions, %v", transactions, rows)
	if transactions != 1 || rows[nbdb.LoadBalancerTable] > 0 || rows[nbdb.LogicalSwitchTable] > 1 {
		t.Errorf("a node changes %v in %d transactions", rows, transactions)
	}
}
