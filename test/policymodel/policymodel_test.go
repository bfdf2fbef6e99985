package policymodel_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/test/policymodel"
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// strangers are addresses outside of the cluster.
var strangers = []string{"192.0.2.7", "192.0.2.200", "203.0.113.1", "2001:db8::7", "2001:db8:1::1", "2001:db9::1"}

// fill puts a cluster into a World, allocates the pods' addresses, and adds them to
// c.
func fill(t testing.TB, c *policymodel.Cluster) *desired.World {
	t.Helper()
	top, err := topology.New(names.ClusterRouter, prefixes("10.0.0.0/16", "fd00::/48"), prefixes("100.64.0.0/16", "fd98::/64"))
	if err != nil {
		t.Fatal(err)
	}
	w := desired.NewWorld()
	for i, n := range c.Nodes {
		subnets := prefixes(fmt.Sprintf("10.0.%d.0/24", i+1), fmt.Sprintf("fd00:0:0:%d::/64", i+1))
		if top, err = top.WithNode(n.Name, subnets); err != nil {
			t.Fatal(err)
		}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.16.0.%d", i+1)}}
	}
	w.Put(top)
	for _, n := range c.Nodes {
		w.Put(n)
		for _, a := range topology.ManagementPort(top.Nodes[n.Name]).IPs { // only for the reference model
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.Addr().String()})
		}
	}
	for _, p := range c.Policies {
		w.Put(p)
	}
	for _, p := range c.Pods {
		w.Put(p)
	}
	for _, n := range c.Namespaces {
		w.Put(n)
	}
	w.Allocate()
	for _, p := range c.Pods {
		a, ok := w.Pods.Annotation(pod.Key{Namespace: p.Namespace, Name: p.Name}.Unit())
		if !ok {
			t.Fatalf("pod %s/%s has no address", p.Namespace, p.Name)
		}
		for _, ip := range a.Addresses.IPs {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip.Addr().String()})
		}
	}
	return w
}

// connections lists all testable connections of a cluster.
func connections(c policymodel.Cluster) (out []policymodel.Connection) {
	var all, pods []netip.Addr
	for _, p := range c.Pods {
		for _, ip := range p.Status.PodIPs {
			pods = append(pods, netip.MustParseAddr(ip.IP))
		}
	}
	for _, n := range c.Nodes {
		for _, a := range n.Status.Addresses {
			all = append(all, netip.MustParseAddr(a.Address))
		}
	}
	for _, s := range strangers {
		all = append(all, netip.MustParseAddr(s))
	}
	all = append(all, pods...)
	pair := func(from, to netip.Addr) {
		if !ipnet.SameFamily(from, to) {
			return
		}
		out = append(out, policymodel.Connection{From: from, To: to})
		for _, proto := range policymodel.Protocols() {
			for _, port := range policymodel.Ports(proto) {
				out = append(out, policymodel.Connection{From: from, To: to, Proto: proto, Port: port})
			}
		}
	}
	for _, p := range pods {
		for _, a := range all {
			pair(p, a)
		}
		for _, a := range all[:len(all)-len(pods)] {
			pair(a, p)
		}
	}
	return out
}

// ask runs policy/check on the World.
func ask(t testing.TB, w *desired.World, c policymodel.Connection) (bool, string) {
	t.Helper()
	q := policy.Query{From: policy.Party{Addr: c.From}, To: policy.Party{Addr: c.To}, Proto: c.Proto, Port: uint16(c.Port)}
	answer, err := w.Check(q)
	if err != nil {
		t.Fatal(err)
	}
	return strings.HasPrefix(answer, "allow "), answer
}

func describe(c policymodel.Cluster) string {
	b, _ := yaml.Marshal(c)
	return string(b)
}

// For every pair of addresses in 2 000 random clusters and every port, policy/check
// agrees with the reference model.
func TestCheckAgreesWithTheOracle(t *testing.T) {
	clusters := uint64(2000)
	if testing.Short() {
		clusters = 200
	}
	asked, denied := 0, 0
	for seed := range clusters {
		c := policymodel.NewSource(seed).Cluster()
		w := fill(t, &c)
		for _, conn := range connections(c) {
			want := c.Allowed(conn)
			got, answer := ask(t, w, conn)
			if got != want {
				t.Fatalf("seed %d: %+v: oracle says %t, policy/check %s\n%s", seed, conn, want, answer, describe(c))
			}
			if asked++; !want {
				denied++
			}
		}
	}
	t.Logf("%d connections in %d clusters, %d of them denied", asked, clusters, denied)
}
