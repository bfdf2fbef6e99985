// Package objects has the objects of the API server with effects on a node: Services with their endpoints, pods of the node
// with hostPorts, addresses of nodes, and ServiceCIDRs.
package objects

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/ports"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// An Input is a kind of objects with effects on the parts of a node.
type Input struct {
	object runtime.Object // an empty one
	record func(kube.Event) (parts []string)
	// awaited: until all objects of the kind are known, flows and rules of Services and hostPorts stay.
	awaited bool
	// node, unless empty, restricts the objects to those of a node. Without permission to read them there are none.
	node string
	// refused, unless nil, records that there is no permission to read the objects. The others do not wait for them then.
	refused func() (parts []string)
}

// Objects are the objects as they are known now. One goroutine calls the methods.
type Objects struct {
	// Node is the node of the followed pods.
	Node string
	// Nodes are the addresses of nodes, and Zone the zone of Node: "" if there is none.
	Nodes nodeport.Nodes
	Zone  string
	// Reported are status.addresses of Node.
	Reported []corev1.NodeAddress
	// Leaving: the node is about to be deleted, or is gone, and shall get no new connections of load balancers. A host without a
	// Node does not leave.
	Leaving bool
	// Waits is called with the reason why objects cannot be read at present, "" without one; nil: not used.
	Waits func(reason string)

	world    *desired.World
	resolved map[nb.Unit]*service.Resolved // of the world, as of the last Resolve; another pointer after each change
	sorted   []nb.Unit                     // keys of resolved, nil after a change of them
	listed   []*service.Resolved           // in the order of sorted, as of the last call of Services
	replaced []nb.Unit                     // with another pointer since
	touched  map[nb.Unit]bool              // Services changed since the last Resolve
	hosts    ports.Hosts                   // as of the last SetHosts, like subnets
	subnets  []netip.Prefix
	missing  map[string]bool  // names of awaited kinds not known yet
	lost     map[string]error // why kinds cannot be read at present
	awaited  atomic.Pointer[string]
	pods     map[pod.Key]hostport.Pod
	control  map[string]bool               // Nodes of the control plane
	located  bool                          // whether Nodes are known
	joined   bool                          // whether Node has been among them
	cidrs    map[string]servicecidr.Ranges // nil: not known yet
	parts    Parts
}

// Parts are the parts of a node with effects of objects.
type Parts struct {
	Services []string // with effects of Services, hostPorts, addresses of nodes and ServiceCIDRs
	Routes   string   // those to ServiceCIDRs
	// Unresolved has no work of its own: it makes the loop call Resolve.
	Unresolved string
	// Changed returns those of Services that depend on the change of a Service; nil is no Service.
	Changed func(was, now *service.Resolved) []string
}

// New returns Objects without any known. externalIPs is whether those of Services are served.
func New(parts Parts, externalIPs bool) *Objects {
	o := &Objects{
		world: desired.NewWorld(), resolved: map[nb.Unit]*service.Resolved{}, touched: map[nb.Unit]bool{}, missing: map[string]bool{}, lost: map[string]error{},
		pods: map[pod.Key]hostport.Pod{}, Nodes: map[string][]netip.Addr{}, control: map[string]bool{}, parts: parts,
	}
	o.world.Put(service.ExternalIPs(externalIPs))
	for _, i := range o.Inputs() {
		if i.awaited {
			o.missing[i.kind().Name] = true
		}
	}
	o.tell()
	return o
}

// Ranges are the subnets of ServiceCIDRs in use; nil: not known yet. Like the watcher, the helper leaves out those of nodes, and
// those that overlap with the cluster's own subnets. It also leaves out those with servers of the settings: without them it
// would never learn better.
func (o *Objects) Ranges(cluster []netip.Prefix, servers []netip.AddrPort) servicecidr.Ranges {
	if o.cidrs == nil || !o.located {
		return nil
	}
	holders := func(yield func(servicecidr.Holder) bool) {
		for name, addrs := range o.Nodes {
			for _, a := range addrs {
				if !yield(servicecidr.Holder{Node: name, Addr: a, Proven: o.control[name]}) {
					return
				}
			}
		}
	}
	var used servicecidr.Ranges
	for _, c := range o.cidrs {
		for _, p := range c {
			// The first address may be that of the Service kubernetes.
			server := func(s netip.AddrPort) bool { return p.Contains(s.Addr()) && s.Addr() != p.Addr().Next() }
			if !slices.ContainsFunc(cluster, p.Overlaps) && !slices.ContainsFunc(servers, server) && !servicecidr.OfNodes(p, holders) {
				used = append(used, p)
			}
		}
	}
	return append(servicecidr.Ranges{}, servicecidr.Join(used)...)
}

// Routed are the subnets to which a host with these routes of the settings, and to these Ranges, routes by its management
// port; nil: not known.
func (o *Objects) Routed(configured, ranges servicecidr.Ranges) servicecidr.Ranges {
	if len(configured) == 0 && (ranges == nil || len(o.cidrs) == 0) {
		return nil
	}
	return append(append(servicecidr.Ranges{}, configured...), ranges...)
}

// Inputs lists the kinds of objects that the helper reads from the API server.
func (o *Objects) Inputs() []Input {
	return []Input{
		{object: &corev1.Service{}, record: o.takeService, awaited: true},
		{object: &discoveryv1.EndpointSlice{}, record: o.takeService, awaited: true},
		{object: &corev1.Pod{}, record: o.takePods, awaited: true, node: o.Node},
		{object: &corev1.Node{}, record: o.takeNodes, awaited: true, refused: o.refuseNodes},
		{object: &networkingv1.ServiceCIDR{}, record: o.takeCIDRs, awaited: true},
	}
}

// Complete reports whether all inputs of flows and rules are known.
func (o *Objects) Complete() bool { return len(o.missing) == 0 }

// Follow records changes of objects until ctx ends. send passes a change to the goroutine of the methods; the change
// returns the parts touched. The node must not change meanwhile.
func (o *Objects) Follow(ctx context.Context, log *logrus.Entry, cluster *kube.Cluster, inputs []Input, send func(func() []string)) {
	var all []kube.Subscription
	for _, i := range inputs {
		s := kube.Subscription{Kind: i.kind(), Node: i.node, Optional: i.node != "", Send: func(ev kube.Event) {
			send(func() []string { return i.record(ev) })
		}}
		s.Lost = func(err error) {
			send(func() []string {
				if i.refused != nil && kube.Unavailable(err) {
					return i.refused()
				}
				o.lost[i.kind().Name] = err
				o.tell()
				return nil
			})
		}
		all = append(all, s)
	}
	cluster.Follow(ctx, log, all...)
}

// List reads all objects once, without following them.
func (o *Objects) List(ctx context.Context, cluster *kube.Cluster) (refused error) {
	for _, i := range o.Inputs() {
		k := i.kind()
		k.Optional = k.Optional || i.node != ""
		all, err := cluster.ListOn(ctx, k, i.node)
		switch {
		case err == nil:
			i.record(all)
		case i.refused != nil && kube.Unavailable(err):
			i.refused()
			refused = err
		default:
			return err
		}
	}
	o.Resolve(nil)
	return refused
}

func (i Input) kind() kube.Kind { return kube.KindOf(i.object) }

// known records that all objects of a kind are known. It reports whether they were awaited.
func (o *Objects) known(k kube.Kind) bool {
	awaited := o.missing[k.Name]
	delete(o.missing, k.Name)
	delete(o.lost, k.Name)
	o.tell()
	return awaited
}

// tell tells which objects are awaited.
func (o *Objects) tell() {
	text := kube.Awaited(o.missing, o.lost)
	o.awaited.Store(&text)
	if len(o.lost) == 0 {
		text = "" // they come now
	}
	if o.Waits != nil {
		o.Waits(text)
	}
}

// Awaited is the function of kube for these objects. It may be called at any time.
func (o *Objects) Awaited() string { return *o.awaited.Load() }

// takeService records changes of Services and of their endpoints, for Resolve, which finds the parts touched.
func (o *Objects) takeService(ev kube.Event) []string {
	var touched []nb.Unit
	first := false
	switch {
	case ev.Replace:
		touched = o.world.Replace(ev.Kind.Object, ev.Objects)
		first = o.known(ev.Kind)
	case ev.Gone:
		touched = o.world.Remove(ev.Object)
	default:
		touched = o.world.Put(ev.Object)
	}
	for _, u := range touched {
		o.touched[u] = true
	}
	switch {
	case first:
		return o.parts.Services
	case len(touched) == 0:
		return nil // a headless Service, for example
	}
	return []string{o.parts.Unresolved}
}

// Resolve finds the endpoints of Services, once for all events recorded before: slices of a large Service may come one
// by one. It returns the parts that depend on their changes. It is the OnDirty of the loop.
func (o *Objects) Resolve([]string) (parts []string) {
	for _, u := range o.world.Allocate() {
		o.touched[u] = true
	}
	for u := range o.touched {
		was := o.resolved[u]
		var now *service.Resolved
		if s, is := o.world.ServiceOn(u, o.Node); is && s.Ours {
			now = &s
		}
		switch {
		case now == nil && was == nil:
			continue
		case now == nil:
			o.sorted = nil
			delete(o.resolved, u)
		case was == nil:
			o.sorted = nil
			o.resolved[u] = now
		default:
			o.replaced = append(o.replaced, u)
			o.resolved[u] = now
		}
		if o.parts.Changed != nil {
			parts = append(parts, o.parts.Changed(was, now)...)
		}
	}
	clear(o.touched)
	return parts
}

// SetHosts records the sorted addresses of hosts: Services do not get ports of every node there. It records the subnets of Node's
// pods, too, none without a management port: Services with too many replies from them are refused. All parts depend on both.
func (o *Objects) SetHosts(addrs ports.Hosts, subnets []netip.Prefix) {
	var touched []nb.Unit
	if !slices.Equal(o.hosts, addrs) {
		o.hosts, touched = addrs, o.world.Put(addrs)
	}
	if !slices.Equal(o.subnets, subnets) {
		o.subnets = subnets
		nodes := map[string][]netip.Prefix{}
		if len(subnets) > 0 {
			nodes[o.Node] = subnets
		}
		touched = append(touched, o.world.Put(topology.Cluster{Nodes: nodes})...)
	}
	for _, u := range touched {
		o.touched[u] = true
	}
	if len(touched) > 0 {
		o.Resolve(nil)
	}
}

// Services lists the Services with load balancing, sorted by name. The result may not be changed.
func (o *Objects) Services() []*service.Resolved {
	switch {
	case o.sorted == nil:
		o.sorted = slices.Sorted(maps.Keys(o.resolved))
		o.listed = make([]*service.Resolved, 0, len(o.sorted))
		for _, u := range o.sorted {
			o.listed = append(o.listed, o.resolved[u])
		}
	case len(o.replaced) > 0:
		o.listed = slices.Clone(o.listed)
		for _, u := range o.replaced {
			i, _ := slices.BinarySearch(o.sorted, u)
			o.listed[i] = o.resolved[u]
		}
	}
	o.replaced = nil
	return o.listed
}

// takePods records the pods of this node with hostPorts. Their addresses come from
// the kubelet, never from annotations that users can write.
func (o *Objects) takePods(ev kube.Event) []string {
	changed := false
	put := func(object any, gone bool) pod.Key {
		p := pod.New(object.(*corev1.Pod))
		now := hostport.Pod{Pod: p, Addrs: p.StatusIPs}
		old, was := o.pods[p.Key]
		switch is := !gone && len(p.HostPorts) > 0 && len(p.StatusIPs) > 0; {
		case is:
			o.pods[p.Key] = now
			changed = changed || !was || !slices.Equal(old.Addrs, now.Addrs) || !slices.Equal(old.HostPorts, now.HostPorts) || old.Created != now.Created
		case was:
			delete(o.pods, p.Key)
			changed = true
		}
		return p.Key
	}
	switch {
	case ev.Replace:
		here := map[pod.Key]bool{}
		for object := range ev.Objects {
			here[put(object, false)] = true
		}
		for k := range o.pods {
			if !here[k] {
				delete(o.pods, k)
				changed = true
			}
		}
		changed = o.known(ev.Kind) || changed
	default:
		put(ev.Object, ev.Gone)
	}
	if !changed {
		return nil
	}
	return o.parts.Services
}

// HostPods lists the pods of this node with hostPorts, sorted by name.
func (o *Objects) HostPods() []hostport.Pod {
	out := make([]hostport.Pod, 0, len(o.pods))
	for _, p := range o.pods {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b hostport.Pod) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// refuseNodes records that Nodes must not be read. Routes wait for them nevertheless. The host's own connections to NodePorts of
// policy Local lose their source address then, those to its own endpoints follow no hints for its zone, pods do not reach its
// ExternalIPs, and Services may have frontends at ports reserved on other nodes' addresses.
func (o *Objects) refuseNodes() []string {
	if o.known(kube.KindOf(&corev1.Node{})) {
		return o.parts.Services
	}
	return nil
}

// takeNodes records the addresses of nodes, and the zone of this one, all its addresses, and whether it leaves.
func (o *Objects) takeNodes(ev kube.Event) []string {
	now, control, zone, reported, leaving := maps.Clone(o.Nodes), maps.Clone(o.control), o.Zone, o.Reported, o.Leaving
	put := func(object any, gone bool) {
		n := object.(*corev1.Node)
		if gone {
			now.Remove(n)
		} else {
			now.Put(n)
		}
		delete(control, n.Name)
		if _, is := n.Labels[names.LabelControlPlane]; is && !gone {
			control[n.Name] = true
		}
		if strings.EqualFold(n.Name, o.Node) {
			o.joined, zone, reported, leaving = true, n.Labels[corev1.LabelTopologyZone], n.Status.Addresses, gone || isLeaving(n)
		}
	}
	if ev.Replace {
		o.known(ev.Kind)
		clear(now)
		clear(control)
		zone, reported, leaving = "", nil, o.joined
		for n := range ev.Objects {
			put(n, false)
		}
	} else {
		put(ev.Object, ev.Gone)
	}
	moved := ev.Replace && !o.located || !maps.Equal(o.control, control) || !maps.EqualFunc(o.Nodes, now, slices.Equal)
	if !moved && zone == o.Zone && leaving == o.Leaving && slices.Equal(reported, o.Reported) {
		return nil
	}
	o.Nodes, o.control, o.Zone, o.Reported, o.Leaving, o.located = now, control, zone, reported, leaving, o.located || ev.Replace
	if moved {
		return o.routed()
	}
	return o.parts.Services
}

// isLeaving reports whether a Node is being deleted, or the cluster autoscaler is about to do so (KEP-3836).
func isLeaving(n *corev1.Node) bool {
	return n.DeletionTimestamp != nil || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == names.TaintToBeDeleted })
}

// takeCIDRs records the subnets of ServiceCIDRs.
func (o *Objects) takeCIDRs(ev kube.Event) []string {
	now := maps.Clone(o.cidrs)
	switch {
	case ev.Replace:
		o.known(ev.Kind)
		now = map[string]servicecidr.Ranges{}
		for object := range ev.Objects {
			c := object.(*networkingv1.ServiceCIDR)
			now[c.Name] = servicecidr.Of(c)
		}
	case ev.Gone:
		delete(now, ev.Object.(*networkingv1.ServiceCIDR).Name)
	default:
		c := ev.Object.(*networkingv1.ServiceCIDR)
		now[c.Name] = servicecidr.Of(c)
	}
	if o.cidrs != nil && maps.EqualFunc(o.cidrs, now, slices.Equal) {
		return nil
	}
	o.cidrs = now
	return o.routed()
}

// routed are the parts that depend on the routes to ServiceCIDRs.
func (o *Objects) routed() []string { return append([]string{o.parts.Routes}, o.parts.Services...) }
