package e2e

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"ovn-k8s/lib/kube"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// The watcher and the gateway helper of the master follow each kind of objects by one WATCH, if they are in one process.
// OVNK8S_TEST_ROLES=together; without, each has its own.
func TestWatchesOfRoles(t *testing.T) {
	require.Nothing(t, require.Cluster, world.Missing())
	ofPrograms(t, "test/kinds")
	master := cluster.Master()
	const port = 16443
	api := serveAPI(t, port, nil)
	set := func(server string) {
		sh(t, master, fmt.Sprintf("ovs-vsctl --no-wait set Open_vSwitch . external_ids:k8s-api-server='%q'", server))
	}
	want := map[string]int{}
	for _, k := range kube.Kinds() {
		if k.Is(&networkingv1.ServiceCIDR{}) && !kubetest.Has(kubetest.ServiceCIDRs) {
			continue
		}
		want[k.Name] = 1
		shared := []any{&corev1.Service{}, &discoveryv1.EndpointSlice{}, &corev1.Pod{}, &corev1.Node{}, &networkingv1.ServiceCIDR{}}
		if !together() && slices.ContainsFunc(shared, k.Is) {
			want[k.Name] = 2
		}
	}
	before := cluster.APIServer()
	t.Cleanup(func() { set(before); consistent(t) })
	set(fmt.Sprintf("http://%v:%d", cluster.Outside.Addresses[0].Addr(), port))
	var seen string
	eventually(t, "the watches", func() bool {
		seen = fmt.Sprint(api.watched())
		return maps.Equal(api.watched(), want)
	}, &seen)
	p := pods(t, map[string]string{"a": "master", "b": "minion1"})
	answers(t, p["a"], p["b"].Addresses[0])
	if now := api.watched(); !maps.Equal(now, want) {
		t.Errorf("watches: %v, want %v", now, want)
	}
	t.Logf("processes (VmRSS in kB):\n%s", sh(t, master, `for p in $(cat /var/run/openvswitch/ovn-k8s-*.pid | sort -u); do tr '\0' ' ' </proc/$p/cmdline | cut -d' ' -f1; grep VmRSS /proc/$p/status; done`))
}
