package desired

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/policy"
)

// policy/check considers Services and the guard as well as policies.
func TestCheckOfServicesAndOfWhatNoPodMayDo(t *testing.T) {
	w := NewWorld()
	w.Put(cluster(t, 1))
	web, client := newPod("web", "n1"), newPod("client", "n1")
	web.Labels = map[string]string{"app": "web"}
	w.Put(web)
	w.Put(client)
	w.Allocate()
	closed := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "closed"}}
	closed.Spec.PodSelector.MatchLabels = web.Labels
	w.Put(closed)
	w.Put(newService("web", 1))
	w.Put(newSlice("web-1", "web", "10.0.1.12@n1", "10.0.9.9@n9"))
	w.Put(newService("empty", 2))
	for _, tt := range []struct{ from, to, want string }{
		{"default/client", "172.16.0.1:80", `deny 10.0.1.11 → 10.0.1.12:8080 of service default/web: egress: allowed: no policy isolates it; ingress: denied: isolated by default/closed, and no rule allows it
allow 10.0.1.11 → 10.0.9.9:8080 of service default/web: egress: allowed: no policy isolates it; ingress: allowed: no policy isolates it
`},
		{"default/client", "172.16.0.1:81", "service default/web has no such port: only its own are answered"},
		{"default/client", "172.16.0.1", "service default/web has no such port: only its own are answered"},
		{"default/client", "172.16.0.2:80", "service default/empty has no endpoint that is ready: it refuses"},
		{"default/client", "192.0.2.1:6081/udp", "deny 10.0.1.11 → 192.0.2.1: no pod may send to tunnels\n"},
		{"default/client", "10.0.1.12:6081/udp", "deny 10.0.1.11 → 10.0.1.12: egress: allowed: no policy isolates it; ingress: denied: isolated by default/closed, and no rule allows it\n"},
		{"192.0.2.1", "default/client:6081/udp", "allow 192.0.2.1 → 10.0.1.11: egress: allowed: no policy isolates it; ingress: allowed: no policy isolates it\n"},
		{"default/client", "[fd00:0:0:1::9]:546/udp", "deny fd00:0:0:1::3 → fd00:0:0:1::9: no pod may send what answers of a DHCP server look like\n"},
	} {
		q, err := policy.ParseQuery(tt.from, tt.to)
		got := ""
		if err == nil {
			got, err = w.Check(q)
		}
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s to %s (-want +got):\n%s", tt.from, tt.to, diff)
		}
	}
}
