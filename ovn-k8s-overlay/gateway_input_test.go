package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestBadGatewayInput(t *testing.T) {
	w := newGatewayWorld(t, "master")
	m := w.nodes[0]
	m.script(`ip link add bond0 type bridge; ip link add slave type veth peer name slavep; ip link set slave master bond0
		ip link add eth2 type veth peer name eth2p; ip addr add 10.1.0.5/24 dev eth2
		ip link set eth2p up; ip addr add fd10::9/64 dev eth2p nodad
		ip link set eth2 up; sysctl -qw net.ipv6.conf.eth2.accept_dad=1; ip addr add fd10::9/64 dev eth2
		until ip -6 -o addr show dev eth2 dadfailed | grep -q fd10 && ! ip -6 -o addr show tentative -dadfailed | grep -q .; do sleep 0.05; done
		ovs-vsctl add-br bare -- set Bridge bare datapath_type=$OVNK8S_TEST_DATAPATH; ip addr add 10.2.0.5/24 dev bare
		ovs-vsctl --no-wait add-br other -- set Bridge other datapath_type=system -- add-port other nic -- set Interface nic type=system`)
	args := func(rest string) string {
		return "gateway-init --cluster-ip-subnet=192.168.0.0/16 --node-name=gw " + rest
	}
	rows, host, writes := w.topology(), m.host(), w.transactions()
	for _, tt := range []input{
		{"Check03_Empty", "gateway-init --cluster-ip-subnet= --node-name=gw --physical-interface=eth1 --physical-ip=10.0.0.5/24", lines("Arguments should be non-null")},
		{"EmptyIP", args("--physical-interface=eth1 --physical-ip="), lines("Arguments should be non-null")},
		{"EmptyNIC", args("--physical-interface= --physical-ip=10.0.0.5/24"), lines("Arguments should be non-null")},
		{"NoIP", args("--physical-interface=eth1 --physical-ip=10.0.0.500/24"), lines(`physical IP "10.0.0.500/24" is not an address: write it like 10.0.0.5/24`)},
		{"BadMask", args("--physical-interface=eth1 --physical-ip=10.0.0.5/255.0.255.0"), lines(`physical IP "10.0.0.5/255.0.255.0" is not an address`)},
		{"NetworkItself", args("--physical-interface=eth1 --physical-ip=10.0.0.0/24"), lines("is the address of the network itself or its broadcast address")},
		{"AllAtOnce", args("--physical-interface=eth1 --physical-ip=x --default-gw=y --vlan=4095"), lines(`physical IP "x" is not`, `default gateway "y" is not`, `--vlan "4095" is not a VLAN: want a number from 1 to 4094`)},
		{"GatewayElsewhere", args("--physical-interface=eth1 --physical-ip=10.0.0.5/24 --default-gw=10.0.1.1"), lines("default gateway 10.0.1.1 is not in the subnet of physical IP 10.0.0.5/24: give a neighbour in 10.0.0.0/24")},
		{"OtherFamily", args("--physical-interface=eth1 --physical-ip=fd10::5/64"), lines("physical IP fd10::5/64 is of another family than the cluster subnets 192.168.0.0/16")},
		{"NoNIC", args("--physical-interface=eth9 --physical-ip=10.0.0.5/24"), lines("interface eth9 not found")},
		{"Loopback", args("--physical-interface=lo --physical-ip=10.0.0.5/24"), lines("lo is the loopback interface")},
		{"Slave", args("--physical-interface=slave --physical-ip=10.0.0.5/24"), lines("slave is a port of bond0: give that, or take the NIC out of it")},
		{"PortOfABridge", args("--physical-interface=eth0 --physical-ip=10.0.0.5/24"), lines("eth0 is a port of bridge breth0 already: give --bridge-interface=breth0 to share it")},
		{"NotItsIP", args("--physical-interface=eth2 --physical-ip=10.9.0.5/24"), lines("physical IP 10.9.0.5/24 is not an address of eth2, which has 10.1.0.5/24")},
		{"AnotherHostsIP", args("--physical-interface=eth2 --physical-ip=10.1.0.5/24 --physical-ip=fd10::9/64"), lines("physical IP fd10::9/64 of eth2 may be another host's (ip address says dadfailed, or tentative)")},
		{"NoBridge", args("--bridge-interface=breth9 --physical-ip=10.0.0.5/24"), lines("No mac_address found for the bridge-interface: there is no Open vSwitch bridge breth9")},
		{"OwnBridge", args("--bridge-interface=br-int --physical-ip=10.0.0.5/24"), lines("br-int is OVN's own bridge")},
		{"NoNICInBridge", args("--bridge-interface=bare --physical-ip=10.2.0.5/24"), lines("bridge bare has no NIC")},
		{"NotTheBridgesIP", args("--bridge-interface=breth0 --physical-ip=10.0.0.9/24"), lines("physical IP 10.0.0.9/24 is not an address of breth0, which has " + m.Addresses[0].String())},
		{"LocalWithIP", args("--local --physical-ip=10.0.0.9/24"), lines("--physical-ip, --default-gw and --vlan are not for --local")},
		{"OtherCluster", strings.Replace(physicalArgs, "192.168.0.0/16", "10.0.0.0/8", 1), lines("--cluster-ip-subnet is 10.0.0.0/8, but the cluster's is 192.168.0.0/16")},
		{"NoDNSName", strings.Replace(physicalArgs, "Gw1", "g_w", 1), lines(`node name "g_w" is not a DNS name`)},
		{"RemoveEmpty", "gateway-remove --node-name=", lines("Arguments should be non-null")},
		{"RemoveNoDNSName", "gateway-remove --node-name=a/b", lines(`node name "a/b" is not a DNS name`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m.t = t
			m.fails(tt.args, tt.want...)
		})
	}
	m.t, w.t = t, t
	same(t, "rows", w.topology(), rows)
	same(t, "host", m.host(), host)
	if n := w.transactions() - writes; n != 0 {
		t.Errorf("%d transactions", n)
	}
}

// A NIC needed by the host is not taken, unless forced.
func TestTheHostsOwnNIC(t *testing.T) {
	w := newGatewayWorld(t, "master", "node2")
	n := w.nodes[1]
	n.setID("system-id", "chassis-2")
	second, hops := n.Second()
	args := fmt.Sprintf("gateway-init --cluster-ip-subnet=192.168.0.0/16 --physical-interface=eth1 --physical-ip=%v --default-gw=%v --node-name=gw", second[0], hops[0])
	rows := w.topology()
	tunnels := fmt.Sprintf("ovs-vsctl set Open_vSwitch . external_ids:ovn-encap-ip='\"%v,%v\"'", n.Addresses[0].Addr(), second[0].Addr())
	for _, tt := range []struct{ setup, undo, want string }{
		{fmt.Sprintf("ip route add default via %v metric 500", hops[0]), "ip route del default metric 500", "eth1 carries the host's default route, and would lose all its addresses"},
		{tunnels, "ovs-vsctl remove Open_vSwitch . external_ids ovn-encap-ip", fmt.Sprintf("eth1 carries tunnels (ovn-encap-ip %v)", second[0].Addr())},
		{fmt.Sprintf("ip route add %v via %v dev eth1", w.nodes[0].IPv4(), hops[0]), fmt.Sprintf("ip route del %v via %v dev eth1", w.nodes[0].IPv4(), hops[0]), "eth1 carries the connection to OVN's databases"},
	} {
		before := n.host()
		n.script(tt.setup)
		host := n.host()
		n.fails(args, tt.want)
		same(t, "host", n.host(), host)
		n.script(tt.undo)
		same(t, "host", n.host(), before)
	}
	same(t, "rows", w.topology(), rows)
	n.script(fmt.Sprintf("ip route add default via %v metric 500", hops[0]) + "\n" + tunnels)
	if r := n.run(args + " --force"); r.Status != 0 || !strings.Contains(r.Err, "warning: eth1 carries the host's default route") {
		t.Errorf("%+v", r)
	}
	if record := w.nb("get", "Logical_Router", "ovn_cluster_router", "external_ids:ovn-k8s-gateway-gw"); !strings.Contains(record, fmt.Sprintf(`tunnel\":\"%v\"`, n.Addresses[0].Addr())) {
		t.Errorf("no tunnel address: %s", record)
	}
	if r := n.run("gateway-remove --node-name=gw"); r.Status != 0 {
		t.Errorf("%+v", r)
	}
	same(t, "addresses", n.script("ip -4 -br addr show dev eth1 | tr -s ' ' | cut -d' ' -f3"), second[0].String())
}

// A gateway of the Python era, made twice, is taken over.
func TestTakeOverGateway(t *testing.T) {
	w := newGatewayWorld(t, "master")
	m := w.nodes[0]
	w.nb("lr-add", "GR_Gw1", "--", "set", "Logical_Router", "GR_Gw1", "options:chassis=chassis-1", "external_ids:physical_ip=10.0.0.9", "external_ids:first_gateway=no",
		"--", "lrp-add", "GR_Gw1", "rtoj-GR_Gw1", "00:00:00:01:02:03", "100.64.0.7/16", "--", "set", "Logical_Router_Port", "rtoj-GR_Gw1", "external_ids:connect_to_join=yes",
		"--", "lsp-add", "join", "jtor-GR_Gw1", "--", "ls-add", "ext_Gw1", "--", "lsp-add", "ext_Gw1", "eth1_Gw1",
		"--", "lrp-add", "GR_Gw1", "rtoe-GR_Gw1", "02:00:00:00:00:01", "10.0.0.9/24", "--", "lsp-add", "ext_Gw1", "etor-GR_Gw1",
		"--", "lr-route-add", "GR_Gw1", "192.168.0.0/16", "100.64.0.1", "--", "lr-route-add", "GR_Gw1", "0.0.0.0/0", "10.0.0.254", "rtoe-GR_Gw1",
		"--", "lr-route-add", "ovn_cluster_router", "0.0.0.0/0", "100.64.0.7",
		"--", "--policy=src-ip", "lr-route-add", "ovn_cluster_router", "192.168.2.0/24", "100.64.0.7")
	for _, ip := range []string{"10.0.0.9", "10.0.0.9", "10.0.0.8"} {
		w.nb("--", "--id=@nat", "create", "NAT", "type=snat", "logical_ip=192.168.0.0/16", "external_ip="+ip, "--", "add", "Logical_Router", "GR_Gw1", "nat", "@nat")
	}
	w.nb("lr-add", "foreign", "--", "lr-nat-add", "foreign", "snat", "10.0.0.77", "192.168.0.0/16", "--", "lr-route-add", "ovn_cluster_router", "172.20.0.0/16", "100.64.0.99")
	uuid := w.get("Logical_Router", "GR_Gw1", "_uuid")
	m.fails("gateway-remove --node-name=Gw1", "router GR_Gw1 was made by an older release: run gateway-init for it first")
	m.init(physicalArgs + " --rampout-ip-subnets=192.168.2.0/24")
	same(t, "router", w.get("Logical_Router", "GR_Gw1", "_uuid"), uuid)
	same(t, "join", w.get("Logical_Router_Port", "rtoj-GR_Gw1", "networks"), `["100.64.0.7/16"]`)
	same(t, "balancing", w.get("Logical_Router", "GR_Gw1", "options:lb_force_snat_ip"), "100.64.0.7")
	same(t, "first", w.get("Logical_Router", "GR_Gw1", "external_ids:first_gateway"), "yes")
	same(t, "routes", w.routes("GR_Gw1"), "0.0.0.0/0 10.0.0.1 dst-ip rtoe-GR_Gw1\n192.168.0.0/16 100.64.0.1 dst-ip\n")
	same(t, "cluster", w.routes("ovn_cluster_router"), "0.0.0.0/0 100.64.0.7 dst-ip\n100.64.0.7 100.64.0.7 dst-ip\n172.20.0.0/16 100.64.0.99 dst-ip\n192.168.2.0/24 100.64.0.7 src-ip\n")
	if n := strings.Count(w.nb("lr-nat-list", "GR_Gw1"), "snat"); n != 1 {
		t.Errorf("%d translations: %s", n, w.nb("lr-nat-list", "GR_Gw1"))
	}
	if !strings.Contains(w.nb("lr-nat-list", "foreign"), "10.0.0.77") {
		t.Error("a foreign router lost its translation")
	}
	m.run("gateway-remove --node-name=Gw1")
	same(t, "after removal", w.routes("ovn_cluster_router"), "172.20.0.0/16 100.64.0.99 dst-ip\n")
	same(t, "translations left", w.nb("--bare", "--columns=external_ip", "list", "NAT"), "10.0.0.77")
}

// With a VLAN, the NIC's port contains the VLAN's.
func TestVLAN(t *testing.T) {
	w := newGatewayWorld(t, "master")
	m := w.nodes[0]
	m.setID("system-id", m.Name) // StartController knows it by this
	m.init(physicalArgs + " --vlan=42")
	same(t, "NIC", m.iface("eth1", "external_ids:iface-id"), "eth1_Gw1")
	same(t, "port", w.get("Logical_Switch_Port", "eth1_Gw1.42", "parent_name")+" "+w.get("Logical_Switch_Port", "eth1_Gw1.42", "tag_request"), "eth1_Gw1 42")
	if list := w.nb("lsp-list", "ext_Gw1"); !strings.Contains(list, "(eth1_Gw1.42)") || strings.Contains(list, "(eth1_Gw1)") {
		t.Errorf("ports of the switch: %s", list)
	}
	if err := m.StartController(m.ctx, w.central.SBTCP); err != nil {
		t.Fatal(err)
	}
	w.nb("--wait=hv", "sync")
	// Requests of the gateway's router for its neighbour leave with the tag.
	got := m.script(`ip route add 10.77.0.1 via 192.168.1.1; ping -c 3 -W 1 10.77.0.1 >/dev/null || true
		ovs-ofctl dump-flows br-int | grep -o "n_packets=[1-9].*mod_vlan_vid:42,output:.*" || ovs-ofctl dump-flows br-int | grep mod_vlan`)
	if !strings.HasPrefix(got, "n_packets=") {
		t.Errorf("no packet with the tag: %q", got)
	}
	m.init(physicalArgs + " --vlan=43")
	if list := w.nb("lsp-list", "ext_Gw1"); !strings.Contains(list, "(eth1_Gw1.43)") || strings.Contains(list, "(eth1_Gw1.42)") {
		t.Errorf("ports of the switch: %s", list)
	}
	m.init(physicalArgs)
	if list := w.nb("lsp-list", "ext_Gw1"); !strings.Contains(list, "(eth1_Gw1)") || strings.Contains(list, "eth1_Gw1.") {
		t.Errorf("ports of the switch: %s", list)
	}
	same(t, "trunk", w.nb("--bare", "--columns=name", "find", "Logical_Switch", "name=trunk_Gw1"), "")
}
