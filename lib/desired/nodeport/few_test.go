package nodeport

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/service"
)

// L3: a Service for whose endpoints a host has no room leads to one of its endpoints, or to OVN if that chooses right. Both
// renderers agree, and no client is remembered.
func TestRenderersAgreeOnFewEndpoints(t *testing.T) {
	at := network()
	for seed := range uint64(1000) {
		r := randomly(rand.New(rand.NewPCG(seed, 0)))
		r.OverChosen, r.OverSpare = true, true
		all := service.AllFrontends([]*service.Resolved{&r}, at.Network)
		for _, p := range places {
			rules := p.ruled(all, all.Outside())
			own := p.ruled(all, atClusterIPs(all))
			for what, diff := range map[string]string{"frontends": cmp.Diff(rules, p.tabled(all, all.Outside())), "own connections": cmp.Diff(own, p.tabled(all, atClusterIPs(all)))} {
				if diff != "" {
					t.Fatalf("seed %d, %s at %s: rules, table:\n%s", seed, what, p.node.Name, diff)
				}
			}
			for f := range all.All() {
				ends, got := f.Backends().Cluster(), rules
				switch {
				case f.Kind == service.ClusterIP:
					ends, _ = p.own(f)
					got = own
				case f.ExternalLocal:
					ends = f.Backends().Local(p.node.Name)
				}
				where := answers{}
				addr := f.Addr
				if f.Kind == service.NodePort {
					addr = p.addrs[f.Family]
				}
				where.set(f.Protocol(), addr, f.Number, nil)
				for name := range where {
					to, is := got[name]
					byOVN := !f.InternalLocal && !slices.ContainsFunc(f.Backends(), func(e service.Endpoint) bool { return slices.Contains(p.addrs[:], e.Addr) })
					switch {
					case !is || !f.Programmed():
					case f.Kind != service.ClusterIP && !f.ExternalLocal && byOVN:
						if !slices.Equal(to, slices.Sorted(slices.Values(texts(ends)))) {
							t.Fatalf("seed %d: %s at %s: OVN does not choose among %v, but %v", seed, name, p.node.Name, texts(ends), to)
						}
					case len(to) != min(1, len(ends)), len(to) == 1 && !slices.Contains(texts(ends), to[0]):
						t.Fatalf("seed %d: %s at %s leads to %v of %v", seed, name, p.node.Name, to, texts(ends))
					}
				}
			}
			for _, part := range NewRules(p.host(), IPv4, all, nil).Table().Parts {
				for _, s := range part.Sets {
					if s.Timeout > 0 {
						t.Fatalf("seed %d: set %s", seed, s.Name)
					}
				}
			}
		}
	}
}

// L3: of a thousand nodes with endpoints, a host's own connections to a NodePort of policy Local go to the next ten.
func TestFewNeighbours(t *testing.T) {
	s := service.Resolved{Service: service.Service{Key: service.Key{Namespace: "default", Name: "web"}, Ours: true, ExternalLocal: true,
		ClusterIPs: many()[0].ClusterIPs, Ports: []service.Port{{Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}}}}
	all := many()
	h, to := node1, service.Endpoints{}
	h.Nodes = Nodes{}
	for i := range 100 {
		node := fmt.Sprintf("n%02d", i)
		a := all[i].ClusterIPs[0]
		h.Nodes[node] = append(h.Nodes[node], a)
		to = append(to, service.Endpoint{Host: &service.Host{Addr: a, Node: node, State: service.Serving}, Port: 8080})
	}
	s.Endpoints, h.Node = []service.Endpoints{to}, "n95a"
	var got []string
	for _, e := range h.neighbours(s.Frontends(service.Network{})[1]) {
		got = append(got, e.Node)
	}
	if want := []string{"n96", "n97", "n98", "n99", "n00", "n01", "n02", "n03", "n04", "n05"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
