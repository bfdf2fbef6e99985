package main

import (
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"ovn-k8s/test/host"
)

// H3: the default route and the prefix of router advertisements are refreshed on the bridge, and on the NIC again,
// for longer than a lifetime. The address is never gone.
func TestRouterAdvertisementsGoOn(t *testing.T) {
	interval, lifetime, watch := 500*time.Millisecond, 3*time.Second, 5*time.Second
	if s, err := strconv.Atoi(os.Getenv("OVNK8S_TEST_RA_SECONDS")); err == nil {
		interval, lifetime, watch = 2*time.Second, 12*time.Second, time.Duration(s)*time.Second
	}
	n := newNode(t)
	n.ctx = t.Context() // the long run exceeds the usual timeout
	n.script(`ip -6 route del default; ip -6 address flush dev eth0 scope global
		sysctl -qw net.ipv6.conf.eth0.accept_ra=2 net.ipv6.conf.eth0.autoconf=1`)
	stop, err := host.Advertise(n.FabricNetns(), netip.MustParsePrefix("fd00:77::/64"), interval, lifetime)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	state := func(nic string) string {
		return n.script("ip -6 route show default dev " + nic + "; ip -6 -o address show dev " + nic + " scope global -tentative; ip -6 route show fd00:77::/64 dev " + nic)
	}
	complete := func(nic string) bool {
		s := state(nic)
		return strings.Contains(s, "default via fe80::") && strings.Contains(s, " fd00:77:") && strings.Contains(s, "fd00:77::/64")
	}
	for deadline := time.Now().Add(20 * time.Second); !complete("eth0"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(state("eth0"))
		}
	}
	address := n.script("ip -6 -o address show dev eth0 scope global | awk '{print $4}'")
	for _, move := range []struct{ args, to string }{{"nics-to-bridge eth0", "breth0"}, {"bridges-to-nic breth0", "eth0"}, {"nics-to-bridge eth0", "breth0"}} {
		n.does(move.args)
		for end := time.Now().Add(watch); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			if s := state(move.to); !complete(move.to) || !strings.Contains(s, address) {
				t.Fatalf("%s: %s", move.args, s)
			}
		}
	}
	if out := n.script("ip -6 route show default; cat /proc/net/ipv6_route | grep -c '^0\\{32\\} 00.* breth0'"); strings.Count(out, "default") != 1 || !strings.HasSuffix(out, "\n1") {
		t.Errorf("default routes: %s", out)
	}
}
