package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"ovn-k8s/test/host"
	"ovn-k8s/test/world"
)

// busy has other programs change rules, routing rules and Open vSwitch's database all the time, so that the gateway
// helper compares all that it keeps again and again.
var busy = `touch /run/busy
	while [ -e /run/busy ]; do
		` + host.PerFirewall("iptables -w -A INPUT -s 192.0.2.1 -j RETURN; iptables -w -D INPUT -s 192.0.2.1 -j RETURN", "nft add table ip busy; nft delete table ip busy") + `
		ip rule add pref 4000 from 192.0.2.1 lookup main; ip rule del pref 4000
		ovs-vsctl --no-wait set Bridge br-int external_ids:busy=$(date +%N)
	done
	ovs-vsctl --no-wait remove Bridge br-int external_ids busy`

// The parts of a local gateway on its host are gone after gateway-remove, and stay so, though a busy helper keeps them until
// the ports are gone.
func TestALocalGatewayIsRemovedBesideABusyHelper(t *testing.T) {
	ofPrograms(t, "lib/ovnkube/node")
	n := cluster.Node("minion1")
	overlay := func(args ...string) {
		t.Helper()
		if err := cluster.Do(t.Context(), n, "ovn-k8s-overlay", append(args, "--node-name="+n.Name)...); err != nil {
			t.Fatal(err)
		}
	}
	before := state(t, n)
	ended := make(chan error, 1)
	go func() {
		_, err := n.Script(context.Background(), busy)
		ended <- err
	}()
	t.Cleanup(func() { _ = cluster.RemoveGateway(context.Background(), n) })
	for round := range 5 {
		overlay("gateway-init", "--cluster-ip-subnet="+world.ClusterSubnets, "--local")
		sh(t, n, host.PerFirewall("iptables -w -t nat -F OVN-K8S-GATEWAY-SNAT", "nft flush chain ip ovn-k8s gw-postrouting"))
		eventually(t, "the helper keeps the gateway", func() bool {
			return strings.Contains(sh(t, n, host.PerFirewall("iptables -w -t nat -S OVN-K8S-GATEWAY-SNAT", "nft list chain ip ovn-k8s gw-postrouting")), host.PerFirewall("MASQUERADE", "masquerade"))
		})
		overlay("gateway-remove")
		var left string
		eventually(t, fmt.Sprintf("round %d: nothing is left", round), func() bool {
			left = sh(t, n, `{ `+host.RulesScript+`; } | grep -e OVN-K8S-GATEWAY -e gw-; ip rule | grep 1646; ip -6 rule | grep 1646; ip route show table 1646; ip -o link | grep br-nexthop
				ovs-vsctl --if-exists get Open_vSwitch . external_ids:ovn-cms-options | grep gateway-down || :`)
			return left == ""
		}, &left)
	}
	sh(t, n, "rm /run/busy")
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	sh(t, n, "ovs-appctl -t "+helper()+" reconcile/resync")
	unchanged(t, "a helper that compares everything", before, n)
}
