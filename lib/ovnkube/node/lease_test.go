package node

import (
	"fmt"
	"strings"
	"testing"
)

// When a NIC with a DHCP lease is moved, the log has what its network manager and its client need, and an Event says that nobody
// renews the lease, until somebody does.
func TestLeaseWithoutAClient(t *testing.T) {
	w := newNode(t, "n15", "10.128.2.0/23", "fd01:0:0:2::/64")
	w.script(`set -e
		ip address change 198.18.0.11/24 dev eth0 valid_lft 3000 preferred_lft 3000
		mkdir -p /run/systemd/netif/links /run/systemd/netif/leases
		i=$(cat /sys/class/net/eth0/ifindex)
		echo NETWORK_FILE=/etc/systemd/network/lan.network > /run/systemd/netif/links/$i
		echo ADDRESS=198.18.0.11 > /run/systemd/netif/leases/$i`)
	w.start("gateway-mode=shared")
	w.complete()
	w.says("Address 198.18.0.11/24 is of a DHCP lease: it ends in ")
	w.says("systemd-networkd configures eth0. For it to restore breth0 at boot, have there instead:")
	w.says("DHCP=ipv4")
	w.says("Then run: networkctl reload")
	const why = " s with its DHCP lease, and nobody renews it, since the DHCP client systemd-networkd works on eth0: have the DHCP client work on breth0"
	w.says("address 198.18.0.11/24 of bridge breth0 ends in ")
	w.says(why)
	w.event("LeaseNotRenewed", why)
	w.until("the renewal", func() error {
		w.script(`ip address change 198.18.0.11/24 dev breth0 valid_lft 3000 preferred_lft 3000; ovs-vsctl set Open_vSwitch . external_ids:pass=$(cat /proc/sys/kernel/random/uuid)`)
		if line := "address 198.18.0.11/24 of bridge breth0: its DHCP lease is renewed"; !strings.Contains(w.role.Output(), line) {
			return fmt.Errorf("no line with %q", line)
		}
		return nil
	})
}
