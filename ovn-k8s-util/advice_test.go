package main

import (
	"os/exec"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Who configures the NIC is told apart, and for each there is text that it would
// take.
func TestManagersAreDetectedAndGetTheirConfiguration(t *testing.T) {
	n := newNode(t)
	n.script(`set -e
		ip route add 172.16.0.0/12 via 198.18.0.1 metric 7
		printf 'auto eth0\niface eth0 inet static\n  address 198.18.0.11/24\n' > /etc/network/interfaces
		mkdir -p /etc/sysconfig/network-scripts /etc/netplan /run/NetworkManager/devices /run/systemd/netif/links
		echo 'DEVICE="eth0"' > /etc/sysconfig/network-scripts/ifcfg-eth0
		printf 'network:\n  ethernets:\n    eth0:\n      dhcp4: true\n' > /etc/netplan/01.yaml
		index=$(cat /sys/class/net/eth0/ifindex)
		printf '[device]\nconnection-uuid=1\n' > /run/NetworkManager/devices/$index
		printf 'NETWORK_FILE=/etc/systemd/network/eth0.network\n' > /run/systemd/netif/links/$index`)
	out := n.does("nics-to-bridge eth0 --dry-run").out
	parts := map[string]string{}
	for part := range strings.SplitSeq(out, "# ") {
		name, text, ok := strings.Cut(part, " configures eth0. For it to restore breth0 at boot, have there instead:\n")
		if ok {
			parts[name] = text
		}
	}
	mac := n.script("cat /sys/class/net/eth0/address")
	has(t, parts["ifupdown"], "iface breth0 inet manual\n    ovs_type OVSBridge\n    ovs_ports eth0\n", "up ip address replace 198.18.0.11/24 dev breth0\n",
		"up ip route replace 0.0.0.0/0 via 198.18.0.1 dev breth0\n", "up ip route replace 172.16.0.0/12 via 198.18.0.1 metric 7 dev breth0\n", mac)
	has(t, out, "ifcfg-breth0\nDEVICE=breth0\n", "IPADDR=198.18.0.11\nNETMASK=255.255.255.0\n", "IPV6ADDR=fd00:198:18::b/64", "TYPE=OVSPort\nOVS_BRIDGE=breth0\n")
	var netplan struct {
		Network struct {
			Bridges map[string]struct {
				Interfaces, Addresses []string
				Routes                []struct{ To, Via string }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(parts["netplan"]), &netplan); err != nil {
		t.Errorf("netplan: %v:\n%s", err, parts["netplan"])
	}
	if b := netplan.Network.Bridges["breth0"]; len(b.Addresses) != 2 || len(b.Routes) != 3 || len(b.Interfaces) != 1 {
		t.Errorf("netplan: %+v", b)
	}
	has(t, parts["NetworkManager"], "type ovs-bridge con-name breth0 ifname breth0", `ipv4.method manual ipv4.addresses "198.18.0.11/24" ipv4.routes "172.16.0.0/12 198.18.0.1 7,0.0.0.0/0 198.18.0.1 0"`)
	has(t, out, "Name=breth0\n[Network]\nIPv6AcceptRA=false\nAddress=198.18.0.11/24\n", "Destination=172.16.0.0/12\nGateway=198.18.0.1\nMetric=7\nTable=254\n")

	if query, err := exec.LookPath("ifquery"); err == nil {
		n.script("cat > /run/interfaces <<'EOF'\n" + parts["ifupdown"] + "EOF\n" + query + " -i /run/interfaces breth0")
	}
	n.does("nics-to-bridge eth0")
	has(t, n.does("bridges-to-nic breth0").out, "# ifupdown configures eth0. If you wrote the bridge into its files")
}

func TestDHCPClientsAreNamed(t *testing.T) {
	n := newNode(t)
	// a program of that name, with that argument
	n.script(`mkdir /run/bin; ln -sf "$(command -v tail)" /run/bin/dhclient; touch /run/eth0; cd /run; nohup /run/bin/dhclient -f eth0 >/dev/null 2>&1 &`)
	out := n.does("nics-to-bridge eth0 --dry-run").out
	has(t, out, "# A DHCP client works on eth0, and would give it the address again. Run:\nkill ", "dhclient -pf /run/dhclient.breth0.pid -lf /var/lib/dhcp/dhclient.breth0.leases breth0")
}
