package facts

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
)

// An Index derives the facts from their latest inputs. A Change without Now is none.
type Index struct {
	now     *Facts
	reports reports
}

// NewIndex returns an index without inputs.
func NewIndex() *Index {
	return &Index{&Facts{}, reports{map[string]host{}, map[netip.Addr][]host{}}}
}

// Now are the latest facts.
func (x *Index) Now() *Facts { return x.now }

// step makes f the latest facts.
func (x *Index) step(f *Facts, c Change) Change {
	c.Was, c.Now = x.now, f
	x.now = f
	return c
}

// PutCluster replaces the topology.
func (x *Index) PutCluster(t topology.Cluster) Change {
	f := *x.now
	if f.Cluster.SamePlaces(t) {
		f.Cluster = t // all other facts are the same
		return x.step(&f, Change{Topology: true})
	}
	f.Cluster, f.Chassis = t, allChassis(t)
	f.ChassisOf, f.Switches, f.management = chassisByNode(f.Chassis), t.NodeNames(), managementAddresses(t)
	f.Outages = f.outages()
	c := x.reserve(&f)
	f.Ranges = f.ranges()
	c.Topology, c.Surroundings, c.Gateways = true, true, true
	return x.step(&f, c)
}

// PutNodes records nodes, and removes others.
func (x *Index) PutNodes(nodes []*corev1.Node, gone []types.NamespacedName) Change {
	all, zones := copied[bool]{of: x.now.Nodes}, copied[string]{of: x.now.Zones}
	var affected []string
	put := func(n *corev1.Node, exists bool) {
		zone := n.Labels[corev1.LabelTopologyZone]
		all.set(n.Name, true, exists)
		zones.set(n.Name, zone, zone != "")
		if moved := x.reports.putNode(n); len(moved) > 0 {
			affected = append(append(affected, moved...), x.routers(names.NodeSwitch(n.Name))...)
		}
	}
	for _, n := range nodes {
		put(n, true)
	}
	for _, name := range gone {
		put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name.Name}}, false)
	}
	if !all.own && !zones.own && len(affected) == 0 {
		return Change{}
	}
	f := *x.now
	f.Nodes, f.Zones = all.of, zones.of
	slices.Sort(affected)
	c := x.decideAddresses(&f, slices.Compact(affected))
	if !maps.Equal(x.now.control, f.control) { // where gateways there send are routers
		again := x.reserve(&f)
		again.Decided, again.Moved = append(c.Decided, again.Decided...), append(c.Moved, again.Moved...)
		again.Surroundings = again.Surroundings || c.Surroundings
		c = again
	}
	c.Nodes, c.Surroundings = all.own, c.Surroundings || zones.own
	return x.step(&f, c)
}

// routers are the switches of the hosts that report the next hops of a node's gateways: its age counts there.
func (x *Index) routers(sw string) (out []string) {
	for _, id := range x.now.ChassisOf[sw] {
		for _, g := range x.now.Chassis[id].Gateways {
			for _, hop := range x.now.Cluster.Gateways[g].Reserves() {
				for _, h := range x.reports.of[hop] {
					out = append(out, names.NodeSwitch(h.name))
				}
			}
		}
	}
	return out
}

// A copied map is copied before its first change.
type copied[V comparable] struct {
	of  map[string]V
	own bool
}

// set sets the value of a key, or removes it.
func (c *copied[V]) set(key string, value V, has bool) {
	if was, had := c.of[key]; had == has && (was == value || !has) {
		return
	}
	if !c.own {
		c.of, c.own = cloned(c.of), true
	}
	if c.of[key] = value; !has {
		delete(c.of, key)
	}
}

// cloned returns a copy of a map, never nil.
func cloned[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}

// PutNamespace identifies the Kubernetes cluster by the UID of its namespace kube-system.
func (x *Index) PutNamespace(n *corev1.Namespace) Change {
	if n.Name != metav1.NamespaceSystem || x.now.UID == string(n.UID) {
		return Change{}
	}
	f := *x.now
	f.UID = string(n.UID)
	return x.step(&f, Change{})
}

// PutSilent records the gateways on unhealthy hosts.
func (x *Index) PutSilent(s Silent) Change {
	if maps.Equal(x.now.Silent, s) {
		return Change{}
	}
	f := *x.now
	f.Silent = s
	return x.putGateways(&f)
}

// PutRegistered records the hosts in the Southbound database.
func (x *Index) PutRegistered(r Registered) Change {
	if maps.Equal(x.now.Registered, r) && (x.now.Registered == nil) == (r == nil) {
		return Change{}
	}
	f := *x.now
	f.Registered = r
	return x.putGateways(&f)
}

// PutDeclared records the gateways that hosts declare down.
func (x *Index) PutDeclared(d Declared) Change {
	if maps.Equal(x.now.Declared, d) {
		return Change{}
	}
	f := *x.now
	f.Declared = d
	return x.putGateways(&f)
}

func (x *Index) putGateways(f *Facts) Change {
	f.Outages = f.outages()
	return x.step(f, Change{Gateways: true})
}

// PutProtected records the addresses of the control plane.
func (x *Index) PutProtected(p Protected) Change {
	f := *x.now
	f.reserved.protected = p
	return x.putReserved(&f)
}

// PutTunnels records the tunnel addresses of hosts.
func (x *Index) PutTunnels(t Tunnels) Change {
	was := x.now.reserved.tunnels
	if maps.EqualFunc(was, t, slices.Equal) && (was == nil) == (t == nil) {
		return Change{}
	}
	f := *x.now
	f.reserved.tunnels = t
	return x.putReserved(&f)
}

// PutAPIServer records the addresses of the API server's endpoints.
func (x *Index) PutAPIServer(addrs []netip.Addr) Change {
	slices.SortFunc(addrs, netip.Addr.Compare)
	if slices.Equal(x.now.reserved.apiServer, addrs) {
		return Change{}
	}
	f := *x.now
	f.reserved.apiServer = addrs
	return x.putReserved(&f)
}

func (x *Index) putReserved(f *Facts) Change {
	return x.step(f, x.reserve(f))
}

// PutRanges records the subnets of Services in the settings.
func (x *Index) PutRanges(r servicecidr.Ranges) Change {
	f := *x.now
	f.Configured = r
	return x.putRanges(&f)
}

// PutServiceCIDR records a ServiceCIDR.
func (x *Index) PutServiceCIDR(o *networkingv1.ServiceCIDR) Change {
	return x.putCIDRs(o.Name, servicecidr.Of(o))
}

// RemoveServiceCIDR forgets a ServiceCIDR.
func (x *Index) RemoveServiceCIDR(name string) Change { return x.putCIDRs(name, nil) }

func (x *Index) putCIDRs(name string, now servicecidr.Ranges) Change {
	if slices.Equal(x.now.CIDRs[name], now) {
		return Change{}
	}
	f := *x.now
	f.CIDRs = cloned(f.CIDRs)
	if f.CIDRs[name] = now; len(now) == 0 {
		delete(f.CIDRs, name)
	}
	return x.putRanges(&f)
}

func (x *Index) putRanges(f *Facts) Change {
	f.Ranges = f.ranges()
	return x.step(f, Change{Surroundings: true})
}

// Refusal says why a node does not have all addresses that it reports, "" if it does.
func (x *Index) Refusal(sw string) string { return x.reports.refusal(x.now, sw) }

// Reported are the switches of the nodes with addresses in Kubernetes, also with those refused.
func (x *Index) Reported() []string {
	out := make([]string, 0, len(x.reports.hosts))
	for sw := range x.reports.hosts {
		out = append(out, sw)
	}
	return out
}
