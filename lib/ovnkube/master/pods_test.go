package master_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const dualRanges = "10.0.0.0/16/24,fd00::/48/64"

// pod creates a pod on a node.
func (n *network) pod(name, node string, edit func(*corev1.Pod)) {
	n.Helper()
	_, err := cluster.CreatePod(n.Context(), "default", name, node, edit)
	must(n.T, err)
}

// annotation is that of a pod with its network.
func (n *network) annotation(name string) string {
	n.Helper()
	p, err := cluster.Client().CoreV1().Pods("default").Get(n.Context(), name, metav1.GetOptions{})
	must(n.T, err)
	return p.Annotations["ovn"]
}

// port are the addresses of a pod's port in the database.
func (n *network) port(name string) string {
	n.Helper()
	return n.find("Logical_Switch_Port", "addresses", "name=default_"+name)
}

// awaitPod waits until a pod has its port and its annotation with the same addresses. It returns them: the MAC, and addresses with
// lengths.
func (n *network) awaitPod(name string) (all []string) {
	n.Helper()
	eventually(n.T, "pod "+name+" has its network", func() bool {
		var a struct {
			IPs string `json:"ip_address"`
			MAC string `json:"mac_address"`
		}
		text := n.annotation(name)
		if text == "" {
			return false
		}
		must(n.T, json.Unmarshal([]byte(text), &a))
		all = append([]string{a.MAC}, strings.Split(a.IPs, ",")...)
		var port []string
		for _, f := range all {
			port = append(port, strings.Split(f, "/")[0])
		}
		return n.port(name) == strings.Join(port, " ")
	})
	return all
}

// AC-33: the logical port of a node with a long name has all of it.
func TestCheck33_LongName(t *testing.T) {
	const name = "rack7-node-with-a-capital-name"
	n := newNetwork(t)
	n.start(dualRanges, false)
	n.node(name, nil)
	n.awaitSubnet(name, "")
	eventually(t, "the port of the host", func() bool { return n.find("Logical_Switch_Port", "name", "name=k8s-"+name) != "" })
}

// AC-36: pods that are created together with their node, in any order, have none of the addresses of the router and the host.
func TestCheck36_FirstPods(t *testing.T) {
	const nodes, each = 10, 4
	n := newNetwork(t)
	n.start(dualRanges, false)
	var g errgroup.Group
	for i := range nodes {
		node := fmt.Sprint("n", i)
		g.Go(func() error {
			_, err := cluster.CreateNode(t.Context(), node)
			return err
		})
		for j := range each {
			g.Go(func() error {
				_, err := cluster.CreatePod(t.Context(), "default", fmt.Sprintf("%s-%d", node, j), node, nil)
				return err
			})
		}
	}
	must(t, g.Wait())
	taken := map[string]string{}
	for i := range nodes {
		subnets := n.awaitSubnet(fmt.Sprint("n", i), "") // pods may have their addresses first
		for j := range each {
			name := fmt.Sprintf("n%d-%d", i, j)
			for _, text := range n.awaitPod(name)[1:] {
				p := netip.MustParsePrefix(text)
				router := p.Masked().Addr().Next()
				if p.Addr() == router || p.Addr() == router.Next() || taken[text] != "" || !strings.Contains(subnets, p.Masked().String()) {
					t.Errorf("pod %s has %s (%q has it, too)", name, text, taken[text])
				}
				taken[text] = name
			}
		}
	}
}

// AC-53: a pod gets a port with our keys, and an annotation of three strings with an address of its node's subnet.
func TestCheck53_PodToPort(t *testing.T) {
	n := newNetwork(t)
	n.start("10.0.0.0/16/24", false)
	n.node("a", nil)
	subnet := netip.MustParsePrefix(n.awaitSubnet("a", ""))
	n.pod("one", "a", nil)
	n.awaitPod("one")
	var got map[string]string
	must(t, json.Unmarshal([]byte(n.annotation("one")), &got))
	ip, err := netip.ParsePrefix(got["ip_address"])
	if err != nil || ip.Masked() != subnet || len(got) != 3 || got["mac_address"] == "" || got["gateway_ip"] != subnet.Addr().Next().String() {
		t.Errorf("subnet %v, annotation %v, %v", subnet, got, err)
	}
	port := n.find("Logical_Switch_Port", "_uuid", "name=default_one")
	if ports := n.find("Logical_Switch", "ports", "name=a"); !strings.Contains(ports, port) {
		t.Errorf("port %s is not on the node's switch: %s", port, ports)
	}
	keys := n.find("Logical_Switch_Port", "external_ids", "name=default_one")
	for _, want := range []string{"namespace=default", "pod=true", "ovn-k8s-owner=pod/default/one", "ovn-k8s-id=default_one"} {
		if !strings.Contains(keys, want) {
			t.Errorf("no %s in %s", want, keys)
		}
	}
}

// AC-54: a pod in the host's network has no port and no annotation, and policies do not select its address.
func TestCheck54_HostNetwork(t *testing.T) {
	const address = "192.0.2.54"
	n := newNetwork(t)
	n.start(dualRanges, false)
	n.node("a", nil)
	all := metav1.LabelSelector{}
	policies := cluster.Client().NetworkingV1().NetworkPolicies("default")
	_, err := policies.Create(t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "from-all"},
		Spec:       networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &all}}}}},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { _ = policies.Delete(context.Background(), "from-all", metav1.DeleteOptions{}) })
	n.pod("host", "a", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	p, err := cluster.Client().CoreV1().Pods("default").Get(t.Context(), "host", metav1.GetOptions{})
	must(t, err)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: address, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}}
	_, err = cluster.Client().CoreV1().Pods("default").UpdateStatus(t.Context(), p, metav1.UpdateOptions{})
	must(t, err)
	n.pod("other", "a", nil)
	n.awaitPod("other")
	port := n.find("Logical_Switch_Port", "_uuid", "name=default_other")
	eventually(t, "a port group with the pod beside it", func() bool { return strings.Contains(n.find("Port_Group", "ports"), port) })
	for _, table := range []string{"Address_Set", "Port_Group", "ACL"} {
		if rows := n.nbctl("list", table); strings.Contains(rows, address) {
			t.Errorf("%s has %s: %s", table, address, rows)
		}
	}
	if n.port("host") != "" || n.annotation("host") != "" {
		t.Errorf("it has port %q and annotation %q", n.port("host"), n.annotation("host"))
	}
}

// AC-55: pods keep their addresses when the master restarts, and when the database was emptied before. AC-57: the port of a pod
// that is deleted while no master runs goes.
func TestCheck55_57_Restarts(t *testing.T) {
	n := newNetwork(t)
	m := n.start(dualRanges, false)
	n.node("a", nil)
	before := map[string]string{}
	for _, name := range []string{"one", "two", "three"} {
		n.pod(name, "a", nil)
		n.awaitPod(name)
		before[name] = n.annotation(name) + n.port(name)
	}
	for round, empty := range []bool{false, true} {
		m.stop()
		gone := []string{"one", "two"}[round]
		must(t, cluster.DeletePod(t.Context(), "default", gone))
		delete(before, gone)
		if empty {
			n.central.StopNB()
			must(t, n.central.StartEmptyNB())
		}
		m = n.start(dualRanges, false)
		n.pod(fmt.Sprint("new", round), "a", nil)
		n.awaitPod(fmt.Sprint("new", round))
		eventually(t, "the port of pod "+gone+" is gone", func() bool { return n.port(gone) == "" })
		for name, want := range before {
			n.awaitPod(name)
			if got := n.annotation(name) + n.port(name); got != want {
				t.Errorf("round %d: pod %s has %s, before %s", round, name, got, want)
			}
		}
	}
}

// AC-56: pods of a node that cannot have a switch wait, and those of another node that come after them do not.
func TestCheck56_ANodeWithoutSwitch(t *testing.T) {
	const each = 250
	n := newNetwork(t)
	n.nbctl("ls-add", "blocked") // somebody else's
	n.start("10.0.0.0/16/23", false)
	n.node("blocked", nil)
	n.awaitEvent("blocked", "NodeNotReady", "blocked")
	n.node("free", nil)
	n.awaitSubnet("free", "")
	annotated := func() map[string]int {
		list, err := cluster.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		count := map[string]int{}
		for _, p := range list.Items {
			if p.Annotations["ovn"] != "" {
				count[p.Spec.NodeName]++
			}
		}
		return count
	}
	for _, node := range []string{"blocked", "free"} {
		var g errgroup.Group
		g.SetLimit(50)
		for i := range each {
			g.Go(func() error {
				_, err := cluster.CreatePod(t.Context(), "default", fmt.Sprintf("%s-%d", node, i), node, nil)
				return err
			})
		}
		must(t, g.Wait())
	}
	eventually(t, "all pods of the node with a switch", func() bool { return annotated()["free"] == each })
	if got := annotated()["blocked"]; got != 0 {
		t.Errorf("%d pods of the node without a switch have annotations", got)
	}
	n.nbctl("ls-del", "blocked")
	eventually(t, "all pods of the other node", func() bool { return annotated()["blocked"] == each })
}

// AC-58: a pod that is created while the database is away has its port when that is back, without another event.
func TestCheck58_WithoutDatabase(t *testing.T) {
	n := newNetwork(t)
	n.start(dualRanges, false)
	n.node("a", nil)
	n.pod("before", "a", nil)
	n.awaitPod("before")
	n.central.StopNB()
	n.pod("during", "a", nil)
	eventually(t, "the master knows that it has no database", func() bool { return n.log.count("lost the connection to NB") > 0 })
	eventually(t, "the master has the pod", func() bool { return n.annotation("during") != "" })
	must(t, n.central.StartNB())
	n.awaitPod("during")
}
