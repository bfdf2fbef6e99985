package loadbalancer

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/objects"
)

// An operator sees each frontend, its endpoints, exceptions, and the load balancers.
func TestSummaries(t *testing.T) {
	a := objects.Slice("a", 8080, "10.0.1.3@n1 zone=east", "10.0.2.4@n2 zone=west")
	for _, tt := range []struct {
		name   string
		change func(*corev1.Service)
		want   string
	}{
		{"hints and affinity", func(s *corev1.Service) { objects.NodePort(s); objects.Sticky(s) }, `
clusterIP 172.16.1.10:80/TCP | 2 | for clients of others; clients stay by their address | tcp/near/others
clusterIP 172.16.1.10:80/TCP | 1 | for clients of zone east; clients stay by their address | tcp/near/zone/east
clusterIP 172.16.1.10:80/TCP | 1 | for clients of zone west; clients stay by their address | tcp/near/zone/west
nodePort 30082/TCP | 2 | clients stay by their address | tcp/node4`},
		{"policies and source ranges", func(s *corev1.Service) {
			local := corev1.ServiceInternalTrafficPolicyLocal
			objects.NodePort(s)
			s.Spec.Type, s.Spec.InternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, &local
			s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 32000
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
		}, `
clusterIP 172.16.1.10:80/TCP | 2 | each on its own node only | tcp/node4
load balancer IP 198.51.100.1:80/TCP | 2 | from outside each on its own node only; health checks at node:32000; only from 192.0.2.0/24 | tcp tcp/local4
nodePort 30082/TCP | 2 | from outside each on its own node only; health checks at node:32000 | tcp/node4 tcp/local4`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := objects.Web()
			tt.change(s)
			r := resolve(s, a)
			var got strings.Builder
			for _, w := range New(&r, cluster()).Summaries() {
				fmt.Fprintf(&got, "\n%s | %d | %s | %s", w.Name, len(w.Endpoints), strings.Join(w.Notes, "; "),
					strings.ReplaceAll(strings.Join(w.Balancers, " "), "service/default/web/", ""))
			}
			if diff := cmp.Diff(tt.want, got.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
