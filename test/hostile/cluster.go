package hostile

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// Tenant is the namespace of the hostile author.
const Tenant = "tenant"

// NewCluster returns a cluster of nodes, all of them gateways, and pods: half of them in
// the tenant's namespace, the others in namespaces of 100 pods and a Service, one pod in
// ten with a label of its own.
func NewCluster(nodes, pods int) (*Cluster, error) {
	c, err := network(nodes)
	if err != nil {
		return nil, err
	}
	w := desired.NewWorld()
	w.Put(c)
	w.Put(servicecidr.Ranges{netip.MustParsePrefix("172.30.0.0/16"), netip.MustParsePrefix("fd02::/108")})
	var all []any
	for i := range nodes {
		all = append(all, Node(i))
	}
	w.Replace(&corev1.Node{}, slices.Values(all))
	w.Put(tenant())
	for i := range pods / 2 {
		w.Put(Pod(Tenant, fmt.Sprint("victim-", i), i, nodes))
	}
	spaces := (pods/2 + 99) / 100
	for i := range spaces {
		name := fmt.Sprint("namespace-", i)
		w.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name, "team": fmt.Sprint(i % 10)}}})
		h := serviceShape{ports: 2, slices: 1, endpoints: 10, slicePorts: 2, externals: i % 2, externalLocal: i%3 == 0, nodePorts: i%2 == 0}
		svc := h.draft(1000 + i)
		svc.Namespace, svc.CreationTimestamp = name, metav1.Unix(1, 0)
		sl := h.slice(svc, 0, 0)
		sl.Namespace = name
		w.Put(svc)
		w.Put(sl)
	}
	for i := range pods / 2 {
		w.Put(Pod(fmt.Sprint("namespace-", i/100), fmt.Sprint("pod-", i), i, nodes))
	}
	w.Put(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "namespace-0", Name: "closed"}}) // the first brings ACLs to all nodes
	w.Allocate()
	out := &Cluster{World: w, rows: map[nb.Unit]map[string]row{}}
	rows := map[nb.Unit][]nb.Row{}
	for _, u := range w.Units() {
		rows[u], _ = w.Rows(u)
	}
	out.account(rows)
	return out, nil
}

// network returns a topology with a gateway on each node.
func network(nodes int) (topology.Cluster, error) {
	c, err := topology.New(names.ClusterRouter, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/48")},
		[]netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")})
	if err != nil {
		return c, err
	}
	c.Nodes, c.Chassis, c.Gateways = map[string][]netip.Prefix{}, map[string]string{}, map[string]topology.Gateway{}
	for i := range nodes {
		name, high, low := NodeName(i), byte(i/250), byte(i%250)
		c.Nodes[name] = []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, high, low, 0}), 24), netip.MustParsePrefix(fmt.Sprintf("fd00:0:0:%x::/64", i+1)),
		}
		c.Chassis[name] = fmt.Sprint("chassis-", i)
		c.Gateways[name] = topology.Gateway{
			Mode: topology.Physical, Interface: "eth1", Chassis: c.Chassis[name], MAC: fmt.Sprintf("0a:00:00:00:%02x:%02x", high, low), Node: name, First: i == 0,
			IPs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, high, 2 + low}), 16)}, NextHops: []netip.Addr{netip.MustParseAddr("192.168.255.254")},
			Join: []netip.Addr{netip.AddrFrom4([4]byte{100, 64, byte((i + 2) / 256), byte(i + 2)}), netip.MustParseAddr(fmt.Sprintf("fd98::%x", i+2))},
		}
	}
	return c, nil
}

// tenant returns the namespace of the hostile author as NewCluster creates it.
func tenant() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Tenant, Labels: map[string]string{corev1.LabelMetadataName: Tenant, "team": "0"}}}
}

// NodeName returns the name of node i.
func NodeName(i int) string { return fmt.Sprint("node-", i) }

// Node returns the unmodified node i.
func Node(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName(i), Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3)}}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.100.%d.%d", i/250, 1+i%250)}}
	return n
}

// Pod returns an ordinary pod.
func Pod(namespace, name string, i, nodes int) *corev1.Pod {
	labels := map[string]string{"app": fmt.Sprint("app-", i%100), "version": "v1", "tier": fmt.Sprint("tier-", i%4)}
	if i%10 == 0 {
		labels["statefulset.kubernetes.io/pod-name"] = name
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprint("uid-", namespace, "-", name)), Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: NodeName(i % nodes),
			Containers: []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{
				{Name: "http", ContainerPort: int32(8080 + i%3), Protocol: corev1.ProtocolTCP}, {Name: "metrics", ContainerPort: 9090, Protocol: corev1.ProtocolTCP},
			}}},
		},
	}
}
