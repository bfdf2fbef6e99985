package desired

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/guard"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/names"
)

// Check says whether policies allow a connection, and why, on one line for each common address family. For a
// Service's cluster IP it has one line for each endpoint.
func (w *World) Check(q policy.Query) (string, error) {
	return checker{w.Facts(), w.Pods, w.Services, w.Policies.index}.check(q)
}

// A checker finds whether policies allow a connection.
type checker struct {
	facts    *facts.Facts
	pods     *pod.Index
	services *Services
	policies *policy.Index
}

// check is World.Check.
func (x checker) check(q policy.Query) (string, error) {
	from, err := x.party(q.From)
	if err != nil {
		return "", err
	}
	to, err := x.targets(q)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, f := range from {
		for _, t := range to {
			if f.Addr.Is4() == t.Addr.Is4() {
				allowed, reason := x.evaluate(policy.Connection{From: f, To: t.Endpoint, Proto: q.Proto, Port: t.port})
				verdict := "deny"
				if allowed {
					verdict = "allow"
				}
				fmt.Fprintf(&b, "%s %s → %s: %s\n", verdict, f.Addr, t.text, reason)
			}
		}
	}
	if b.Len() == 0 {
		return "", errFamilies
	}
	return b.String(), nil
}

var errFamilies = errors.New("the two have no addresses of one family")

// A target is a destination of a connection.
type target struct {
	policy.Endpoint
	port uint16
	text string
}

// targets are the destinations of a query: an address, a pod's addresses, or the endpoints of a cluster IP.
func (x checker) targets(q policy.Query) (out []target, err error) {
	if s, ok := x.serviceAt(q.To.Addr); ok {
		return x.behind(s, q)
	}
	to, err := x.party(q.To)
	for _, e := range to {
		out = append(out, target{e, q.Port, e.Addr.String()})
	}
	return out, err
}

// serviceAt finds the Service with a cluster IP.
func (x checker) serviceAt(a netip.Addr) (service.Resolved, bool) {
	for k, s := range x.services.all {
		if slices.Contains(s.ClusterIPs, a) {
			return x.services.resolved(k), true
		}
	}
	return service.Resolved{}, false
}

// behind lists the endpoints of a Service for a query.
func (x checker) behind(s service.Resolved, q policy.Query) (out []target, err error) {
	i := slices.IndexFunc(s.Ports, func(p service.Port) bool { return p.Port == q.Port && p.Protocol == q.Proto })
	if i < 0 {
		return nil, fmt.Errorf("service %s has no such port: only its own are answered", s.Key)
	}
	for _, e := range s.Endpoints[i].Cluster() {
		if e.Addr.Is4() == q.To.Addr.Is4() {
			text := fmt.Sprintf("%s of service %s", netip.AddrPortFrom(e.Addr, e.Port), s.Key)
			out = append(out, target{policy.Endpoint{Pod: x.pods.Holder(e.Addr), Addr: e.Addr}, e.Port, text})
		}
	}
	if out == nil {
		return nil, fmt.Errorf("service %s has no endpoint that is ready: it refuses", s.Key)
	}
	return out, nil
}

// evaluate says whether a connection is allowed, and why.
func (x checker) evaluate(c policy.Connection) (bool, string) {
	if why := x.guarded(c); why != "" {
		return false, why
	}
	switch {
	case c.From.Pod == c.To.Pod && c.From.Pod != pod.Key{}:
		return true, "a pod always reaches itself"
	case x.isOwnNode(c.From.Addr, c.To.Pod), x.isOwnNode(c.To.Addr, c.From.Pod):
		return true, "a pod and its own node always reach each other"
	}
	from, to := x.policies.Check(c)
	return from.Allowed && to.Allowed, from.Reason + "; " + to.Reason
}

// guarded returns the reason if the guard drops a connection of a pod, or "".
func (x checker) guarded(c policy.Connection) string {
	if c.From.Pod == (pod.Key{}) {
		return ""
	}
	within := func(p netip.Prefix) bool { return p.Contains(c.To.Addr) }
	return guard.Refuses(c.Proto, netip.AddrPortFrom(c.To.Addr, c.Port), !slices.ContainsFunc(x.facts.Cluster.Subnets, within))
}

// isOwnNode reports whether a is an address of the node of pod k.
func (x checker) isOwnNode(a netip.Addr, k pod.Key) bool {
	p, ok := x.pods.Pod(k.Unit())
	return ok && slices.Contains(x.facts.OwnAddresses(names.NodeSwitch(p.Node)), a)
}

// party finds the addresses of a pod, or the pod of an address.
func (x checker) party(p policy.Party) ([]policy.Endpoint, error) {
	if p.Addr.IsValid() {
		return []policy.Endpoint{{Pod: x.pods.Holder(p.Addr), Addr: p.Addr}}, nil
	}
	if _, ok := x.pods.Pod(p.Pod.Unit()); !ok {
		return nil, fmt.Errorf("%w; of others, give the address", noPod(p.Pod))
	}
	assigned, ok := x.pods.Annotation(p.Pod.Unit())
	if !ok {
		return nil, fmt.Errorf("pod %s has no address yet", p.Pod)
	}
	var out []policy.Endpoint
	for _, a := range facts.Addrs(assigned.Addresses.IPs) {
		out = append(out, policy.Endpoint{Pod: p.Pod, Addr: a})
	}
	return out, nil
}
