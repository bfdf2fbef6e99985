package loadbalancer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
)

// An encoding writes a Service in OVN's terms: names of load balancers and of template variables, keys and values of
// vips.
type encoding struct{ *service.Resolved }

func (r encoding) balancerName(protocol corev1.Protocol) string {
	return string(r.Unit()) + "/" + strings.ToLower(string(protocol))
}

// variable is the name of a variable of r. Names of Kubernetes have no underscore, and those of variables no dash.
func (r encoding) variable(words ...string) string {
	all := append([]string{r.Namespace, r.Name}, words...)
	return names.VariablePrefix + strings.ReplaceAll(strings.ToLower(strings.Join(all, ".")), "-", "_")
}

func (r encoding) portVariable(p service.Port, kind string, f int) string {
	return r.variable(string(p.Protocol), fmt.Sprint(p.Port), fmt.Sprintf("%s%d", kind, 4+2*f))
}

// backendsVariable has a node's own endpoints for a cluster IP.
func (r encoding) backendsVariable(p service.Port, f int) string { return r.portVariable(p, "near", f) }

// localVariable has a node's own endpoints for frontends of gateways.
func (r encoding) localVariable(p service.Port, f int) string { return r.portVariable(p, "local", f) }

// addressVariable has an IPv6 address of r. In place of a variable, OVN takes an IPv4 address as it is, but no IPv6
// address.
func (r encoding) addressVariable(a netip.Addr) string {
	return r.variable("vip." + strings.ReplaceAll(a.StringExpanded(), ":", "_"))
}

// templateKey is the key of a frontend in a template.
func (r encoding) templateKey(a netip.Addr, port uint16) string {
	if a.Is4() {
		return key(a, port)
	}
	return fmt.Sprintf("^%s:%d", r.addressVariable(a), port)
}

// key is the key of a frontend in Load_Balancer.vips: "192.0.2.1:80", "[2001:db8::1]:80".
func key(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }

// balancer returns a load balancer in a group, or in none.
func (r encoding) balancer(name string, protocol corev1.Protocol, group string, v vips) nb.Row {
	lower := strings.ToLower(string(protocol))
	lb := &nbdb.LoadBalancer{Name: names.LoadBalancer(name), Protocol: &lower, Vips: v, Options: map[string]string{"reject": "true"}}
	if protocol == corev1.ProtocolUDP {
		// A client on the same port would keep talking to a deleted endpoint. Clients of TCP and SCTP notice by
		// themselves.
		lb.Options["ct_flush"] = "true"
	}
	row := nb.Row{Table: nbdb.LoadBalancerTable, ID: name, Model: lb}
	if group != "" {
		row.In = []nb.Ref{{Table: nbdb.LoadBalancerGroupTable, ID: group, Column: "load_balancer"}}
	}
	return row
}

// backends is the value of a frontend in Load_Balancer.vips.
func (r encoding) backends(es service.Endpoints) string {
	if r.Affinity > 0 {
		es = placed(es)
	}
	out := make([]byte, 0, len(es)*len("255.255.255.255:65535,"))
	for i, e := range es {
		if i > 0 {
			out = append(out, ',')
		}
		out = e.AddrPort().AppendTo(out)
	}
	return string(out)
}

// isOuter reports whether a frontend is a NodePort, or at an address outside.
func (r encoding) isOuter(vip string) bool {
	a, err := netip.ParseAddrPort(vip)
	if err != nil {
		return strings.HasPrefix(vip, "^"+addressPrefix)
	}
	return !slices.Contains(r.ClusterIPs, a.Addr())
}
