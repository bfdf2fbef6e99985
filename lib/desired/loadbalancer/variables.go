package loadbalancer

import (
	"fmt"
	"net/netip"

	"ovn-k8s/lib/desired/service"
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

// Variables are the template variables of r on a node. r needs only the endpoints on that node; byGateway is
// ByGateway of all. Without an endpoint, or with Refused on the node, the variable is missing, and so is the
// frontend.
func Variables(r *service.Resolved, node string, byGateway bool) map[string]string {
	if !r.ByNode() {
		return nil
	}
	out, e := map[string]string{}, encoding{r}
	for i, p := range r.Ports {
		for f, any := range ipnet.Families() {
			local := r.Endpoints[i].Of(any).Local(node)
			if len(local) == 0 {
				continue
			}
			if r.ExternalLocal && !byGateway && r.Refused[node] == 0 {
				e.assign(out, e.localVariable(p, f), local, r.Outside)
			}
			if r.InternalLocal {
				e.assign(out, e.backendsVariable(p, f), local, r.ClusterIPs)
			}
		}
	}
	return out
}

// assign sets the variable of some endpoints, and those of the IPv6 addresses of their frontends.
func (r encoding) assign(out map[string]string, name string, es service.Endpoints, at []netip.Addr) {
	out[name] = r.backends(es)
	for _, a := range at {
		if !a.Is4() && !es[0].Addr.Is4() {
			out[r.addressVariable(a)] = a.String()
		}
	}
}
