package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

// AddressVariable is the name of the variable with, on each host, its address number i of a family (0: IPv4).
func AddressVariable(family, i int) string {
	return fmt.Sprintf("%s%d_%d", addressPrefix, 4+2*family, i)
}

// NoAddress is the value of AddressVariable on hosts with fewer addresses than others: ovn-controller logs an error
// for each frontend without its variable.
func NoAddress(family int) netip.Addr { return ipnet.Families()[family] }

// addressPrefix starts AddressVariable.
const addressPrefix = names.VariablePrefix + "address"

// variable is the name of a variable of r. Names of Kubernetes have no underscore, and those of variables no dash.
func (r *Resolved) variable(words ...string) string {
	all := append([]string{r.Namespace, r.Name}, words...)
	return names.VariablePrefix + strings.ReplaceAll(strings.ToLower(strings.Join(all, ".")), "-", "_")
}

func (r *Resolved) portVariable(p Port, kind string, f int) string {
	return r.variable(string(p.Protocol), fmt.Sprint(p.Port), fmt.Sprintf("%s%d", kind, 4+2*f))
}

// backendsVariable has a node's own endpoints for a cluster IP.
func (r *Resolved) backendsVariable(p Port, f int) string { return r.portVariable(p, "near", f) }

// localVariable has a node's own endpoints for frontends of gateways.
func (r *Resolved) localVariable(p Port, f int) string { return r.portVariable(p, "local", f) }

// addressVariable has an IPv6 address of r. In place of a variable, OVN takes an IPv4 address as it is, but no IPv6
// address.
func (r *Resolved) addressVariable(a netip.Addr) string {
	return r.variable("vip." + strings.ReplaceAll(a.StringExpanded(), ":", "_"))
}

// templateKey is the key of a frontend in a template.
func (r *Resolved) templateKey(a netip.Addr, port uint16) string {
	if a.Is4() {
		return key(a, port)
	}
	return fmt.Sprintf("^%s:%d", r.addressVariable(a), port)
}

// ByNode reports whether r has Variables.
func (r *Resolved) ByNode() bool { return r.Ours && (r.InternalLocal || r.ExternalLocal) }

// Variables are the template variables of r on a node. r needs only the endpoints on that node; byGateway is
// ByGateway of all. Without an endpoint, or with Refused on the node, the variable is missing, and so is the
// frontend.
func (r *Resolved) Variables(node string, byGateway bool) map[string]string {
	if !r.ByNode() {
		return nil
	}
	out := map[string]string{}
	for i, p := range r.Ports {
		for f, any := range ipnet.Families() {
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

// assign sets the variable of some endpoints, and those of the IPv6 addresses of their frontends.
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
