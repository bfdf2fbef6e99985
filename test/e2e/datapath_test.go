package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"ovn-k8s/test/host"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// All nodes use the datapath of the setting, and on the kernel's datapath pods keep
// their checksum offloads.
func TestTheDatapathIsTheOneOfTheSetting(t *testing.T) {
	for _, n := range cluster.Nodes {
		if out := sh(t, n, "ovs-appctl dpif/show"); !strings.HasPrefix(out, host.Datapath()+"@"+host.DatapathDevice()) || strings.Count(out, "hit:") != 1 {
			t.Errorf("%s has another datapath than %s:\n%s", n.Name, host.Datapath(), out)
		}
	}
	p := pods(t, map[string]string{"a": "minion1"})
	out, err := exec.Command("nsenter", "--net="+p["a"].Netns, "ethtool", "-k", "eth0").CombinedOutput()
	want := map[string]string{host.Userspace: "tx-checksumming: off", host.Kernel: "tx-checksumming: on"}[host.Datapath()]
	if err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: want %s:\n%s", err, want, out)
	}
}

// AC-87: a policy for a port of one protocol, SCTP as well, does not allow another protocol.
func TestPoliciesByProtocol(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion2", "near": "minion2", "far": "minion1"})
	t.Cleanup(func() { dropPolicies(t, "default") })
	for _, allowed := range world.Networks() {
		if err := cluster.Kube.Apply(t.Context(), fmt.Appendf(nil, onlyProtocol, world.Protocol(allowed))); err != nil {
			t.Fatal(err)
		}
		for _, network := range world.Networks() {
			for _, from := range []world.Endpoint{p["near"], p["far"]} {
				for _, a := range p["web-a"].Addresses {
					by := packet{text: network + " with a policy for " + allowed, probe: probe.Probe{Netns: from.Netns, Network: network, Address: probe.Address(a, kubelet.DefaultPort)}}
					if err := by.becomes(network == allowed); err != nil {
						t.Errorf("%s from %s: %v", by.text, from.Name, err)
					}
				}
			}
		}
	}
}

const onlyProtocol = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: one, namespace: default}
spec: {podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{protocol: %s, port: 8080}]}]}
`

// P11: datagrams that take several packets reach pods and, on the kernel's datapath,
// Services: see "Large datagrams" in docs/services.md.
func TestLargeDatagrams(t *testing.T) {
	p := pods(t, map[string]string{"web-a": "minion2", "near": "minion2", "far": "minion1", "all": "minion2"}, hostPorts)
	s := service(t, "web", nil)
	try(t, waysTo(p["far"], addrs(s.Spec.ClusterIPs), 80, []world.Endpoint{p["web-a"]}, p["far"].Addresses))
	var targets []netip.AddrPort
	for f, a := range p["web-a"].Addresses {
		targets = append(targets, probe.Address(a, kubelet.DefaultPort))
		if host.Datapath() == host.Kernel {
			targets = append(targets, probe.Address(addrs(s.Spec.ClusterIPs)[f], 80), probe.Address(cluster.Node("minion2").Management[f], anyPort))
		}
	}
	for _, from := range []world.Endpoint{p["near"], p["far"]} {
		for _, to := range targets {
			ctx, cancel := context.WithTimeout(t.Context(), patience/4)
			delivered, _, err := probe.Probe{Netns: from.Netns, Network: "udp", Address: to}.Sized(ctx, 2000, true)
			cancel()
			if err != nil || !delivered {
				t.Errorf("2000 bytes from %s to %v: no answer, %v", from.Name, to, err)
			}
		}
	}
}
