package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/names"
)

// AddressVariable is the variable that holds, on each host, the host's address
// number i of a family, of which 0 is IPv4.
func AddressVariable(family, i int) string {
	return fmt.Sprintf("%s%d_%d", addressPrefix, 4+2*family, i)
}

// NoAddress is what AddressVariable holds where a host has fewer addresses than others: ovn-controller logs an error
// for each frontend whose variable is missing.
func NoAddress(family int) netip.Addr { return families()[family] }

// addressPrefix starts AddressVariable.
const addressPrefix = names.VariablePrefix + "address"

// variable is a variable of r. Names of Kubernetes have no underscore, and those
// of variables no dash.
func (r *Resolved) variable(words ...string) string {
	all := append([]string{r.Namespace, r.Name}, words...)
	return names.VariablePrefix + strings.ReplaceAll(strings.ToLower(strings.Join(all, ".")), "-", "_")
}

func (r *Resolved) portVariable(p Port, kind string, f int) string {
	return r.variable(string(p.Protocol), fmt.Sprint(p.Port), fmt.Sprintf("%s%d", kind, 4+2*f))
}

// backendsVariable holds a node's own endpoints of a cluster address.
func (r *Resolved) backendsVariable(p Port, f int) string { return r.portVariable(p, "near", f) }

// localVariable holds the endpoints on a node itself.
func (r *Resolved) localVariable(p Port, f int) string { return r.portVariable(p, "local", f) }

// addressVariable holds an IPv6 address of r. OVN takes an IPv4 address as it is
// where a variable may be, but no IPv6 address.
func (r *Resolved) addressVariable(a netip.Addr) string {
	return r.variable("vip." + strings.ReplaceAll(a.StringExpanded(), ":", "_"))
}

// templateKey is the key of a way in of a template.
func (r *Resolved) templateKey(a netip.Addr, port uint16) string {
	if a.Is4() {
		return key(a, port)
	}
	return fmt.Sprintf("^%s:%d", r.addressVariable(a), port)
}

// ByNode reports whether r has Variables.
func (r *Resolved) ByNode() bool { return r.Ours && (r.InternalLocal || r.ExternalLocal) }

// Variables are the template variables of r on a node, of whose endpoints it needs no others; byGateway is
// ByGateway of all. Without an endpoint, or with Refused on the node, there is no variable, so that the frontend is not there.
func (r *Resolved) Variables(node string, byGateway bool) map[string]string {
	if !r.ByNode() {
		return nil
	}
	out := map[string]string{}
	for i, p := range r.Ports {
		for f, any := range families() {
			local := r.Endpoints[i].Of(any).Local(node)
			if len(local) == 0 {
				continue
			}
			if r.ExternalLocal && !byGateway && r.Refused[node] == 0 {
				r.assign(out, r.localVariable(p, f), local, r.Outside)
			}
			if r.InternalLocal {
				r.assign(out, r.backendsVariable(p, f), local, r.ClusterIPs)
			}
		}
	}
	return out
}

// assign sets the variable of some endpoints, and those of the IPv6 addresses at
// which they are reached.
func (r *Resolved) assign(out map[string]string, name string, es Endpoints, at []netip.Addr) {
	out[name] = r.backends(es)
	for _, a := range at {
		if !a.Is4() && !es[0].Addr.Is4() {
			out[r.addressVariable(a)] = a.String()
		}
	}
}

func inside(a netip.Addr, subnets []netip.Prefix) bool {
	return slices.ContainsFunc(subnets, func(p netip.Prefix) bool { return p.Contains(a) })
}
