package desired

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
)

// The same Selection again costs nothing, however many Services and nodes there are: the watcher puts it often.
func TestTheSameSelectionCostsNothing(t *testing.T) {
	w := NewWorld()
	c, err := topology.New(names.ClusterRouter, prefixes("10.0.0.0/8"), prefixes("100.64.0.0/16"))
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes = map[string][]netip.Prefix{}
	for i := range 100 {
		c.Nodes[fmt.Sprint("node-", i)] = prefixes(fmt.Sprintf("10.1.%d.0/24", i))
	}
	w.Put(c)
	for i := range 100 {
		ip := fmt.Sprintf("10.96.0.%d", i+1)
		w.Put(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint("s", i)},
			Spec:       corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
		})
	}
	for _, s := range []loadbalancer.Selection{{}, {Userspace: true}, {IPv6Source: true}} {
		if touched := w.Put(s); len(touched) < 100 || w.Services.inputs.Selection != s {
			t.Errorf("%+v: %d units, want all Services", s, len(touched))
		}
		if n := testing.AllocsPerRun(10, func() { w.Put(s) }); n > 10 {
			t.Errorf("%+v again: %v allocations", s, n)
		}
	}
}

// The router of a shared NIC has frontends at the addresses of the Node, too, in the gateway's families: flows lead clients there
// to it, and it had none of external addresses, nor of NodePorts if an endpoint is in a host's network. It follows the Node.
func TestASharedNICServesTheAddressesOfItsNode(t *testing.T) {
	for mode, want := range map[string]string{topology.Bridge: "192.0.2.1 192.0.2.9", topology.Physical: "192.0.2.1"} {
		w := NewWorld()
		c, err := cluster(t, 1, 2).WithChassis("n1", "c1").WithChassis("n2", "c2").WithGateway("g", topology.Gateway{
			Mode: mode, Interface: "breth0", Chassis: "c1", Node: "n1", MAC: "02:00:00:00:00:01", IPs: prefixes("192.0.2.1/24"),
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Put(c)
		s := newService("web", 1)
		s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
		s.Spec.ExternalTrafficPolicy, s.Spec.ExternalIPs = corev1.ServiceExternalTrafficPolicyLocal, []string{"192.0.2.9"}
		w.Put(s)
		w.Put(newSlice("web-1", "web", "10.0.1.3@n1", "192.0.2.2@n2"))
		w.Put(hostNode(2))
		n := hostNode(1)
		for _, a := range []string{"192.0.2.9", "2001:db8::9"} {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: a})
		}
		if touched := w.Put(n); !slices.Contains(touched, "service/default/web") {
			t.Errorf("%s: another address of the Node touches %v", mode, touched)
		}
		if got := fmt.Sprint(w.Services.inputs.Gateways["g"].Addrs); got != "["+want+"]" {
			t.Errorf("%s: frontends at %s, want %s", mode, got, want)
		}
		rows := fmt.Sprint(rowsOf(t, w, "service/default/web"))
		_, local, _ := strings.Cut(rows, "Load_Balancer service/default/web/tcp/local/g ")
		local, _, _ = strings.Cut(local, " in=")
		for _, frontend := range []string{"192.0.2.9:80=", "192.0.2.9:30080="} {
			if (mode == topology.Bridge) != strings.Contains(local, frontend) {
				t.Errorf("%s: %s in %s", mode, frontend, local)
			}
		}
	}
}

// A kubelet with many addresses adds only some frontends, to Services with NodePorts only, and reports in turns touch no
// others. The first addresses keep their frontends, and the Event has the number of the others.
func TestAKubeletAddsFewFrontends(t *testing.T) {
	w := NewWorld()
	c, err := cluster(t, 1, 2).WithChassis("n1", "c1").WithChassis("n2", "c2").WithGateway("g", topology.Gateway{
		Mode: topology.Bridge, Interface: "breth0", Chassis: "c1", Node: "n1", MAC: "02:00:00:00:00:01", IPs: prefixes("192.0.2.1/24"),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Put(c)
	w.Put(newService("inside", 1))
	open := newService("open", 2)
	open.Spec.Type, open.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
	w.Put(open)
	w.Put(newSlice("open-1", "open", "10.0.2.3@n2"))
	w.Put(hostNode(1))
	w.Put(hostNode(2))
	many := hostNode(1)
	for i := range 63 {
		many.Status.Addresses = append(many.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.1.%d", 1+i)})
	}
	for range 2 {
		if touched := w.Put(many); slices.Contains(touched, "service/default/inside") || !slices.Contains(touched, "service/default/open") {
			t.Errorf("many addresses touch %v", touched)
		}
		if n := strings.Count(fmt.Sprint(rowsOf(t, w, "service/default/open")), ":30080="); n != 5 { // with the gateway's
			t.Errorf("a NodePort has %d frontends", n)
		}
		if got := fmt.Sprint(w.Services.inputs.Gateways["g"].NodePorts); got != "[192.0.2.1 192.0.1.1 192.0.1.2 192.0.1.3 192.0.1.4]" {
			t.Errorf("the gateway has NodePorts at %s", got)
		}
		rows, err := w.Rows("host/n1")
		if want := "node n1 has 64 addresses, more than 4 of a family: at 60 of them the host alone serves NodePorts and hostPorts"; err == nil || err.Error() != want || len(rows) < 64 {
			t.Errorf("%d routes, %v, want %s", len(rows), err, want)
		}
		if touched := w.Put(hostNode(1)); slices.Contains(touched, "service/default/inside") {
			t.Errorf("few addresses touch %v", touched)
		}
	}
}
