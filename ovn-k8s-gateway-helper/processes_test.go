package main

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/host"
)

// counted makes programs of packet filters write their names to /run/started.
const counted = `touch /run/started
	for tool in nft iptables ip6tables iptables-save ip6tables-save iptables-legacy ip6tables-legacy iptables-legacy-save ip6tables-legacy-save iptables-restore ip6tables-restore; do
		[ -x /usr/sbin/$tool ] || continue
		printf '#!/bin/sh\necho %s "$@" >>/run/started\nexec /usr/sbin/%s "$@"\n' $tool $tool >/usr/local/bin/$tool
		chmod +x /usr/local/bin/$tool
	done`

// Rules of both families in nftables, beside a local gateway and another program's table: endpoints that change start no
// process. Only the resync may do so, once a minute. A change of another program is still noticed.
func TestChangesOfEndpointsStartNoProcess(t *testing.T) {
	w := newWorld(t)
	w.script(counted + `
		/usr/sbin/nft 'table inet stranger { chain forward { type filter hook forward priority 0; policy accept; }; }'
		ovs-vsctl set Open_vSwitch . external_ids:ovn-k8s-firewall=nftables`)
	w.script(localGateway)
	web := w.service("web", func(s *corev1.Service) {
		policy := corev1.IPFamilyPolicyRequireDualStack
		s.Spec.IPFamilyPolicy, s.Spec.SessionAffinity = &policy, corev1.ServiceAffinityClientIP
	})
	w.endpoints(web, 8080, "fd01::3@node1")
	w.endpoints(web, 8080, "10.128.1.3@node1")
	w.start()
	listed := func(text string) bool {
		return strings.Contains(w.script("PATH=/usr/sbin:$PATH; "+host.RulesScript), text)
	}
	w.eventually("rules", func() bool {
		return listed("10.128.1.3:8080") && listed("[fd01::3]:8080") && listed("chain gw-postrouting")
	})
	changes := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			text := fmt.Sprintf("10.128.1.%d:8080", i)
			if i%3 == 0 {
				text = fmt.Sprintf("[fd01::%d]:8080", i)
			}
			w.endpoints(web, 8080, strings.Trim(strings.TrimSuffix(text, ":8080"), "[]")+"@node1")
			w.eventually(text, func() bool { return listed(text) })
		}
	}
	changes(4, 10) // the start is over by then
	w.script("truncate -s 0 /run/started")
	const n = 20
	changes(10, 10+n)
	if started := w.script("cat /run/started"); strings.Count(started, "\n") >= n {
		t.Errorf("%d changes started\n%s", n, started)
	}
	w.script("/usr/sbin/nft flush ruleset")
	w.within(soon, "back after a flush", func() bool {
		return listed("10.128.1.29:8080") && listed("[fd01::27]:8080") && listed("chain gw-postrouting")
	})
}
