package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// service creates a Service without selector, with port 80 of TCP, for the duration of the test.
func (w api) service(name string, edit func(*corev1.Service)) *corev1.Service {
	w.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
	if edit != nil {
		edit(s)
	}
	api := cluster.Client().CoreV1().Services("default")
	s, err := api.Create(w.Context(), s, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = api.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	return s
}

func (w api) deleteService(name string) {
	w.Helper()
	if err := cluster.Client().CoreV1().Services("default").Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// endpoints writes the endpoints of a Service: "ADDRESS@NODE".
func (w api) endpoints(service string, all ...string) {
	w.Helper()
	http, port := "http", int32(8080)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &http, Port: &port}},
	}
	for _, e := range all {
		address, node, _ := strings.Cut(e, "@")
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, NodeName: &node})
	}
	api := cluster.Client().DiscoveryV1().EndpointSlices("default")
	if _, err := api.Update(w.Context(), s, metav1.UpdateOptions{}); err == nil {
		return
	}
	if _, err := api.Create(w.Context(), s, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = api.Delete(context.Background(), service, metav1.DeleteOptions{}) })
}

// waysIn are the names and frontends of a Service's load balancers, sorted.
func (w *world) waysIn(service string) string {
	w.Helper()
	return w.balancers(service, "name,vips")
}

// balancers are columns of a Service's load balancers, sorted: ovn-nbctl prints rows in no fixed order.
func (w *world) balancers(service, columns string) string {
	w.Helper()
	out := w.nbctl("--format=csv", "--no-headings", "--columns="+columns, "find", "load_balancer", "external_ids:ovn-k8s-owner=service/default/"+service)
	lines := strings.Split(strings.ReplaceAll(out, `"`, ""), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// become waits until the load balancers of a Service are as wanted.
func (w *world) become(service string, want ...string) {
	w.Helper()
	slices.Sort(want)
	var got string
	w.eventually(fmt.Sprintf("ways into %s: %q", service, want), func() bool {
		got = w.waysIn(service)
		return got == strings.Join(want, "\n")
	})
}

// P4: a load balancer of the Python era with a Service's frontend is named by --check and by the log, with the
// command to remove it, and is not touched.
func TestUnownedLoadBalancerIsNamed(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	p := w.start()
	frontend := w.service("web", nil).Spec.ClusterIP + ":80"
	w.endpoints("web", "192.168.2.3@node1")
	w.become("web", "web/tcp@default,{"+frontend+"=192.168.2.3:8080}")
	p.kill()
	old := w.nbctl("create", "load_balancer", "external_ids:k8s-cluster-lb-tcp=yes", "vips:\""+frontend+"\"=\"192.168.2.99:8080\"")
	if status, out, _ := w.once(w.args("--check")...); status != 0 {
		t.Errorf("one on no switch: status %d\n%s", status, out)
	}
	w.nbctl("ls-lb-add", "node1", old)
	want := "load balancer " + old + " (k8s-cluster-lb-tcp=yes), which is not ours, takes connections to " + frontend + "/tcp of service default/web: remove it with \"ovn-nbctl lb-del " + old + "\""
	status, out, _ := w.once(w.args("--check")...)
	if status != 1 || !strings.Contains(out, want) {
		t.Errorf("status %d, no %q in\n%s", status, want, out)
	}
	p = w.start()
	w.eventually("the log names it", func() bool { return strings.Contains(strings.ReplaceAll(p.log.String(), `\\"`, `"`), want) })
	w.nbctl("lb-del", old)
	if status, out, _ := w.once(w.args("--check")...); status != 0 {
		t.Errorf("when it is gone: status %d\n%s", status, out)
	}
}

func TestCheck43_EndpointsOfAClusterIP(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	w.start()
	at := "web/tcp@default,{" + w.service("web", nil).Spec.ClusterIP + ":80="
	w.endpoints("web", "192.168.2.3@node1", "192.168.2.4@node1")
	w.become("web", at+"192.168.2.3:8080,192.168.2.4:8080}")
	w.endpoints("web", "192.168.2.4@node1")
	w.become("web", at+"192.168.2.4:8080}")
	w.endpoints("web")
	w.become("web", at+"}") // connections are refused
}

// Both gateways have the frontends at their hosts' addresses; external and load balancer addresses are in one row
// shared by both.
func TestCheck45_46_50_WaysInThroughGateways(t *testing.T) {
	w := newWorld(t, nil)
	w.gateways(w.topology(map[string]string{"node1": "192.168.2.0/24"}), map[string]string{"gw1": "127.0.0.1", "gw2": "127.0.0.1"})
	w.start()
	s := w.service("web", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, []string{"203.0.113.9"}
		s.Spec.Ports[0].NodePort = 30082
	})
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.129"}}
	if _, err := cluster.Client().CoreV1().Services("default").UpdateStatus(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.endpoints("web", "192.168.2.3@node1")
	const to = "=192.168.2.3:8080"
	w.become("web",
		fmt.Sprintf("web/tcp@default,{%s:80%s, 203.0.113.129:80%s, 203.0.113.9:80%s}", s.Spec.ClusterIP, to, to, to),
		"web/tcp/node4@default,{^ovn_k8s_address4_0:30082"+to+"}")
	group := w.nbctl("--bare", "--columns=_uuid", "find", "load_balancer_group", "name=ovn-k8s-cluster")
	for _, name := range []string{"web/tcp@default", "web/tcp/node4@default"} {
		id := w.nbctl("--bare", "--columns=_uuid", "find", "load_balancer", "name="+name)
		if !strings.Contains(w.nbctl("get", "load_balancer_group", group, "load_balancer"), id) {
			t.Errorf("%s is in another group", name)
		}
	}
	for n, gateway := range map[string]string{"1": "gw1", "2": "gw2"} {
		if !strings.Contains(w.nbctl("get", "logical_router", "GR_"+gateway, "load_balancer_group"), group) {
			t.Errorf("%s does not have the group", gateway)
		}
		got := w.nbctl("--bare", "--columns=variables", "find", "chassis_template_var", "chassis=chassis-"+gateway)
		if want := "ovn_k8s_address4_0=10.0.0." + n; got != want {
			t.Errorf("%s has %q, want %q", gateway, got, want)
		}
	}
}

// Endpoints of a Service not yet created.
func TestCheck51_54_EndpointsBeforeTheirService(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	p := w.start()
	w.endpoints("web", "192.168.2.3@node1")
	w.pod("a", "node1", nil)
	w.annotation("a")
	if got := w.waysIn("web"); got != "" {
		t.Errorf("load balancers %q of no Service", got)
	}
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, "default/web") {
			t.Errorf("of endpoints without a Service it says: %s", line)
		}
	}
	s := w.service("web", nil)
	w.become("web", "web/tcp@default,{"+s.Spec.ClusterIP+":80=192.168.2.3:8080}")
}

// A deleted Service leaves nothing: no load balancer of cluster or gateways, no policy, no ACL, no variable. Later
// endpoints have no effect.
func TestCheck48_ADeletedServiceLeavesNothing(t *testing.T) {
	w := newWorld(t, nil)
	c := w.topology(map[string]string{"node1": "192.168.2.0/24"})
	w.gateways(c.WithChassis("node1", "chassis-gw1"), map[string]string{"gw1": "127.0.0.1"})
	w.start()
	w.endpoints("web", "192.168.2.3@node1")
	s := w.service("web", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalIPs = corev1.ServiceTypeLoadBalancer, []string{"203.0.113.9"}
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
	})
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.129"}}
	if _, err := cluster.Client().CoreV1().Services("default").UpdateStatus(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	owners := map[string]string{"load_balancer": "service/default/web", "acl": "service/default/web", "logical_router_policy": "return/node1"}
	count := func() (tables int) {
		for table, owner := range owners {
			if w.nbctl("--bare", "--columns=_uuid", "find", table, "external_ids:ovn-k8s-owner="+owner) != "" {
				tables++
			}
		}
		return tables
	}
	variables := func() string { return w.nbctl("--bare", "--columns=variables", "list", "chassis_template_var") }
	w.eventually("it has rows of every kind", func() bool {
		return count() == len(owners) && strings.Contains(variables(), "default.web")
	})
	w.deleteService("web")
	w.eventually("nothing is left", func() bool {
		return count() == 0 && !strings.Contains(variables(), "default.web")
	})
	if _, err := cluster.Client().DiscoveryV1().EndpointSlices("default").Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
		t.Errorf("the endpoints should be there still: %v", err)
	}
}

// Rows damaged without a running watcher are repaired at its start, and correct rows stay.
func TestCheck49_StaleWaysInGoAtStart(t *testing.T) {
	w := newWorld(t, nil)
	w.gateways(w.topology(map[string]string{"node1": "192.168.2.0/24"}), map[string]string{"gw1": "127.0.0.1"})
	p := w.start()
	nodePort := func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }
	kept := w.service("kept", nodePort)
	w.service("stale", nodePort)
	for _, name := range []string{"kept", "stale"} {
		w.endpoints(name, "192.168.2.3@node1")
		w.eventually(name+" has its ways in", func() bool { return strings.Count(w.waysIn(name), "192.168.2.3:8080") == 2 })
	}
	before := w.balancers("kept", "_uuid,vips")
	p.kill()
	w.deleteService("stale")
	for _, row := range []string{"kept/tcp@default", "kept/tcp/node4@default"} {
		w.nbctl("set", "load_balancer", row, `vips:"10.96.0.77:80"="192.168.2.9:80"`)
	}
	w.nbctl("lb-add", "theirs", "10.96.0.78:80", "192.168.2.9:80")
	w.start()
	w.eventually("stale ways in are gone", func() bool {
		return w.waysIn("stale") == "" && !strings.Contains(w.waysIn("kept"), "10.96.0.77") && strings.Contains(w.waysIn("kept"), kept.Spec.ClusterIP)
	})
	if after := w.balancers("kept", "_uuid,vips"); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if w.nbctl("--bare", "--columns=name", "find", "load_balancer", "name=theirs") == "" {
		t.Error("a load balancer of somebody else's is gone")
	}
}
