package main

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"ovn-k8s/test/boot"
	"ovn-k8s/test/host"
)

// withManager boots a machine with eth0 configured by a network manager.
func withManager(t *testing.T, g boot.Manager) *machine {
	t.Helper()
	m := newMachine(t, g.Packages...)
	m.must(g.Install(m.Machine, false))
	m.start(m.Boot)
	m.await("ip route show default", "dev eth0")
	m.reaches(host.FabricIPv4())
	return m
}

// H2, H18: the configuration printed for a network manager restores the host's network after reboots, with all next
// hops. bridges-to-nic goes back afterwards, and with what it prints, so does the next boot.
func TestPrintedConfigurationsBoot(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("OVNK8S_TEST_BOOT_ROUNDS"))
	if err != nil {
		rounds = 1
	}
	for _, g := range boot.Managers() {
		if err != nil && g.Name != "ifupdown" {
			continue // half a minute each: for make test-boot
		}
		t.Run(g.Name, func(t *testing.T) {
			m := withManager(t, g)
			m.await("ip -6 route show default", "dev eth0")
			m.must(g.Apply(m.ctx, m.Machine, m.script("ovn-k8s-util nics-to-bridge eth0")))
			for range rounds {
				m.start(m.PowerCycle)
				m.reaches(host.FabricIPv4())
				m.reaches(host.FabricIPv6())
				m.await("ip route show default", "dev breth0")
				m.await("ip -6 route show default", "dev breth0")
				m.await("ip route show 172.32.0.0/16", "nexthop via 198.18.0.2 dev breth0")
				m.await("ip route show 172.32.0.0/16", "nexthop via 198.18.0.1 dev breth0")
				if out := m.script("ip -o address show dev eth0 scope global"); out != "" {
					t.Errorf("eth0 has addresses: %s", out)
				}
			}
			out := m.script("ovn-k8s-util bridges-to-nic breth0")
			m.reaches(host.FabricIPv4())
			has(t, m.script("ip route show default"), "dev eth0")
			m.must(g.Revert(m.ctx, m.Machine, out))
			m.start(m.PowerCycle)
			m.await("ip route show default", "dev eth0")
			if out := m.script("sysctl -n net.ipv4.conf.eth0.arp_ignore net.ipv6.conf.eth0.disable_ipv6"); out != "0\n0" {
				t.Errorf("eth0 is still muted: %q", out)
			}
			m.reaches(host.FabricIPv4())
		})
	}
}

// renewed prints its name if the address of breth0 is valid for longer than when it ran last.
const renewed = `now=$(ip -4 -o address show dev breth0 | sed -n 's/.*valid_lft \([0-9]*\)sec.*/\1/p')
	[ "$now" ] && [ "$now" -gt "$(cat /run/last || echo 99)" ] && echo renewed
	[ "$now" ] && echo "$now" > /run/last`

// The printed configuration and commands hand a lease over to the bridge, which renews it, also after a reboot.
func TestPrintedConfigurationsKeepALease(t *testing.T) {
	if os.Getenv("OVNK8S_TEST_BOOT_ROUNDS") == "" {
		t.Skip("half a minute for each manager: see make test-boot")
	}
	for _, g := range boot.Managers() {
		t.Run(g.Name, func(t *testing.T) {
			m := newMachine(t, g.Packages...)
			dhcp, err := m.fabric.ServeDHCP(host.FabricIPv4(), 20*time.Second)
			m.must(err)
			t.Cleanup(dhcp.Close)
			dhcp.Add(m.Port)
			m.must(g.Install(m.Machine, true))
			m.start(m.Boot)
			m.await("ip route show default", "dev eth0")
			m.must(g.Apply(m.ctx, m.Machine, m.script("ovn-k8s-util nics-to-bridge eth0")))
			for _, boot := range []func(context.Context) error{nil, m.PowerCycle} {
				if boot != nil {
					m.start(boot)
				}
				m.await("ip route show default", "dev breth0")
				m.script("rm -f /run/last")
				m.await(renewed, "renewed")
				m.reaches(host.FabricIPv4())
				if out := m.script("ip -o -4 address show dev eth0"); out != "" {
					t.Errorf("eth0 has addresses: %s", out)
				}
			}
		})
	}
}
