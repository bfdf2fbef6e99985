package main

import (
	"fmt"
	"strings"
	"testing"
)

// A replaced kubeconfig is followed without a restart. A damaged one is not: the former one stays. While the API server refuses
// the user of a kubeconfig, also at the start, the master says so and waits, and it serves with the next one.
func TestReplacedKubeconfig(t *testing.T) {
	kubernetes := startCluster(t)
	h := newHost(t)
	central := h.startCentral()
	good := h.read(kubernetes.Kubeconfig)
	expired := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}], users: [{name: u, user: {token: expired}}]}`, kubernetes.URL, kubernetes.CAFile)
	file := h.write("kubeconfig", expired)
	p := h.start(strings.Fields("-init-master=n1 -k8s-kubeconfig=" + file + " -nb-address=" + central.NBTCP + " -sb-address=" + central.SBTCP))
	p.says("waiting: the API server refuses this host's token or rights: reading ConfigMap ovn-kubernetes/ovn-k8s-topology: Unauthorized; renew the token or the kubeconfig")
	h.write("kubeconfig", good)
	p.says("leads with term ")
	h.write("kubeconfig", "{")
	p.says("keeping the former configuration: bad kubeconfig " + file + ": ")
	const replaced = "kubeconfig: %s was replaced"
	h.write("kubeconfig", expired)
	h.eventually("the second one is read", func() bool { return strings.Count(p.out.String(), fmt.Sprintf(replaced, file)) == 2 })
	terms := strings.Count(p.out.String(), "leads with term ")
	h.write("kubeconfig", good)
	h.eventually("it leads again", func() bool { return strings.Count(p.out.String(), "leads with term ") > terms })
	if status := p.stop(); status != 0 {
		t.Errorf("status %d", status)
	}
}
