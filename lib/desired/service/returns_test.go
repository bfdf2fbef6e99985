package service

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/objects"
)

// L5: one row of each protocol and family of a node, for all Services; endpoints with the same ports share a term.
func TestReturnRows(t *testing.T) {
	local := func(s *corev1.Service) {
		nodePort(s)
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	at := around()
	var from []Reply
	for _, port := range []int32{8080, 8081} {
		r := resolve(objects.Web(local), objects.Slice("a", port, "10.0.1.3@n1", "10.0.1.4@n1", "10.0.2.4@n2", "192.0.2.1@n1", "10.0.9.9@n1"))
		from = append(from, r.Replies("n1")...)
	}
	r := resolve(objects.Web(local), objects.Slice("a", 9090, "10.0.1.5@n1"))
	from = append(from, r.Replies("n1")...)
	got := map[string]string{}
	for _, row := range at.ReturnRows("n1", from) {
		got[row.ID] = short(row, row.ID)
	}
	want := map[string]string{
		"return/n1/tcp4": `action="reroute" match="(ip4.src == 10.0.1.5 && tcp.src == 9090) || (ip4.src == {10.0.1.3, 10.0.1.4} && tcp.src == {8080, 8081})" nexthops=["100.64.0.2"] priority=3000 in=Logical_Router/ovn_cluster_router.policies`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if rows := at.ReturnRows("n2", r.Replies("n1")); len(rows) > 0 {
		t.Errorf("a node without a gateway and a management port has %v", rows)
	}
	inside := map[string]string{}
	for _, row := range at.InsideRows() {
		inside[row.ID] = short(row, row.ID)
	}
	want = map[string]string{
		"inside/ip4": `action="allow" match="ip4.dst == {10.0.0.0/16, 100.64.0.0/16}" priority=3001 in=Logical_Router/ovn_cluster_router.policies`,
		"inside/ip6": `action="allow" match="ip6.dst == {fd00::/48, fd98::/64}" priority=3001 in=Logical_Router/ovn_cluster_router.policies`,
	}
	if diff := cmp.Diff(want, inside); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Services without external policy Local, and Services refused on a node, have no replies there.
func TestRepliesAreThoseOfExternalPolicyLocal(t *testing.T) {
	local := objects.Web(nodePort)
	local.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	a := objects.Slice("a", 8080, "10.0.1.3@n1", "10.0.2.4@n2")
	r, other := resolve(local, a), resolve(objects.Web(nodePort), a)
	if n := len(other.Replies("n1")); n != 0 {
		t.Errorf("policy Cluster has %d replies", n)
	}
	r.RefuseOn(map[string]int{"n1": 3000})
	if n, m := len(r.Replies("n1")), len(r.Replies("n2")); n != 0 || m != 1 {
		t.Errorf("refused on n1: %d replies there, %d on n2", n, m)
	}
	if n, m := len(r.Variables("n1", false)), len(r.Variables("n2", false)); n != 0 || m != 1 {
		t.Errorf("refused on n1: %d variables there, %d on n2", n, m)
	}
}
