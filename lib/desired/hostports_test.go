package desired

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/ports"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/nb"
)

// withHostPort gives a pod a hostPort for its port 8080.
func withHostPort(p *corev1.Pod, ip string, port int32, protocol corev1.Protocol) *corev1.Pod {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{{HostIP: ip, HostPort: port, ContainerPort: 8080, Protocol: protocol}}})
	return p
}

// randomHostPorts gives some pods hostPorts. It uses few numbers, for conflicts between pods and with Services: at
// nodes' addresses, at Services' own, and at the API server's.
func randomHostPorts(r *rand.Rand, p *corev1.Pod) {
	for range r.IntN(3) {
		ip := pick(r, "", "", "0.0.0.0", "::", "192.0.2.1", "127.0.0.1", "nonsense", "172.16.0.1", "fd02::2", "203.0.113.1")
		withHostPort(p, ip, pick(r, int32(80), 81, 8080, 30000, 30001), pick(r, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP))
	}
	p.CreationTimestamp = metav1.Unix(int64(r.IntN(3)), 0)
}

// hostPortText returns the rows of a pod's hostPorts as text, "" if there are none.
func hostPortText(w *World, name string) (string, error) {
	rows, err := w.Rows(nb.Unit("pod/default/" + name))
	if len(rows) < 2 {
		return "", err
	}
	return fmt.Sprint(rows[1:]), err
}

func TestHostPortsAreInTheTransactionOfThePort(t *testing.T) {
	w := NewWorld()
	w.Put(cluster(t, 1, 2).WithChassis("n1", "chassis-1"))
	w.Put(hostNode(1))
	w.Put(newPod("plain", "n1"))
	w.Put(withHostPort(newPod("web", "n1"), "", 80, corev1.ProtocolTCP))
	w.Allocate()
	if rows, err := w.Rows("pod/default/plain"); err != nil || len(rows) != 1 {
		t.Errorf("a pod without hostPorts has %d rows, %v", len(rows), err)
	}
	// One load balancer, two policies for each family, and two ACLs.
	rows, err := w.Rows("pod/default/web")
	if text := fmt.Sprint(rows); err != nil || len(rows) != 8 || !strings.Contains(text, `192.0.2.1:80="10.0.1.12:8080"`) {
		t.Errorf("%d rows, %v: %s", len(rows), err, text)
	}
	// The node's address follows.
	moved := hostNode(1)
	moved.Status.Addresses[0].Address = "192.0.2.77"
	if touched := w.Put(moved); !slices.Contains(touched, nb.Unit("pod/default/web")) || slices.Contains(touched, nb.Unit("pod/default/plain")) {
		t.Errorf("another address of the node touches %v", touched)
	}
	if text, _ := hostPortText(w, "web"); !strings.Contains(text, "192.0.2.77:80") {
		t.Errorf("no way in at the new address: %s", text)
	}
}

func TestAGatewayTakesInHostPorts(t *testing.T) {
	w := NewWorld()
	c := cluster(t, 1).WithChassis("n1", "chassis-1")
	w.Put(c)
	w.Put(hostNode(1))
	w.Put(withHostPort(newPod("web", "n1"), "0.0.0.0", 80, corev1.ProtocolTCP))
	w.Allocate()
	c, err := c.WithGateway("g", topology.Gateway{
		Mode: topology.Bridge, Interface: "breth0", Chassis: "chassis-1", MAC: "02:00:00:00:00:01", IPs: prefixes("192.0.2.1/24"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if touched := w.Put(c.WithNodeOnChassis("n1", "chassis-1")); !slices.Contains(touched, nb.Unit("pod/default/web")) {
		t.Errorf("a gateway touches %v", touched)
	}
	text, err := hostPortText(w, "web")
	if err != nil || !strings.Contains(text, "hostport/tcp/gateway") || !strings.Contains(text, `nexthops=["100.64.0.2"]`) {
		t.Errorf("%v: %s", err, text)
	}
}

func TestTheFirstKeepsAHostPort(t *testing.T) {
	w := NewWorld()
	w.Put(cluster(t, 1, 2).WithChassis("n1", "chassis-1").WithChassis("n2", "chassis-2"))
	w.Put(hostNode(1))
	w.Put(hostNode(2))
	put := func(name, node string, created int64) []nb.Unit {
		p := withHostPort(newPod(name, node), "", 30080, corev1.ProtocolTCP)
		p.CreationTimestamp = metav1.Unix(created, 0)
		touched := w.Put(p)
		return append(touched, w.Allocate()...)
	}
	fine := func(name string) {
		t.Helper()
		if text, err := hostPortText(w, name); err != nil || !strings.Contains(text, ":30080=") {
			t.Errorf("%s: %v: %s", name, err, text)
		}
	}
	loses := func(name, to string) {
		t.Helper()
		text, err := hostPortText(w, name)
		want := fmt.Sprintf("hostPort 30080/TCP of pod default/%s is in use by %s on node n1: choose another one", name, to)
		if err == nil || err.Error() != want || strings.Contains(text, ":30080=") {
			t.Errorf("%s: got %v: %s; want %s", name, err, text, want)
		}
	}
	put("a-young", "n1", 2)
	put("elsewhere", "n2", 3)
	fine("a-young")
	if touched := put("old", "n1", 1); !slices.Contains(touched, nb.Unit("pod/default/a-young")) {
		t.Errorf("the older pod touches only %v", touched)
	}
	fine("old")
	fine("elsewhere")
	loses("a-young", "pod default/old")
	if touched := w.Remove(newPod("old", "n1")); !slices.Contains(touched, nb.Unit("pod/default/a-young")) {
		t.Errorf("the older one's end touches only %v", touched)
	}
	fine("a-young")
	// A Service has the port on all nodes.
	s := newService("web", 1)
	s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30080
	if touched := w.Put(s); !slices.Contains(touched, nb.Unit("pod/default/a-young")) || !slices.Contains(touched, nb.Unit("pod/default/elsewhere")) {
		t.Errorf("a NodePort touches only %v", touched)
	}
	loses("a-young", "service default/web")
	if touched := w.Remove(s); !slices.Contains(touched, nb.Unit("pod/default/a-young")) {
		t.Errorf("the Service's end touches only %v", touched)
	}
	fine("a-young")
}

// L3, L6: a pod with the ports of older ones touches only itself. The oldest touches the pod whose ports it takes, not
// all that claim them. Only around ports.MaxNamed all are told another holder.
func TestHostPortsTouchYoungerPods(t *testing.T) {
	w := NewWorld()
	w.Put(cluster(t, 0, 1))
	const pods = 20
	all := make([]*corev1.Pod, pods)
	for i := range pods {
		p := newPod(fmt.Sprint("p", i), "n0")
		p.CreationTimestamp = metav1.Unix(int64(100+i), 0)
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80, ContainerPort: 80}, {HostPort: 80, ContainerPort: 81}, {HostPort: 81, ContainerPort: 81}}}}
		all[i] = p
		want := 1
		if i == ports.MaxNamed {
			want = i + 1
		}
		if touched := units(w.Put(p)); len(touched) != want {
			t.Errorf("pod %d touches %v", i, touched)
		}
	}
	if touched := units(w.Remove(all[0])); len(touched) != 2 {
		t.Errorf("the oldest touches %v", touched)
	}
}

// units lists each unit once.
func units(touched []nb.Unit) []nb.Unit {
	slices.Sort(touched)
	return slices.Compact(touched)
}

// rivalPod is a pod on node-1 with hostPorts from 8000 on, created at some time.
func rivalPod(i, ports, created int, ip string) *corev1.Pod {
	p := newPod(fmt.Sprint("rival-", i), "node-1")
	p.CreationTimestamp = metav1.Unix(int64(created), 0)
	for n := range ports {
		withHostPort(p, ip, int32(8000+n), corev1.ProtocolTCP)
	}
	return p
}

// L3: each pod with another right to a hostPort, or another message, is touched.
func TestRivalsOfHostPortsAreComplete(t *testing.T) {
	for seed := range uint64(10) {
		r, w := rand.New(rand.NewPCG(seed, 8)), manyNodes(t, 3)
		text := func(w *World, i int) string {
			rows, err := hostPortText(w, fmt.Sprint("rival-", i))
			return fmt.Sprint(rows, err)
		}
		before := map[int]string{}
		for step := range 200 {
			i := r.IntN(9)
			p := rivalPod(i, 1+r.IntN(2), r.IntN(4), pick(r, "", "", "0.0.0.0", "::", "192.100.0.2", "127.0.0.1"))
			if r.IntN(3) == 0 {
				withHostPort(p, pick(r, "", "192.100.0.2", "::"), 8000, corev1.ProtocolTCP)
			}
			var touched []nb.Unit
			if r.IntN(3) == 0 {
				touched = w.Remove(p)
			} else {
				touched = w.Put(p)
			}
			touched = append(touched, w.Allocate()...)
			for n := range 9 {
				now := text(w, n)
				if u := nb.Unit(fmt.Sprint("pod/default/rival-", n)); now != before[n] && !slices.Contains(touched, u) && step > 0 {
					t.Fatalf("seed %d step %d: pod %d is now %s, before %s, touched %v", seed, step, n, now, before[n], touched)
				}
				before[n] = now
			}
		}
	}
}

// manyHostPorts is a pod of node n1 with n hostPorts from a number on, created at some time.
func manyHostPorts(name string, n, from int, created int64) *corev1.Pod {
	p := newPod(name, "n1")
	p.CreationTimestamp = metav1.Unix(created, 0)
	for i := range n {
		withHostPort(p, "", int32(from+i), corev1.ProtocolTCP)
	}
	return p
}

// L3: the hostPorts of a namespace's pods are limited together. A younger pod above the limit has its port and no
// hostPorts, and a Problem with the figures; all others have theirs. So has this one when an older one goes.
func TestHostPortsOfANamespaceAreBounded(t *testing.T) {
	const most = ports.OrdinaryHostPorts + ports.MaxHostPorts/2
	w := NewWorld()
	w.Put(cluster(t, 1, 2).WithChassis("n1", "chassis-1").WithChassis("n2", "chassis-2"))
	w.Put(hostNode(1))
	w.Put(hostNode(2))
	put := func(p *corev1.Pod) []nb.Unit { return append(w.Put(p), w.Allocate()...) }
	served := func(name string) bool {
		text, err := hostPortText(w, name)
		return err == nil && strings.Contains(text, "hostport/tcp")
	}
	put(manyHostPorts("young", 500, 20000, 3))
	put(manyHostPorts("old", most-10, 1, 1))
	if !served("young") || !served("old") {
		t.Error("within the limit, one is refused")
	}
	if touched := put(manyHostPorts("older", most-20, 10000, 0)); !slices.Contains(touched, nb.Unit("pod/default/young")) {
		t.Errorf("an older pod touches only %v", touched)
	}
	text, err := hostPortText(w, "young")
	want := fmt.Sprintf("pod default/young has no hostPorts: above %d it has 490 more, and older pods of namespace default leave less of %d", ports.OrdinaryHostPorts, ports.MaxHostPorts)
	if text != "" || err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("young: %v: %.300s", err, text)
	}
	if rows, _ := w.Rows("pod/default/young"); len(rows) != 1 {
		t.Errorf("young has %d rows, want that of its port", len(rows))
	}
	if _, p, ok := w.HostPorts("pod/default/young"); !ok || len(p.HostPorts) > 0 {
		t.Errorf("young is shown with %d hostPorts", len(p.HostPorts))
	}
	put(manyHostPorts("ordinary", ports.OrdinaryHostPorts, 30000, 9))
	elsewhere := manyHostPorts("young", 500, 40000, 4)
	elsewhere.Namespace, elsewhere.Spec.NodeName = "elsewhere", "n2"
	put(elsewhere)
	if rows, err := w.Rows("pod/elsewhere/young"); err != nil || len(rows) < 2 || !served("ordinary") || !served("old") || !served("older") {
		t.Errorf("others are refused: %v", err)
	}
	if touched := w.Remove(newPod("old", "n1")); !slices.Contains(touched, nb.Unit("pod/default/young")) || !served("young") {
		t.Errorf("the older one's end touches only %v", touched)
	}
}
