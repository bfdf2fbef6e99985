package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"ovn-k8s/test/host"
)

// The manager of the NIC is recognized, and gets a valid configuration. H18: with DNS servers and all next hops.
func TestManagersAreDetectedAndGetTheirConfiguration(t *testing.T) {
	n := newNode(t)
	n.script(`set -e
		printf 'nameserver 192.0.2.53\nnameserver 2001:db8::53\nsearch example.org\n' > /etc/resolv.conf
		ip route add 172.16.0.0/12 via 198.18.0.1 metric 7
		ip route add 172.32.0.0/16 nexthop via 198.18.0.1 dev eth0 nexthop via 198.18.0.2 dev eth0
		printf 'auto eth0\niface eth0 inet static\n  address 198.18.0.11/24\n' > /etc/network/interfaces
		mkdir -p /etc/sysconfig/network-scripts /etc/netplan /run/NetworkManager/devices /run/systemd/netif/links
		echo 'DEVICE="eth0"' > /etc/sysconfig/network-scripts/ifcfg-eth0
		printf 'network:\n  ethernets:\n    eth0:\n      dhcp4: true\n' > /etc/netplan/01.yaml
		index=$(cat /sys/class/net/eth0/ifindex)
		printf '[device]\nconnection-uuid=1\n' > /run/NetworkManager/devices/$index
		printf 'NETWORK_FILE=/etc/systemd/network/eth0.network\n' > /run/systemd/netif/links/$index`)
	out := n.does("nics-to-bridge eth0 --dry-run").Out
	parts := map[string]string{}
	last := ""
	for part := range strings.SplitSeq(out, "# ") {
		name, text, ok := strings.Cut(part, " configures eth0. For it to restore breth0 at boot, have there instead:\n")
		if ok {
			last, parts[name] = name, text
			continue
		}
		parts[last] += "# " + part
	}
	mac := n.script("cat /sys/class/net/eth0/address")
	datapath := "datapath_type=" + host.Datapath()
	if host.Datapath() == host.Kernel { // Open vSwitch's default
		if strings.Contains(out, "datapath_type=") {
			t.Errorf("a datapath_type in:\n%s", out)
		}
		datapath = ""
	}
	has(t, parts["ifupdown"], "auto breth0\niface breth0 inet manual\n", datapath, "up ip address replace 198.18.0.11/24 dev breth0\n",
		"up ip route replace 0.0.0.0/0 via 198.18.0.1 dev breth0\n", "up ip route replace 172.16.0.0/12 via 198.18.0.1 metric 7 dev breth0\n",
		"up ip route replace 172.32.0.0/16 nexthop via 198.18.0.1 dev breth0 nexthop via 198.18.0.2 dev breth0\n", mac, "dns-nameservers 192.0.2.53 2001:db8::53\n    dns-search example.org\n")
	has(t, out, "ifcfg-breth0\nDEVICE=breth0\n", "IPADDR=198.18.0.11\nNETMASK=255.255.255.0\n", "IPV6ADDR=fd00:198:18::b/64", "TYPE=OVSPort\nOVS_BRIDGE=breth0\n", "DNS1=192.0.2.53\nDNS2=2001:db8::53\n", datapath)
	var netplan struct {
		Network struct {
			Ethernets map[string]struct {
				Addresses   []string
				Nameservers struct{ Addresses []string }
				Routes      []struct{ To, Via string }
			}
		}
	}
	text, _, _ := strings.Cut(parts["netplan"], "# /etc/")
	if err := yaml.Unmarshal([]byte(text), &netplan); err != nil {
		t.Errorf("netplan: %v:\n%s", err, text)
	}
	if b := netplan.Network.Ethernets["breth0"]; len(b.Addresses) != 2 || len(b.Routes) != 3 || len(b.Nameservers.Addresses) != 2 {
		t.Errorf("netplan: %+v", b)
	}
	has(t, parts["NetworkManager"], "ifname breth0", `ipv4.method manual ipv4.addresses "198.18.0.11/24" ipv4.routes "172.32.0.0/16 198.18.0.1 weight=1,172.32.0.0/16 198.18.0.2 weight=1,172.16.0.0/12 198.18.0.1 7,0.0.0.0/0 198.18.0.1"`,
		`ipv4.dns "192.0.2.53" ipv4.dns-search "example.org"`)
	has(t, out, "10-netplan-breth0.network.d/nexthops.conf")
	has(t, out, "Name=breth0\n[Network]\nIPv6AcceptRA=false\nAddress=198.18.0.11/24\n", "Destination=172.16.0.0/12\nGateway=198.18.0.1\nMetric=7\n", "DNS=192.0.2.53\nDNS=2001:db8::53\nDomains=example.org\n",
		"Destination=172.32.0.0/16\nMultiPathRoute=198.18.0.1@breth0\nMultiPathRoute=198.18.0.2@breth0\n")

	if query, err := exec.LookPath("ifquery"); err == nil {
		n.script("cat > /run/interfaces <<'EOF'\n" + parts["ifupdown"] + "EOF\n" + query + " -i /run/interfaces breth0")
	}
	const cloud = "# cloud-init has written "
	if strings.Contains(out, cloud) {
		t.Errorf("no file is of cloud-init: %s", out)
	}
	n.script(`set -e
		mv /etc/netplan/01.yaml /etc/netplan/50-cloud-init.yaml
		mkdir -p /etc/NetworkManager/system-connections /etc/network/interfaces.d
		printf '[connection]\nuuid=1\n' > /etc/NetworkManager/system-connections/cloud-init-eth0.nmconnection
		printf '# Created by cloud-init automatically, do not edit.\n#\nDEVICE=eth0\n' > /etc/sysconfig/network-scripts/ifcfg-eth0
		mv /etc/network/interfaces /etc/network/interfaces.d/50-cloud-init`)
	out = n.does("nics-to-bridge eth0 --dry-run").Out
	for file, manager := range map[string]string{"network/interfaces.d/50-cloud-init": "ifupdown", "sysconfig/network-scripts/ifcfg-eth0": "network-scripts",
		"netplan/50-cloud-init.yaml": "netplan", "NetworkManager/system-connections/cloud-init-eth0.nmconnection": "NetworkManager"} {
		const stop = " First run:\necho 'network: {config: disabled}' > /etc/cloud/cloud.cfg.d/99-disable-network-config.cfg\n# "
		if _, text, _ := strings.Cut(out, cloud+"/etc/"+file+", "); !strings.Contains(text, stop+manager+" configures eth0.") {
			t.Errorf("%s: cloud-init would write %s again: %s", manager, file, out)
		}
	}
	n.does("nics-to-bridge eth0")
	n.script("mkdir -p /etc/sysctl.d /etc/systemd/network/10-netplan-breth0.network.d && touch /etc/sysctl.d/90-breth0.conf /etc/sysctl.d/90-breth1.conf")
	has(t, n.does("bridges-to-nic breth0").Out, "# ifupdown configures eth0. If you wrote the bridge into its files",
		" Run:\nrm -r /etc/sysctl.d/90-breth0.conf /etc/systemd/network/10-netplan-breth0.network.d\n")
}

// A DHCP client is recognized by its process, and its command for the bridge is printed; a client with the same
// arguments in another network namespace is ignored.
func TestDHCPClientsAreNamed(t *testing.T) {
	n := newNode(t)
	// a program with this name and these arguments
	pid := n.script(`set -e
		mkdir /run/bin
		ln -s "$(command -v tail)" /run/bin/dhclient
		touch /run/eth0
		cd /run
		ip netns add container
		nohup ip netns exec container /run/bin/dhclient -f eth0 >/dev/null 2>&1 &
		nohup /run/bin/dhclient -f -- -sf /usr/lib/NetworkManager/nm-dhcp-helper eth0 >/dev/null 2>&1 &
		nohup /run/bin/dhclient -f -- -4 -pf /run/dhclient.eth0.pid 'a b' eth0 >/dev/null 2>&1 &
		echo $!
		for i in $(seq 2000); do [ "$(pgrep -c dhclient)" = 3 ] && exit; sleep 0.02; done`)
	const heading = "# A DHCP client works on %s, and would give it the address again. Run:\n"
	want := fmt.Sprintf(heading+"kill %s\n/run/bin/dhclient -f -- -4 -pf /run/dhclient.breth0.pid 'a b' breth0\n", "eth0", pid)
	if out := n.does("nics-to-bridge eth0").Out; !strings.HasPrefix(out, want) || strings.Count(out, "kill ") != 1 {
		t.Errorf("%s\nwant:\n%s", out, want)
	}
	// The operator follows the advice, then goes back.
	pid = n.script("kill " + pid + `; touch /run/breth0; cd /run
		nohup /run/bin/dhclient -f breth0 >/dev/null 2>&1 &
		echo $!
		for i in $(seq 2000); do grep -qs breth0 /proc/$!/cmdline && exit; sleep 0.02; done`)
	want = fmt.Sprintf(heading+"kill %s\n/run/bin/dhclient -f eth0\n", "breth0", pid)
	if out := n.does("bridges-to-nic breth0").Out; !strings.HasPrefix(out, want) {
		t.Errorf("%s\nwant:\n%s", out, want)
	}
}

// dhcpcd has a title in place of its arguments. One that works on all interfaces is found by the NIC's lease, and the way back
// takes back what was written to its file.
func TestDhcpcdIsNamed(t *testing.T) {
	n := newNode(t)
	n.script(`touch /run/wait
		title() { nohup bash -c 'exec -a "$0" tail -f /run/wait' "$1" >/dev/null 2>&1 & }
		title 'dhcpcd: [privileged proxy] eth0 [ip4]'
		title 'dhcpcd: eth0 [ip4]'
		title 'dhcpcd: [manager] [ip4] [ip6]'
		for i in $(seq 2000); do [ "$(pgrep -cf '^dhcpcd: ')" = 3 ] && exit; sleep 0.02; done`)
	const heading = "# A DHCP client works on %s, and would give it the address again. Run:\n%s# "
	one := "dhcpcd -4 -x eth0\ndhcpcd -4 breth0\n"
	has(t, n.does("nics-to-bridge eth0 --dry-run").Out+"# ", fmt.Sprintf(heading, "eth0", one))
	n.script("mkdir -p /var/lib/dhcpcd && touch /var/lib/dhcpcd/eth0.lease && echo persistent > /etc/dhcpcd.conf")
	all := "sed -i -e '1i denyinterfaces eth0' -e '/^denyinterfaces breth0$/d' /etc/dhcpcd.conf\necho 'interface breth0' >> /etc/dhcpcd.conf\nsystemctl restart dhcpcd\n"
	has(t, n.does("nics-to-bridge eth0").Out+"# ", all)
	n.script("systemctl() { :; }\n" + all + "touch -d tomorrow /var/lib/dhcpcd/breth0.lease")
	out := n.does("bridges-to-nic breth0").Out
	_, back, _ := strings.Cut(out, "Run:\n")
	back, _, _ = strings.Cut(back, "systemctl restart dhcpcd\n")
	if got, want := n.script(back+"cat /etc/dhcpcd.conf"), "denyinterfaces breth0\npersistent\ninterface breth0\ninterface eth0"; got != want {
		t.Errorf("after the way back dhcpcd.conf has %q, want %q; the command has printed:\n%s", got, want, out)
	}
}

// NetworkManager and systemd-networkd have clients of their own.
func TestDHCPClientsOfManagersAreNamed(t *testing.T) {
	n := newNode(t)
	n.script(`set -e
		ip address change ` + n.Addresses[0].String() + ` dev eth0 valid_lft 3600 preferred_lft 1800
		mkdir -p /run/NetworkManager/devices /run/systemd/netif/links /run/systemd/netif/leases
		index=$(cat /sys/class/net/eth0/ifindex)
		printf '[device]\nconnection-uuid=1\n' > /run/NetworkManager/devices/$index
		printf 'NETWORK_FILE=/etc/systemd/network/eth0.network\n' > /run/systemd/netif/links/$index
		printf 'ADDRESS=198.18.0.11\nCLIENTID=ff0000000700020000ab11f940faf4409ebba0\n' > /run/systemd/netif/leases/$index`)
	const says = "# Its DHCP client works on eth0, and would give it the address again. Then run:\n"
	out := n.does("nics-to-bridge eth0 --dry-run").Out
	has(t, out, says+"nmcli device reapply eth0\nnmcli connection up interface-breth0\n", says+"networkctl reload\n", "ipv4.method auto", "Name=breth0\n[Network]\nDHCP=ipv4\n", "[DHCPv4]\nIAID=7\n")
	const modify = "nmcli connection modify "
	has(t, out, modify+"1 ipv4.method disabled ")
	n.script("printf '[device]\\nconnection-uuid=1\\n' > /run/NetworkManager/devices/$(cat /sys/class/net/lo/ifindex)")
	out = n.does("nics-to-bridge eth0 --dry-run").Out
	has(t, out, "# Other interfaces use the connection of eth0, too: it stays. ", "\nnmcli connection clone 1 eth0-port\n"+modify+"eth0-port ipv4.method disabled ",
		" connection.interface-name eth0 connection.multi-connect single connection.autoconnect yes connection.autoconnect-priority 999\n", says+"nmcli connection up eth0-port\nnmcli connection up interface-breth0\n")
	if strings.Contains(out, modify+"1 ") || strings.Contains(out, "reapply") {
		t.Errorf("a connection of other interfaces is changed: %s", out)
	}
	n.script("rm -r /run/systemd/netif/leases /run/NetworkManager")
	if out := n.does("nics-to-bridge eth0 --dry-run").Out; strings.Contains(out, says) {
		t.Errorf("there is no client: %s", out)
	}
}

// An address with a prefix of one address, and a gateway out of its subnet: the printed commands work on an interface
// that has no other route. Rules and other attributes of routes are named.
func TestPrintedRoutesWithAGatewayOutsideOfTheSubnet(t *testing.T) {
	n := newNode(t)
	n.script(`set -e
		ip address flush dev eth0
		ip -6 route flush dev eth0
		ip address add 203.0.113.5/32 dev eth0
		ip route add default via 198.18.0.1 dev eth0 onlink src 203.0.113.5 mtu 1400
		ip route add 10.9.0.0/16 via 198.18.0.1 dev eth0 onlink advmss 1360 table 77
		ip rule add pref 50 iif eth0 lookup 77
		printf 'auto eth0\niface eth0 inet static\n  address 203.0.113.5/32\n' > /etc/network/interfaces`)
	out := n.does("nics-to-bridge eth0 --dry-run").Out
	has(t, out, "# Keep your rule pref 50 iif eth0 lookup 77, with breth0 in place of eth0.\n", "# Keep your rules (ip rule) that lead to other tables.\n",
		"# Route 10.9.0.0/16 via 198.18.0.1 table 77 has attributes that are missing above: add them.\n")
	commands := ""
	for line := range strings.Lines(out) {
		if command, ok := strings.CutPrefix(line, "    up ip "); ok {
			commands += "ip -n booted " + command
		}
	}
	has(t, n.script("set -e\nip netns add booted\nip -n booted link add breth0 type veth peer name other\nip -n booted link set other up\n"+commands+"ip -n booted route show table all"),
		"default via 198.18.0.1 dev breth0 src 203.0.113.5 onlink mtu 1400", "10.9.0.0/16 via 198.18.0.1 dev breth0 table 77 onlink")
}

// A definition of netplan whose name is another than that of the NIC is found by systemd-networkd's record, its lines
// about the link are kept, and its DHCP client is named.
func TestDefinitionsByMatchAreFound(t *testing.T) {
	n := newNode(t)
	n.script(`set -e
		ip address change ` + n.Addresses[0].String() + ` dev eth0 valid_lft 3600 preferred_lft 1800
		mkdir -p /etc/netplan /run/systemd/netif/links /run/systemd/netif/leases /run/systemd/network/10-netplan-id0.network.d
		index=$(cat /sys/class/net/eth0/ifindex)
		printf 'network:\n  ethernets:\n    id0:\n      match: {name: e*}\n      dhcp4: true\n' > /etc/netplan/01.yaml
		printf '[Match]\nName=e*\n[Network]\nDHCP=ipv4\nVLAN=eth0.7\n' > /run/systemd/network/10-netplan-id0.network
		printf '[Network]\nMACVLAN=mv0\n' > /run/systemd/network/10-netplan-id0.network.d/more.conf
		printf 'OPER_STATE=routable\nNETWORK_FILE=/run/systemd/network/10-netplan-id0.network\n' > /run/systemd/netif/links/$index
		printf 'ADDRESS=198.18.0.11\n' > /run/systemd/netif/leases/$index`)
	out := n.does("nics-to-bridge eth0 --dry-run").Out
	has(t, out, "# netplan configures eth0. For it to restore breth0 at boot, have there instead:\n# Leave the definition id0 in /etc/netplan, ",
		"Name=eth0\n[Link]\nRequiredForOnline=no\n[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nVLAN=eth0.7\nMACVLAN=mv0\n", "Name=breth0\n[Network]\nDHCP=ipv4\n",
		"# Its DHCP client works on eth0, and would give it the address again. Then run:\nnetworkctl reload\n")
	if strings.Contains(out, "systemd-networkd configures") {
		t.Errorf("its file is netplan's: %s", out)
	}
}

// An interface that the configuration makes, and the MTU, are taken from the kernel.
func TestPrintedConfigurationsKnowTheKindOfTheNIC(t *testing.T) {
	n := newNode(t)
	n.script(`set -e
		ip link set eth0 mtu 1400
		ip link add link eth0 name mv0 mtu 1400 type macvlan
		ip link set mv0 up
		ip address add 203.0.113.5/24 dev mv0
		printf 'iface eth0 inet manual\niface mv0 inet manual\n' > /etc/network/interfaces`)
	has(t, n.does("nics-to-bridge mv0 --dry-run").Out, "    pre-up ifup mv0\n", "    pre-up ip link set mv0 mtu 1400 || true\n", "# Keep what makes mv0 in its stanza, ")
	if out := n.does("nics-to-bridge eth0 --dry-run").Out; strings.Contains(out, "ifup eth0") {
		t.Errorf("eth0 is there at boot: %s", out)
	}
}
