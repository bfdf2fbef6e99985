package replyroute

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/nb"
	"ovn-k8s/test/objects"
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// replies are the replies on n1 of a Service with external policy Local.
func replies(slice *discoveryv1.EndpointSlice) []service.Reply {
	s := objects.Web(objects.NodePort)
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	r := service.Resolve(service.New(s), []service.Slice{service.NewSlice(slice, strings.Clone)})
	return r.Replies("n1")
}

// short are rows as text, by their IDs.
func short(rows []nb.Row) map[string]string {
	out := map[string]string{}
	for _, row := range rows {
		out[row.ID] = strings.TrimPrefix(row.String(), row.Table+" "+row.ID+" ")
	}
	return out
}

// L5: one row of each protocol and family of a node, for all Services; endpoints with the same ports share a term.
func TestRows(t *testing.T) {
	var from []service.Reply
	for _, port := range []int32{8080, 8081} {
		from = append(from, replies(objects.Slice("a", port, "10.0.1.3@n1", "10.0.1.4@n1", "10.0.2.4@n2", "192.0.2.1@n1", "10.0.9.9@n1"))...)
	}
	more := replies(objects.Slice("a", 9090, "10.0.1.5@n1"))
	got := short(rows("n1", prefixes("10.0.1.0/24"), []netip.Addr{netip.MustParseAddr("100.64.0.2"), netip.MustParseAddr("fd98::2")}, append(from, more...)))
	want := map[string]string{
		"return/n1/tcp4": `action="reroute" match="(ip4.src == 10.0.1.5 && tcp.src == 9090) || (ip4.src == {10.0.1.3, 10.0.1.4} && tcp.src == {8080, 8081})" nexthops=["100.64.0.2"] priority=3000 in=Logical_Router/ovn_cluster_router.policies`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if rows := rows("n2", nil, nil, more); len(rows) > 0 {
		t.Errorf("a node without a gateway and a management port has %v", rows)
	}
	want = map[string]string{
		"inside/ip4": `action="allow" match="ip4.dst == {10.0.0.0/16, 100.64.0.0/16}" priority=3001 in=Logical_Router/ovn_cluster_router.policies`,
		"inside/ip6": `action="allow" match="ip6.dst == {fd00::/48, fd98::/64}" priority=3001 in=Logical_Router/ovn_cluster_router.policies`,
	}
	if diff := cmp.Diff(want, short(insideRows(prefixes("10.0.0.0/16", "fd00::/48", "100.64.0.0/16", "fd98::/64")))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
