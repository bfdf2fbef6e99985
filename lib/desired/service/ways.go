package service

import (
	"fmt"
	"net/netip"
	"strings"
)

// A Way is one way into a Service, for people.
type Way struct {
	Name     string     // as Kubernetes calls it: "clusterIP 172.16.1.10:80/TCP"
	Addr     netip.Addr // the zero Addr: every node's
	Port     int        // the index in Resolved.Ports
	Internal bool       // a cluster address
	Local    bool       // only endpoints of the node where it is used, from outside
	// Balancers are the load balancers that have it.
	Balancers []string
}

// Ways lists the ways into r that it has, in a fixed order.
func (r *Resolved) Ways() []Way {
	var out []Way
	for i, p := range r.Ports {
		name := r.balancerName(p.Protocol)
		for _, a := range r.ClusterIPs {
			w := Way{Name: "clusterIP", Addr: a, Port: i, Internal: true, Local: r.InternalLocal, Balancers: []string{name}}
			if r.byNode(r.Endpoints[i].Of(a)) {
				w.Balancers = []string{name + nodeSuffix(a)}
			}
			out = r.appendWay(out, w, p)
		}
		for _, a := range r.external() {
			w := Way{Name: "external IP", Addr: a, Port: i, Local: r.ExternalLocal, Balancers: []string{name}}
			if r.ExternalLocal {
				w.Balancers = append(w.Balancers, name+localSuffix(a))
			}
			out = r.appendWay(out, w, p)
		}
		if p.NodePort == 0 {
			continue
		}
		w := Way{Name: "nodePort", Port: i, Local: r.ExternalLocal}
		w.Balancers = r.nodePortBalancers(name)
		out = r.appendWay(out, w, p)
	}
	return out
}

// nodePortBalancers are the load balancers that have the NodePorts of a protocol.
func (r *Resolved) nodePortBalancers(name string) (out []string) {
	if r.Affinity > 0 {
		if out = append(out, name+nodesSuffix); r.ExternalLocal {
			out = append(out, name+localsSuffix)
		}
		return out
	}
	for f, any := range families() {
		if !r.hasFamily(f) {
			continue
		}
		if out = append(out, name+nodeSuffix(any)); r.ExternalLocal {
			out = append(out, name+localSuffix(any))
		}
	}
	return out
}

func (r *Resolved) appendWay(ways []Way, w Way, p Port) []Way {
	c := Claim{w.Addr, p.Protocol, p.Port}
	if !w.Addr.IsValid() {
		c.Port = p.NodePort
	}
	if !r.Has(c) {
		return ways // a Problem says so
	}
	w.Name = strings.TrimPrefix(fmt.Sprintf("%s %s", w.Name, c), "nodePort ")
	return append(ways, w)
}

func nodeSuffix(a netip.Addr) string  { return fmt.Sprintf("/node%d", 4+2*family(a)) }
func localSuffix(a netip.Addr) string { return fmt.Sprintf("/local%d", 4+2*family(a)) }

// The load balancers of NodePorts with affinity, of both families.
const nodesSuffix, localsSuffix = "/nodes", "/local"
