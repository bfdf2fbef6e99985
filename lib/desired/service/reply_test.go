package service

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/objects"
)

// Services without external policy Local, and Services refused on a node, have no replies there.
func TestRepliesAreThoseOfExternalPolicyLocal(t *testing.T) {
	local := objects.Web(objects.NodePort)
	local.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	a := objects.Slice("a", 8080, "10.0.1.3@n1", "10.0.2.4@n2")
	r, other := resolve(local, a), resolve(objects.Web(objects.NodePort), a)
	if n := len(other.Replies("n1")); n != 0 {
		t.Errorf("policy Cluster has %d replies", n)
	}
	r.RefuseOn(map[string]int{"n1": 3000})
	if n, m := len(r.Replies("n1")), len(r.Replies("n2")); n != 0 || m != 1 {
		t.Errorf("refused on n1: %d replies there, %d on n2", n, m)
	}
}
