package nodeport

import (
	"net/netip"

	"ovn-k8s/lib/desired/service"
)

// HealthChecks returns the number of serving endpoints on the node for each Service
// with a health check port, by that port: none if the Service takes no connections
// from outside there.
func HealthChecks(node string, services []*service.Resolved) map[uint16]Health {
	out := map[uint16]Health{}
	for _, s := range services {
		p := s.HealthCheckNodePort
		if p == 0 { // Kubernetes gives a port to one Service only
			continue
		}
		addrs := map[netip.Addr]bool{}
		for i := range s.Endpoints {
			for _, e := range s.On(i, node) {
				if e.State == service.Serving && s.Refused[node] == 0 {
					addrs[e.Addr] = true
				}
			}
		}
		out[p] = Health{s.Key, len(addrs)}
	}
	return out
}

// Health is the answer of a health check.
type Health struct {
	Service service.Key
	Local   int // endpoints on the node
}
