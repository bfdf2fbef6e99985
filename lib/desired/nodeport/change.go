package nodeport

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
)

// A Change says what on a host may depend on the change of a Service. OVN balances most Services for pods only: nothing does.
type Change struct {
	Rules     bool // rules of the packet filter, and flows of a shared bridge
	Frontends bool // list of frontends for clients outside, without their endpoints
	UDP       bool // endpoints of tracked UDP connections
	Health    bool // answer to health checks
}

// ChangeOf compares two versions of a Service; nil is none.
func ChangeOf(h Host, was, now *service.Resolved) (c Change) {
	outside := false
	for _, r := range []*service.Resolved{was, now} {
		if r == nil {
			continue
		}
		atPorts := slices.ContainsFunc(r.Ports, func(p service.Port) bool { return p.NodePort != 0 })
		outside = outside || atPorts || len(r.ExternalIPs)+len(r.Ingress) > 0
		c.Rules = c.Rules || h.translatesClusterIPs(r)
		c.UDP = c.UDP || slices.ContainsFunc(r.Ports, func(p service.Port) bool { return p.Protocol == corev1.ProtocolUDP })
		c.Health = c.Health || r.HealthCheckNodePort != 0
	}
	c.Rules = c.Rules || outside
	c.Frontends = outside && (was == nil || now == nil || was.UID != now.UID || !slices.Equal(frontendsOf(was), frontendsOf(now)))
	return c
}

// translatesClusterIPs reports whether rules may translate the host's own connections to cluster IPs: see ruleBuilder.own.
func (h Host) translatesClusterIPs(r *service.Resolved) bool {
	b := ruleBuilder{Host: h}
	for _, a := range r.ClusterIPs {
		if !b.routed(a) {
			return true
		}
	}
	return slices.ContainsFunc(slices.Concat(r.Endpoints, r.Here), func(of service.Endpoints) bool { return slices.ContainsFunc(of, b.isOwn) })
}

// A frontendKey is what can be compared of a frontend of two versions of a Service.
type frontendKey struct {
	service.Claim
	kind service.Kind
}

// frontendsOf lists the frontends of a Service for clients outside, in any network.
func frontendsOf(r *service.Resolved) (out []frontendKey) {
	for _, f := range r.Frontends(service.Network{}) {
		if f.Kind != service.ClusterIP {
			out = append(out, frontendKey{f.Claim(), f.Kind})
		}
	}
	return out
}
