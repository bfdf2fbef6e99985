package ovnkube

import (
	"fmt"
	"strings"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/host"
	"ovn-k8s/test/world"
)

// A damage is done by hand to the database, a host or an annotation.
type damage struct {
	host string // check runs here
	what string // a shell script on the host, or a name
	says string // in one line of ovnkube check on the host
	do   func(*checker)
}

// A kind returns damages of a host.
type kind func(*checker, *world.Node) []damage

// script is a damage by a shell script.
func script(n *world.Node, text, says string) damage {
	return damage{n.Name, text, says, func(c *checker) {
		c.Helper()
		_, err := n.Script(c.ctx, text)
		c.must(err)
	}}
}

// annotation is the removal of one.
func annotation(n *world.Node, kind, name, key, says string) damage {
	return damage{n.Name, "without annotation " + key + " of " + kind + " " + name, says, func(c *checker) {
		c.Helper()
		c.removeAnnotation(kind, name, key)
	}}
}

// database are damages of rows and annotations that a master keeps.
func database(c *checker, master *world.Node) []damage {
	node, claimed := c.node.Name, c.node.Subnets
	in := func(command, says string) damage {
		return script(master, "ovn-nbctl --db="+c.Central.NB+" "+command, says)
	}
	find := func(table, condition string) string {
		return fmt.Sprintf("$(ovn-nbctl --db=%s --bare --columns=_uuid find %s %s | head -1)", c.Central.NB, table, condition)
	}
	return []damage{
		in("lsp-del default_web", "+ Logical_Switch_Port default_web"),
		in(`lsp-set-addresses default_web "0a:58:0a:80:01:63 10.128.1.99"`, "~ Logical_Switch_Port default_web addresses"),
		in("set Load_Balancer "+find("Load_Balancer", "external_ids:ovn-k8s-owner=service/default/web protocol=tcp")+` vips:'"10.9.9.9:80"'='"10.9.9.8:80"'`, "10.9.9.9:80"),
		in("clear Port_Group "+find("Port_Group", "'acls!=[]'")+" acls", "+ ACL"),
		in("lr-route-del GR_"+node+" 0.0.0.0/0", "+ Logical_Router_Static_Route"),
		in("set Logical_Router GR_"+node+" options:chassis=other", "~ Logical_Router GR_"+node+" options"),
		in("clear Logical_Router GR_"+node+" load_balancer_group", "~ Logical_Router GR_"+node),
		in("lr-del GR_"+node, "+ Logical_Router GR_"+node),
		in("ls-del "+node, "+ Logical_Switch "+node),
		in("remove Logical_Router ovn_cluster_router external_ids "+names.ChassisPrefix+node, "+ node "+node+": system-id"),
		in("--all destroy Load_Balancer", "service/default/web/tcp "),
		annotation(master, "Pod", "web", "ovn", "~ Pod default/web annotation: "),
		annotation(master, "Node", node, names.SubnetsAnnotation, strings.Split(claimed, ",")[0]),
		annotation(master, "Node", node, names.HostSubnetAnnotation, claimed),
	}
}

// together are damages of all kinds that can be done together.
func together(c *checker) []damage {
	m, n, db := c.Master(), c.node, "ovn-nbctl --db="+c.Central.NB+" "
	return []damage{
		script(m, db+"lsp-del default_web", "+ Logical_Switch_Port default_web"),
		script(m, db+"--all destroy Load_Balancer", "+ Load_Balancer"),
		script(m, db+"lr-del GR_"+n.Name, "+ Logical_Router GR_"+n.Name),
		annotation(m, "Pod", "web", "ovn", "~ Pod default/web annotation: "),
		annotation(m, "Node", n.Name, names.SubnetsAnnotation, "~ Node minion1 annotation "+names.SubnetsAnnotation),
		script(n, "nft flush ruleset", ", IPv4: add "),
		script(n, "ip address flush dev "+names.ManagementPort(n.Name), n.Management[0].String()),
		script(n, "rm /etc/cni/net.d/10-ovn-kubernetes.conflist", "10-ovn-kubernetes.conflist"),
		script(n, "ovs-vsctl set Open_vSwitch . external_ids:hostname=other", "~ set external_ids:hostname="+n.Name),
		script(n, "ovs-ofctl del-flows breth0 icmp6", "~ bridge breth0: "),
	}
}

// everyHost are damages of a host, whatever its gateway.
func everyHost(n *world.Node) []damage {
	port, address := names.ManagementPort(n.Name), n.Management[0].String()
	return []damage{
		script(n, "ip address del "+address+"/24 dev "+port, address+"/24"),
		script(n, "ip address add 10.9.9.9/24 dev "+port, "10.9.9.9/24"),
		script(n, "ip route del 10.128.0.0/14", "10.128.0.0/14"),
		script(n, "ip -6 route del fd02::/112", "fd02::/112"),
		script(n, "ip link set "+port+" down", "set "+port+" up"),
		script(n, "ovs-vsctl set Interface "+port+" mtu_request=1300", "mtu_request=1400 (was 1300)"),
		script(n, "ovs-vsctl set Interface "+port+" external_ids:iface-id=other", port),
		script(n, "ovs-vsctl del-port br-int "+port, "add port "+port+" to bridge br-int"),
		script(n, "ovs-vsctl set Open_vSwitch . external_ids:hostname=other", "external_ids:hostname="+n.Name),
		script(n, "ovs-vsctl remove Open_vSwitch . external_ids ovn-encap-ip", "external_ids:ovn-encap-ip="+n.IPv4().String()),
		script(n, "rm /etc/cni/net.d/10-ovn-kubernetes.conflist", "/etc/cni/net.d/10-ovn-kubernetes.conflist"),
		script(n, "sed -i s/ovn-k8s-cni-overlay/other/ /etc/cni/net.d/10-ovn-kubernetes.conflist", "/etc/cni/net.d/10-ovn-kubernetes.conflist"),
		script(n, "rm /opt/cni/bin/ovn-k8s-cni-overlay", "/opt/cni/bin/ovn-k8s-cni-overlay"),
		annotation(n, "Node", n.Name, names.ChassisAnnotation, names.ChassisAnnotation+"="+n.Name),
		annotation(n, "Node", n.Name, names.GatewayAnnotation, names.GatewayAnnotation),
	}
}

// rules are damages of the packet filter of a host.
func rules(c *checker, n *world.Node) []damage {
	number := fmt.Sprint(c.service.NodePorts["tcp"])
	one := host.PerFirewall(
		"iptables -t nat -S | grep -m1 -e ' "+number+" ' | sed 's/^-A/-D/' | xargs iptables -t nat",
		"nft flush map ip ovn-k8s svc-nodeport-cluster-ips")
	return []damage{
		script(n, one, number),
		script(n, host.LostRules(), ", IPv4: "),
	}
}

// sharedGateway are damages of a host with a shared NIC.
func sharedGateway(c *checker, n *world.Node) []damage {
	number := fmt.Sprint(c.service.NodePorts["tcp"])
	return append(append(everyHost(n), rules(c, n)...),
		script(n, "ovs-ofctl del-flows breth0 tcp,tp_dst="+number, "tp_dst="+number),
		script(n, "ovs-vsctl del-port k8s-patch-breth0-br-int", "k8s-patch-breth0-br-int"),
		script(n, "ovs-vsctl remove Interface k8s-patch-br-int-breth0 external_ids iface-id", "breth0_"+n.Name),
		script(n, rebooted(n), "~ move eth0 with its addresses and routes to bridge breth0"),
		script(n, "ovs-ofctl del-flows breth0", "~ bridge breth0: "), // the host has no network any more
	)
}

// rebooted leaves the NIC of a host as its own configuration does at a boot: with the addresses that the bridge had.
func rebooted(n *world.Node) string {
	text := "set -e\nsysctl -qw net.ipv6.conf.eth0.disable_ipv6=0 net.ipv4.conf.eth0.arp_ignore=0\n"
	for i, a := range n.Addresses {
		text += fmt.Sprintf("ip address del %v dev breth0; ip address add %v dev eth0 %s; ip route replace default via %v dev eth0\n", a, a, []string{"", "nodad"}[i], n.Gateways()[i])
	}
	return text
}

// localGateway are damages of a host whose routing is the gateway.
func localGateway(_ *checker, n *world.Node) []damage {
	return []damage{
		script(n, "ip address flush dev br-nexthop scope global", "169.254.33.1/24"),
		script(n, `ip rule del pref $(ip rule | grep -v 'lookup [lmd]' | head -1 | cut -d: -f1)`, "rule"),
		script(n, "ovs-vsctl del-port k8s-patch-br-local-br-int", "k8s-patch-br-local-br-int"),
		script(n, "ovs-vsctl del-br br-local", "add bridge br-local"),
		script(n, "sysctl -w net.ipv4.ip_forward=0", "net.ipv4.ip_forward"),
		script(n, host.LostRules(), host.PerFirewall("OVN-K8S-GATEWAY-", ": add chain gw-")),
	}
}

// spareGateway are damages of a host with a NIC for OVN alone.
func spareGateway(_ *checker, n *world.Node) []damage {
	addresses, _ := n.Second()
	return []damage{
		script(n, "ovs-vsctl del-port br-int eth1", "eth1"),
		script(n, "ovs-vsctl remove Interface eth1 external_ids iface-id", "eth1_"+n.Name),
		script(n, "ip address add "+addresses[0].String()+" dev eth1", addresses[0].String()),
	}
}
