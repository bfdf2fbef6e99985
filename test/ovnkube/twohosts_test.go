package ovnkube

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// rivals are a node in use, and a host that joins with one of its names.
type rivals struct {
	*cluster
	first, second *world.Node
	sessions      *sessions // of the pod of the first host
}

// Two hosts with one node name, and two hosts with one system-id: the first keeps working, with its gateway and its pods. The
// second one says so in one line, writes an Event, and joins when it has names of its own.
func TestTwoHostsWithOneName(t *testing.T) {
	c := newCluster(t, world.Options{})
	c.run()
	r := &rivals{cluster: c, first: c.Node("minion1"), second: c.Node("minion2")}
	_, err := c.AddGateway(c.ctx, r.first, world.Local)
	c.must(err)
	r.useFirst()
	own := r.leave()
	r.oneNodeName(own)
	r.oneSystemID()
	r.joins()
}

// useFirst opens sessions of a pod on the first host: with a pod elsewhere, with the outside by its gateway, and with its host.
func (r *rivals) useFirst() {
	r.Helper()
	r.sessions = r.newSessions(map[string]string{"a": r.Master().Name, "b": r.first.Name})
	r.sessions.ring("a", "b")
	hosts, err := r.ServeHosts()
	r.must(err)
	r.Cleanup(hosts.Close)
	b := r.sessions.pods["b"]
	r.sessions.open(b, "b to the outside", probe.Address(hosts.Outside.Addresses[0], kubelet.DefaultPort))
	r.sessions.open(hosts.Nodes[1], "the first host to b", probe.Address(b.Addresses[0], kubelet.DefaultPort))
}

// leave takes the second host out of the cluster, and returns its token.
func (r *rivals) leave() (token []byte) {
	r.Helper()
	r.second.Kubelet.Stop()
	r.must(r.CleanNode(r.ctx, r.second))
	r.must(r.Kube.Client().CoreV1().Nodes().Delete(r.ctx, r.second.Name, metav1.DeleteOptions{}))
	token, err := os.ReadFile(r.second.Path(world.OVNKubeTokenFile))
	r.must(err)
	return token
}

// oneNodeName starts ovnkube on the second host as the Node of the first one, with its token, and ends it.
func (r *rivals) oneNodeName(own []byte) {
	r.Helper()
	token, err := os.ReadFile(r.first.Path(world.OVNKubeTokenFile))
	r.must(err)
	r.must(os.WriteFile(r.second.Path(world.OVNKubeTokenFile), token, 0o600))
	r.must(r.RestartOVNKube(r.ctx, r.second, "-init-node="+r.first.Name))
	r.isRefused(r.first.Name, "TwoHosts", fmt.Sprintf("Node %s is the host with system-id %s and address %v, and this host with system-id %s has another address", r.first.Name, r.first.Name, r.first.IPv4(), r.second.Name))
	r.must(r.second.Kill(r.ctx, world.OVNKubePidfile))
	r.must(os.WriteFile(r.second.Path(world.OVNKubeTokenFile), own, 0o600))
}

// oneSystemID gives the second host the system-id of the first one, as a copy of its disk has it, and starts its node.
func (r *rivals) oneSystemID() {
	r.Helper()
	r.must(r.second.StopController(r.ctx))
	r.must(r.second.VSCtl(r.ctx, "remove", "Open_vSwitch", ".", "external_ids", "ovn-remote", "--", "set", "Open_vSwitch", ".", "external_ids:system-id="+r.first.Name))
	_, err := r.Central.SBCtl("--if-exists", "chassis-del", r.second.Name)
	r.must(err)
	r.must(r.second.ResumeController(r.ctx))
	r.must(r.second.Kubelet.Start(r.ctx))
	r.must(r.RestartOVNKube(r.ctx, r.second))
	r.isRefused(r.second.Name, "SameSystemID", fmt.Sprintf("Node %s has system-id %s already, and this host is Node %s", r.first.Name, r.first.Name, r.second.Name))
	tunnel, err := r.Central.SBCtl("--bare", "--columns=ip", "find", "Encap", "chassis_name="+r.first.Name)
	if err != nil || tunnel != r.first.IPv4().String() {
		r.Errorf("tunnels to %s lead to %q, %v", r.first.Name, tunnel, err)
	}
}

// isRefused waits for the line and the Event of the second host about a Node. Nothing of the host or of the first one changes.
func (r *rivals) isRefused(node, reason, text string) {
	r.Helper()
	log := func() string {
		text, err := os.ReadFile(r.second.Path(world.OVNKubeLog))
		r.must(err)
		return string(text)
	}
	r.eventually("the log of "+r.second.Name, func() error {
		if got := log(); !strings.Contains(got, text) {
			return fmt.Errorf("no %q in %s", text, got)
		}
		return nil
	})
	r.eventually("the Event "+reason, func() error {
		all, err := r.Kube.Client().CoreV1().Events("default").List(r.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + node})
		if err == nil && !slices.ContainsFunc(all.Items, func(e corev1.Event) bool { return e.Reason == reason && strings.Contains(e.Message, text) }) {
			err = fmt.Errorf("there are %d others", len(all.Items))
		}
		return err
	})
	if n := strings.Count(log(), text); n != 1 {
		r.Errorf("%d lines with %q", n, text)
	}
	if ports, err := r.second.VSGet(r.ctx, "list-ports", "br-int"); err != nil || strings.Contains(ports, "k8s-") {
		r.Errorf("ports of br-int on %s: %s, %v", r.second.Name, ports, err)
	}
	for _, n := range []*world.Node{r.first, r.Master()} {
		r.eventually("check of "+n.Name, func() error { return r.CheckOVNKube(r.ctx, n) })
	}
	r.sessions.goOn(reason)
}

// joins gives the second host a system-id of its own: then it needs no restart.
func (r *rivals) joins() {
	r.Helper()
	r.must(r.second.VSCtl(r.ctx, "set", "Open_vSwitch", ".", "external_ids:system-id="+r.second.Name))
	r.eventually("the second host joins", func() error { return r.CheckOVNKube(r.ctx, r.second) })
	r.must(r.create(r.ctx, "c", r.second.Name))
	r.reach(world.Matrix([]world.Endpoint{r.sessions.pods["b"]}, []world.Endpoint{r.await("c")}))
	r.sessions.goOn("the second host has joined")
	node, err := r.Kube.Client().CoreV1().Nodes().Get(r.ctx, r.first.Name, metav1.GetOptions{})
	if err != nil || node.Annotations[names.ChassisAnnotation] != r.first.Name {
		r.Errorf("the claim of %s: %v, %v", r.first.Name, node.Annotations, err)
	}
}
