package policy

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/pod"
)

// toNamed is a policy of ns-0: its pods may connect to the port p0 of all pods.
func toNamed() *networkingv1.NetworkPolicy {
	ports, _ := named(1, 0)
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns-0", Name: "named"}}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}, Ports: ports}}
	return p
}

// numbered puts a pod with the port p0.
func numbered(x *Index, k pod.Key, number int) {
	x.PutPod(k, map[string]string{"app": "web"}, []Port{{"p0", corev1.ProtocolTCP, uint16(number)}})
}

// L2: whoever may create pods chooses the numbers of their named ports. Thousands of numbers in the namespaces of strangers
// close no policy: only such pods are left out, and the others keep their connections, those of its own namespace first.
func TestNumbersOfStrangersCloseNoPolicy(t *testing.T) {
	x := populated(10)
	x.PutPolicy(New(toNamed()))
	client := pod.Key{Namespace: "ns-0", Name: "pod-0"}
	own, neighbour, shared := pod.Key{Namespace: "ns-0", Name: "own"}, pod.Key{Namespace: "ns-1", Name: "neighbour"}, pod.Key{Namespace: "ns-9", Name: "shared"}
	numbered(x, own, 8080)
	numbered(x, neighbour, 9090)
	numbered(x, shared, 9090)
	reaches := func(k pod.Key, port uint16) bool {
		t.Helper()
		from, _ := x.Check(Connection{From: Endpoint{Pod: client}, To: Endpoint{Pod: k}, Proto: corev1.ProtocolTCP, Port: port})
		rows, _ := x.Rows(Key{"ns-0", "named"}.Unit())
		allowed := false
		for _, ref := range x.Refs(k) {
			allowed = allowed || strings.Contains(fmt.Sprint(rows), "$"+ref.ID+"_ip4")
		}
		if allowed != from.Allowed {
			t.Errorf("%s: the rows allow it: %t; %s", k, allowed, from.Reason)
		}
		return from.Allowed
	}
	expect := func(what string, strangers bool, problem string) {
		t.Helper()
		rows, got := x.Rows(Key{"ns-0", "named"}.Unit())
		if (got == "") != (problem == "") || !strings.Contains(got, problem) {
			t.Errorf("%s: %s", what, got)
		}
		if len(rows) == 0 || len(rows) > 1 {
			t.Errorf("%s: %d rows", what, len(rows))
		}
		if !reaches(own, 8080) || !reaches(neighbour, 9090) || !reaches(shared, 9090) {
			t.Errorf("%s: ordinary pods cannot be reached", what)
		}
		stranger := pod.Key{Namespace: "ns-9", Name: "web-7"}
		if reaches(stranger, 10_007) != strangers {
			t.Errorf("%s: the stranger can be reached: %t", what, !strangers)
		}
		groups := 0
		for _, u := range x.Units() {
			rows, _ := x.Rows(u)
			groups += len(rows)
		}
		if groups > defaultLimits().portSets+5 {
			t.Errorf("%s: %d rows", what, groups)
		}
	}
	web := func(i int) pod.Key { return pod.Key{Namespace: "ns-9", Name: fmt.Sprint("web-", i)} }
	for i := range 900 {
		numbered(x, web(i), 10_000+i)
	}
	expect("many numbers", true, "")
	for i := range 600 {
		numbered(x, web(900+i), 10_900+i)
	}
	expect("too many", false, "only in other namespaces with 1024 or more different ones: with these, they would be more than 1000 port groups")
	for i := range 700 {
		x.RemovePod(web(800 + i))
	}
	expect("many again", true, "")
	for i := range 600 {
		numbered(x, pod.Key{Namespace: "ns-8", Name: fmt.Sprint("web-", i)}, 30_000+i)
	}
	expect("too many in two namespaces", false, "with 512 or more different ones")
	for i := range 900 {
		numbered(x, pod.Key{Namespace: "ns-0", Name: fmt.Sprint("web-", i)}, 40_000+i)
	}
	expect("many in its own namespace, too", false, "with 512 or more different ones")
	if k := (pod.Key{Namespace: "ns-0", Name: "web-899"}); !reaches(k, 40_899) {
		t.Error("a pod of the policy's own namespace is left out for those of strangers")
	}
}

// L2: a policy that is closed by the numbers in its own namespace opens when pods there are gone, even if it came after them and
// another namespace keeps all their numbers.
func TestAPolicyAfterItsPodsOpensAgain(t *testing.T) {
	for _, late := range []bool{false, true} {
		x := populated(10)
		put := func(when bool) {
			if late == when {
				x.PutPolicy(New(toNamed()))
			}
		}
		put(false)
		for i := range 1100 {
			for _, ns := range []string{"ns-0", "ns-1"} {
				numbered(x, pod.Key{Namespace: ns, Name: fmt.Sprint("web-", i)}, 10_000+i)
			}
		}
		put(true)
		rows := func() int {
			rows, _ := x.Rows(Key{"ns-0", "named"}.Unit())
			return len(rows)
		}
		if n := rows(); n > 0 {
			t.Errorf("policy last: %t: %d rows at too many numbers", late, n)
		}
		for i := range 1050 {
			x.RemovePod(pod.Key{Namespace: "ns-0", Name: fmt.Sprint("web-", i)})
		}
		if n := rows(); n != 1 {
			t.Errorf("policy last: %t: %d rows after its namespace has few numbers", late, n)
		}
	}
}
