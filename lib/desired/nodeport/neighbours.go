package nodeport

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
)

// Nodes are the addresses at which nodes reach each other, by name.
type Nodes map[string][]netip.Addr

// Put records the InternalIPs of a *corev1.Node.
func (all Nodes) Put(node any) {
	n := node.(*corev1.Node)
	all[n.Name] = nil
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && a.Type == corev1.NodeInternalIP {
			all[n.Name] = append(all[n.Name], ip.Unmap().WithZone(""))
		}
	}
}

// Remove forgets a *corev1.Node.
func (all Nodes) Remove(node any) { delete(all, node.(*corev1.Node).Name) }

// neighbours returns NodePorts of other nodes, one of each node with endpoints. The
// host's own connections to a NodePort go there if the external traffic policy is
// Local and no endpoint is here, because the client keeps its address there, as the
// policy demands. Through OVN it could not: the endpoint's answers to that address
// would leave by its own node. The list is empty in all other cases, and if the
// address of one of these nodes is not known. Of many nodes it has maxNeighbours.
func (h Host) neighbours(f service.Frontend) (out service.Endpoints) {
	if f.Kind != service.NodePort || !f.ExternalLocal || len(f.Local(h.Node)) > 0 {
		return nil
	}
	for _, e := range f.Backends().Cluster() {
		i := slices.IndexFunc(h.Nodes[e.Node], func(a netip.Addr) bool { return f.OfFamily(a) && h.serves(a) })
		if i < 0 {
			return nil
		}
		next := service.Endpoint{Host: &service.Host{Addr: h.Nodes[e.Node][i], Node: e.Node}, Port: f.Number}
		if !slices.ContainsFunc(out, func(o service.Endpoint) bool { return o.Node == next.Node }) {
			out = append(out, next)
		}
	}
	return h.nearest(out)
}

// maxNeighbours bounds the neighbours for one NodePort: each is a chain. There may be a thousand nodes with endpoints.
const maxNeighbours = 10

// nearest returns the neighbours after this host in the order of names: hosts use different ones.
func (h Host) nearest(all service.Endpoints) service.Endpoints {
	if len(all) <= maxNeighbours {
		return all
	}
	slices.SortFunc(all, func(a, b service.Endpoint) int { return strings.Compare(a.Node, b.Node) })
	at, _ := slices.BinarySearchFunc(all, h.Node, func(e service.Endpoint, node string) int { return strings.Compare(e.Node, node) })
	return slices.Concat(all[at:], all[:at])[:maxNeighbours]
}

// mayHaveNeighbours reports whether neighbours of a Service may be among some nodes.
func mayHaveNeighbours(r *service.Resolved, nodes map[string]bool) bool {
	return r.ExternalLocal && slices.ContainsFunc(r.Endpoints, func(all service.Endpoints) bool {
		return slices.ContainsFunc(all, func(e service.Endpoint) bool { return nodes[e.Node] })
	})
}

// serves reports whether NodePorts are served at an address.
func (h Host) serves(a netip.Addr) bool {
	return len(h.NodePortAddresses) == 0 || slices.ContainsFunc(h.NodePortAddresses, func(p netip.Prefix) bool { return p.Contains(a) })
}
