package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"ovn-k8s/test/host"
)

func TestManyMinionsAtOnce(t *testing.T) {
	const nodes = 20
	w := newWorld(t, "master")
	m := w.nodes[0]
	m.init(masterInitArgs)
	m.script("ovs-vsctl remove Open_vSwitch . external_ids system-id") // one host stands for all
	run := func(subnet func(i int) int) []host.Result {
		results := make([]host.Result, nodes)
		var wg sync.WaitGroup
		for i := range nodes {
			wg.Go(func() {
				results[i] = m.run(fmt.Sprintf("minion-init --cluster-ip-subnet=192.168.0.0/16 --minion-switch-subnet=192.168.%d.0/24 --node-name=n%d", subnet(i), i))
			})
		}
		wg.Wait()
		return results
	}
	winners := 0
	for i, r := range run(func(int) int { return 200 }) {
		switch {
		case r.Status == 0:
			winners++
		case r.Status != 1 || !strings.Contains(r.Err, fmt.Sprintf("subnet 192.168.200.0/24 of node n%d overlaps subnet 192.168.200.0/24 of node", i)):
			t.Errorf("n%d: %+v", i, r)
		}
	}
	if winners != 1 {
		t.Errorf("%d nodes got the same subnet", winners)
	}
	same(t, "switches", fmt.Sprint(len(strings.Fields(w.nb("--bare", "--columns=name", "list", "Logical_Switch")))), "3")
	for i, r := range run(func(i int) int { return 10 + i }) {
		if r.Status != 0 {
			t.Errorf("n%d: %+v", i, r)
		}
	}
	registry := w.nb("get", "Logical_Router", "ovn_cluster_router", "external_ids")
	for i := range nodes {
		if !strings.Contains(registry, fmt.Sprintf(`ovn-k8s-node-n%d="192.168.%d.0/24"`, i, 10+i)) {
			t.Errorf("n%d is lost: %s", i, registry)
		}
	}
	same(t, "router ports", fmt.Sprint(strings.Count(w.nb("--bare", "--columns=name", "list", "Logical_Router_Port"), "rtos-n")), fmt.Sprint(nodes))
}

// Two masters starting at the same time without a cluster make one cluster.
func TestTwoMastersAtOnce(t *testing.T) {
	for round := range 5 {
		w := newWorld(t, "one", "two")
		var wg sync.WaitGroup
		for i, n := range w.nodes {
			wg.Go(func() {
				r := n.run(fmt.Sprintf("master-init --cluster-ip-subnet=192.168.0.0/16 --master-switch-subnet=192.168.%d.0/24 --node-name=%s", i, n.Name))
				if r.Status != 0 {
					t.Errorf("round %d, %s: %+v", round, n.Name, r)
				}
			})
		}
		wg.Wait()
		same(t, "routers", w.nb("--bare", "--columns=name", "list", "Logical_Router"), "ovn_cluster_router")
		same(t, "both", w.nb("get", "Logical_Router", "ovn_cluster_router", "external_ids:ovn-k8s-node-one", "external_ids:ovn-k8s-node-two"), "\"192.168.0.0/24\"\n\"192.168.1.0/24\"")
		same(t, "join switches", w.nb("--bare", "--columns=name", "find", "Logical_Switch", "name=join"), "join")
	}
}

func TestManyMinionsAdoptAtOnce(t *testing.T) {
	const nodes = 8
	w := newWorld(t, "master")
	m := w.nodes[0]
	w.nb("lr-add", "Kube-Master", "--", "set", "Logical_Router", "Kube-Master", "external_ids:k8s-cluster-router=yes",
		"--", "ls-add", "join", "--", "lrp-add", "Kube-Master", "rtoj-Kube-Master", "00:00:00:B1:B2:B3", "100.64.1.1/24")
	m.script("ovs-vsctl remove Open_vSwitch . external_ids system-id") // one host stands for all
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() {
			r := m.run(fmt.Sprintf("minion-init --cluster-ip-subnet=192.168.0.0/16 --minion-switch-subnet=192.168.%d.0/24 --node-name=n%d", i, i))
			if r.Status != 0 {
				t.Errorf("n%d: %+v", i, r)
			}
		})
	}
	wg.Wait()
	registry := w.nb("get", "Logical_Router", "Kube-Master", "external_ids")
	for i := range nodes {
		if !strings.Contains(registry, fmt.Sprintf(`ovn-k8s-node-n%d="192.168.%d.0/24"`, i, i)) {
			t.Errorf("n%d is lost: %s", i, registry)
		}
	}
	same(t, "router ports", fmt.Sprint(strings.Count(w.nb("--bare", "--columns=name", "list", "Logical_Router_Port"), "rtos-n")), fmt.Sprint(nodes))
}
