package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ovn-k8s/test/host"
)

const (
	// gatewayArgs are the commands of the specification's checks.
	physicalArgs = "gateway-init --cluster-ip-subnet=192.168.0.0/16 --physical-interface=eth1 --physical-ip=10.0.0.5/24 --default-gw=10.0.0.1 --node-name=Gw1"
	bridgeArgs   = "gateway-init --cluster-ip-subnet=192.168.0.0/16 --bridge-interface=breth0 --physical-ip=%v --default-gw=%v --node-name=gw2"
	localArgs    = "gateway-init --cluster-ip-subnet=192.168.0.0/16 --local --node-name=gw3"
)

// newGatewayWorld is a world with a cluster, and eth1 of the first host as in the checks.
func newGatewayWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := newWorld(t, names...)
	m := w.nodes[0]
	m.init(masterInitArgs)
	m.setID("system-id", "chassis-1")
	m.script(`ip addr flush dev eth1 scope global
		ip addr add 10.0.0.5/24 dev eth1
		ip addr add fd10::5/64 dev eth1 nodad
		ip route add 172.20.0.0/16 via 10.0.0.1 dev eth1 metric 7 mtu 1400
		ip route add 172.21.0.0/16 via 10.0.0.1 dev eth1 src 10.0.0.5 table 100
		ip -6 route add fd77::/64 via fd10::1 dev eth1 metric 9
		ip neigh add 10.0.0.99 lladdr 0a:00:00:00:00:99 dev eth1`)
	return w
}

// bridge is the command for a host sharing breth0.
func (n *node) bridge() string { return fmt.Sprintf(bridgeArgs, n.Addresses[0], n.Gateways()[0]) }

// topology lists all rows of gateways, without the columns of northd.
func (w *world) topology() string {
	w.t.Helper()
	var all []string
	for table, columns := range map[string]string{
		"Logical_Router": "name,options,external_ids,load_balancer_group", "Logical_Router_Port": "name,mac,networks,external_ids",
		"Logical_Switch": "name,external_ids", "Logical_Switch_Port": "name,type,addresses,options,tag_request,parent_name,external_ids",
		"NAT": "type,logical_ip,external_ip,external_port_range,external_ids", "Logical_Router_Policy": "priority,match,action,nexthops,external_ids",
		"Logical_Router_Static_Route": "ip_prefix,nexthop,policy,output_port,external_ids", "BFD": "logical_port,dst_ip,external_ids",
	} {
		for line := range strings.Lines(w.nb("--format=csv", "--no-headings", "--columns=_uuid,"+columns, "list", table)) {
			all = append(all, table+" "+line)
		}
	}
	return sorted(all)
}

// get reads a column, without quotes.
func (w *world) get(table, row, column string) string {
	w.t.Helper()
	return strings.Trim(w.nb("get", table, row, column), `"`)
}

// routes lists a router's routes, one a line: prefix, next hop, and the rest.
func (w *world) routes(router string) string {
	w.t.Helper()
	var lines []string
	for line := range strings.Lines(w.nb("lr-route-list", router)) {
		if strings.HasPrefix(line, " ") {
			lines = append(lines, strings.Join(strings.Fields(line), " ")+"\n")
		}
	}
	return sorted(lines)
}

// host is the part of a host's state changed by gateways.
func (n *node) host() string {
	n.t.Helper()
	return n.script(`ip -br addr | sort; ip rule; ip -6 rule; ip neigh show nud permanent; { ` + host.RulesScript + `; } | grep -v -e ^# -e "^:[A-Z]* " -e "^[*]" -e COMMIT | sed "s/# handle.*//"
		{ ip route show table all; ip -6 route show table all; } | grep -v -e fe80 -e ff00 -e '^local' -e '^anycast' | sort
		ovs-vsctl -f csv --columns=name,external_ids,type,options list Interface | sort; ovs-vsctl -f csv --columns=name,external_ids,other_config list Bridge | sort`)
}

// TestCheck05_24_25_26_27_29_30_31_33_GatewayInit plans, makes, repeats and removes a gateway of each mode.
func TestCheck05_24_25_26_27_29_30_31_33_GatewayInit(t *testing.T) {
	w := newGatewayWorld(t, "master", "node2", "node3")
	m, n, l := w.nodes[0], w.nodes[1], w.nodes[2]
	before, hosts := w.topology(), []string{m.host(), n.host(), l.host()}

	t.Run("Check05_OneOfTheInterfaces", func(t *testing.T) {
		m.t = t
		m.fails(physicalArgs+" --bridge-interface=breth0", "One of physical-interface or bridge-interface has to be specified")
		m.fails(strings.Replace(physicalArgs, "--physical-interface=eth1", "", 1), "One of physical-interface or bridge-interface has to be specified")
		m.fails(physicalArgs+" --local", "One of physical-interface or bridge-interface has to be specified", "--physical-ip, --default-gw and --vlan are not for --local")
		same(t, "rows", w.topology(), before)
		same(t, "host", m.host(), hosts[0])
	})
	t.Run("Check29_NoSystemID", func(t *testing.T) {
		m.t = t
		m.script("ovs-vsctl remove Open_vSwitch . external_ids system-id")
		m.fails(physicalArgs, "no system-id configured in the local host")
		m.setID("system-id", "chassis-1")
		same(t, "rows", w.topology(), before)
	})
	t.Run("DryRun", func(t *testing.T) {
		m.t = t
		for _, args := range []string{physicalArgs, m.bridge(), localArgs} {
			r := m.run(args + " --dry-run")
			if r.Status != 0 || !strings.Contains(r.Out, "+ Logical_Router GR_") || !strings.Contains(r.Out, "# this host\n") || strings.Contains(r.Out, "nothing to change") {
				t.Errorf("%+v", r)
			}
		}
		same(t, "rows", w.topology(), before)
		same(t, "host", m.host(), hosts[0])
	})

	t.Run("H7_Altname", func(t *testing.T) {
		m.t = t
		m.script("ip link property add dev eth1 altname wan0")
		defer m.script("ip link property del dev eth1 altname wan0")
		r := m.run(strings.Replace(physicalArgs, "=eth1", "=wan0", 1) + " --dry-run")
		if r.Status != 0 || !strings.Contains(r.Out, "eth1_Gw1") || strings.Contains(r.Out, "wan0") {
			t.Errorf("%+v", r)
		}
	})

	m.t = t
	m.init(physicalArgs)
	t.Run("Check24_Physical", func(t *testing.T) {
		w.t = t
		same(t, "options", w.get("Logical_Router", "GR_Gw1", "options:chassis")+" "+w.get("Logical_Router", "GR_Gw1", "options:lb_force_snat_ip"), "chassis-1 100.64.0.2")
		same(t, "address", w.get("Logical_Router", "GR_Gw1", "external_ids:physical_ip"), "10.0.0.5")
		same(t, "first", w.get("Logical_Router", "GR_Gw1", "external_ids:first_gateway"), "yes")
		same(t, "join", w.get("Logical_Router_Port", "rtoj-GR_Gw1", "networks"), `["100.64.0.2/16"]`)
		same(t, "outside", w.get("Logical_Router_Port", "rtoe-GR_Gw1", "external_ids:gateway-physical-ip"), "yes")
		same(t, "port", w.get("Logical_Switch_Port", "eth1_Gw1", "addresses")+w.get("Logical_Switch_Port", "eth1_Gw1", "type"), "[unknown]")
		same(t, "router's", w.get("Logical_Switch_Port", "etor-GR_Gw1", "options:router-port"), "rtoe-GR_Gw1")
		if list := w.nb("lsp-list", "ext_Gw1"); !strings.Contains(list, "(eth1_Gw1)") || !strings.Contains(list, "(etor-GR_Gw1)") {
			t.Errorf("ports of the switch: %s", list)
		}
	})
	t.Run("Check25_Routes", func(t *testing.T) {
		w.t = t
		same(t, "gateway", w.routes("GR_Gw1"), "0.0.0.0/0 10.0.0.1 dst-ip rtoe-GR_Gw1\n192.168.0.0/16 100.64.0.1 dst-ip\n")
		same(t, "cluster", w.routes("ovn_cluster_router"), "0.0.0.0/0 100.64.0.2 dst-ip\n")
		same(t, "translations", w.nb("--bare", "--columns=type,logical_ip,external_ip", "list", "NAT"), "snat\n192.168.0.0/16\n10.0.0.5")
	})
	t.Run("Check26_NIC", func(t *testing.T) {
		m.t, w.t = t, t
		same(t, "bridge", m.script("ovs-vsctl port-to-br eth1"), "br-int")
		same(t, "iface-id", m.iface("eth1", "external_ids:iface-id"), "eth1_Gw1")
		same(t, "addresses", m.script("ip -br addr show dev eth1 | tr -s ' ' | cut -d' ' -f3-"), "")
		same(t, "mac", w.get("Logical_Router_Port", "rtoe-GR_Gw1", "mac"), m.iface("eth1", "mac_in_use"))
	})

	n.t = t
	addresses := n.script("ip -br addr show dev breth0")
	n.init(n.bridge())
	t.Run("Check27_Bridge", func(t *testing.T) {
		n.t, w.t = t, t
		mac := n.iface("breth0", "mac_in_use")
		same(t, "pinned", strings.Trim(n.script("ovs-vsctl get Bridge breth0 other_config:hwaddr"), `"`), mac)
		same(t, "patch port outside", n.script("ovs-vsctl port-to-br k8s-patch-breth0-br-int; ovs-vsctl get Interface k8s-patch-breth0-br-int type options:peer"), "breth0\npatch\nk8s-patch-br-int-breth0")
		same(t, "patch port inside", n.script("ovs-vsctl port-to-br k8s-patch-br-int-breth0; ovs-vsctl get Interface k8s-patch-br-int-breth0 type options:peer external_ids:iface-id"), "br-int\npatch\nk8s-patch-breth0-br-int\nbreth0_gw2")
		same(t, "whose are pods", n.script("ovs-vsctl get Interface k8s-patch-br-int-breth0 external_ids:ovn-k8s-cluster-subnets"), "\"192.168.0.0/16\"")
		same(t, "the router's addresses", n.script("ovs-vsctl get Interface k8s-patch-br-int-breth0 external_ids:ovn-k8s-gateway-ips"), fmt.Sprintf("%q", n.Addresses[0]))
		same(t, "its next hops", n.script("ovs-vsctl get Interface k8s-patch-br-int-breth0 external_ids:ovn-k8s-gateway-next-hops"), fmt.Sprintf("%q", n.Gateways()[0]))
		same(t, "no iface-id outside", n.script("ovs-vsctl --if-exists get Interface k8s-patch-breth0-br-int external_ids:iface-id"), "")
		same(t, "addresses", n.script("ip -br addr show dev breth0"), addresses)
		same(t, "join", w.get("Logical_Router_Port", "rtoj-GR_gw2", "networks"), `["100.64.0.3/16"]`)
		same(t, "first", w.get("Logical_Router", "GR_gw2", "external_ids:first_gateway"), "no")
		same(t, "ports of pods", w.nb("--bare", "--columns=external_port_range", "find", "NAT", "external_ip="+n.IPv4().String()), "10000-29999")
		same(t, "routes", w.routes("ovn_cluster_router"), "0.0.0.0/0 100.64.0.2 dst-ip ecmp\n0.0.0.0/0 100.64.0.3 dst-ip ecmp\n")
	})

	l.t = t
	l.init(localArgs)
	t.Run("Local", func(t *testing.T) {
		l.t, w.t = t, t
		same(t, "address", l.script("ip -4 -br addr show up dev br-nexthop | tr -s ' ' | cut -d' ' -f3-"), "169.254.33.1/24 ")
		same(t, "datapath", l.script("ovs-vsctl get Bridge br-local datapath_type"), l.script("ovs-vsctl get Bridge br-int datapath_type"))
		same(t, "outside", w.get("Logical_Router_Port", "rtoe-GR_gw3", "networks"), `["169.254.33.2/24"]`)
		same(t, "route", w.routes("GR_gw3"), "0.0.0.0/0 169.254.33.1 dst-ip rtoe-GR_gw3\n192.168.0.0/16 100.64.0.1 dst-ip\n")
		same(t, "iface-id", l.script("ovs-vsctl get Interface k8s-patch-br-int-br-local external_ids:iface-id"), "br-local_gw3")
		same(t, "forwarding", l.script("cat /proc/sys/net/ipv4/ip_forward"), "1")
		same(t, "rules", l.script("{ "+host.RulesScript+"; } | grep -e '^-A OVN-K8S-GATEWAY' -e '^.*[a-z].* comment' | sed 's/^[\t ]*//; s/ comment .*//'"), host.PerFirewall(
			"-A OVN-K8S-GATEWAY-POSTROUTING -o br-nexthop -j MARK --set-xmark 0x0/0x800\n"+
				"-A OVN-K8S-GATEWAY-PREROUTING -i br-nexthop -j RETURN\n"+
				"-A OVN-K8S-GATEWAY-PREROUTING -i k8s-+ -j RETURN\n"+
				"-A OVN-K8S-GATEWAY-PREROUTING -d 192.168.0.0/16 -j MARK --set-xmark 0x800/0x800\n"+
				"-A OVN-K8S-GATEWAY-FORWARD -s 169.254.33.2/32 -i br-nexthop -j ACCEPT\n"+
				"-A OVN-K8S-GATEWAY-FORWARD -d 169.254.33.2/32 -o br-nexthop -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"+
				"-A OVN-K8S-GATEWAY-FORWARD -s 192.168.0.0/16 -i br-nexthop -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"+
				"-A OVN-K8S-GATEWAY-SNAT -s 169.254.33.2/32 -j MASQUERADE --random-fully",
			"iifname \"br-nexthop\" return\niifname \"k8s-*\" return\nip daddr 192.168.0.0/16 meta mark set meta mark | 0x00000800\noifname \"br-nexthop\" meta mark set meta mark & 0xfffff7ff\nip saddr 169.254.33.2 masquerade fully-random"))
		same(t, "way to the router", l.script("ip rule show pref 1647; ip route show table 1646"),
			"1647:\tfrom all to 192.168.0.0/16 fwmark 0x800/0x800 lookup 1646 proto 46\ndefault via 169.254.33.2 dev br-nexthop proto 46 ")
	})

	t.Run("Check33_LoadBalancerGroups", func(t *testing.T) {
		// As improved: groups instead of two load balancers per gateway.
		w.t = t
		for _, group := range []string{"ovn-k8s-cluster", "ovn-k8s-gateways"} {
			uuid := w.nb("--bare", "--columns=_uuid", "find", "Load_Balancer_Group", "name="+group)
			for _, router := range []string{"GR_Gw1", "GR_gw2", "GR_gw3"} {
				if got := w.get("Logical_Router", router, "load_balancer_group"); !strings.Contains(got, uuid) {
					t.Errorf("%s is not in %s: %s", router, group, got)
				}
			}
		}
		same(t, "balancers", w.nb("list", "Load_Balancer"), "")
	})
	t.Run("Check30_31_Twice", func(t *testing.T) {
		for i, h := range []*node{m, n, l} {
			h.t, w.t = t, t
			args := []string{physicalArgs, n.bridge(), localArgs}[i]
			rows, host, writes := w.topology(), h.host(), w.transactions()
			h.init(args)
			same(t, "rows", w.topology(), rows)
			same(t, "host", h.host(), host)
			if wrote := w.transactions() - writes; wrote != 0 {
				t.Errorf("%s wrote %d transactions", args, wrote)
			}
			same(t, "a dry run", h.run(args+" --dry-run").Out, "# Northbound database\nnothing to change\n# this host\nnothing to change\n")
		}
		same(t, "first", w.get("Logical_Router", "GR_Gw1", "external_ids:first_gateway"), "yes")
	})

	t.Run("Remove", func(t *testing.T) {
		m.t, n.t, l.t, w.t = t, t, t, t
		for i, h := range []*node{m, n, l} {
			name := []string{"Gw1", "gw2", "gw3"}[i]
			if r := h.run("gateway-remove --node-name=" + name + " --dry-run"); r.Status != 0 || !strings.Contains(r.Out, "- Logical_Router GR_"+name) {
				t.Errorf("%+v", r)
			}
			for _, want := range []string{"removed", "was not there"} {
				if got := h.run("gateway-remove --node-name=" + name); got != (host.Result{Out: fmt.Sprintf("Gateway %s %s.\n", name, want)}) {
					t.Errorf("%+v", got)
				}
			}
			h.script("ovs-vsctl --if-exists del-br br-int")
		}
		same(t, "rows", w.topology(), before)
		m.init(masterInitArgs) // br-int is gone
		for i, h := range []*node{m, n, l} {
			same(t, "host", h.host(), hosts[i])
		}
	})
}

func TestCheck06_07_Addresses(t *testing.T) {
	w := newGatewayWorld(t, "master")
	m := w.nodes[0]
	args := strings.Replace(strings.Replace(physicalArgs, "10.0.0.5/24", "10.0.0.5/255.255.255.0", 1), "10.0.0.1", "10.0.0.1/24", 1)
	m.init(args)
	same(t, "Check 6", w.get("Logical_Router_Port", "rtoe-GR_Gw1", "networks"), `["10.0.0.5/24"]`)
	same(t, "Check 7", w.routes("GR_Gw1"), "0.0.0.0/0 10.0.0.1 dst-ip rtoe-GR_Gw1\n192.168.0.0/16 100.64.0.1 dst-ip\n")

	// As in a cloud with addresses of hosts without a network.
	m.init(strings.Replace(physicalArgs, "10.0.0.5/24", "10.0.0.5", 1))
	same(t, "alone", w.get("Logical_Router_Port", "rtoe-GR_Gw1", "networks"), `["10.0.0.5/32"]`)

	// Changed: corrected, and nothing of the old configuration is left.
	m.init(strings.Replace(strings.Replace(physicalArgs, "10.0.0.5/24", "10.0.7.5/24", 1), "10.0.0.1", "10.0.7.1", 1))
	same(t, "port", w.get("Logical_Router_Port", "rtoe-GR_Gw1", "networks"), `["10.0.7.5/24"]`)
	same(t, "tag", w.get("Logical_Router", "GR_Gw1", "external_ids:physical_ip"), "10.0.7.5")
	same(t, "routes", w.routes("GR_Gw1"), "0.0.0.0/0 10.0.7.1 dst-ip rtoe-GR_Gw1\n192.168.0.0/16 100.64.0.1 dst-ip\n")
	same(t, "translations", w.nb("--bare", "--columns=type,logical_ip,external_ip", "list", "NAT"), "snat\n192.168.0.0/16\n10.0.7.5")
}

func TestGatewayChanges(t *testing.T) {
	w := newGatewayWorld(t, "master")
	m := w.nodes[0]
	before := m.host()
	shared := strings.Replace(m.bridge(), "gw2", "Gw1", 1)
	local := strings.Replace(localArgs, "gw3", "Gw1", 1)
	ports := func() string { return w.nb("--bare", "--columns=name", "list", "Logical_Switch_Port") }
	for _, args := range []string{physicalArgs, shared, local, physicalArgs, local, shared, physicalArgs} {
		m.init(args)
		for marker, traces := range map[string][2]string{
			"--physical-interface": {"eth1_Gw1", "iface-id=eth1_Gw1"}, "--bridge-interface": {"breth0_Gw1", "iface-id=breth0_Gw1"}, "--local": {"br-local_Gw1", "iface-id=br-local_Gw1"},
		} {
			wanted := strings.Contains(args, marker)
			if strings.Contains(ports(), traces[0]) != wanted || strings.Contains(m.host(), traces[1]) != wanted {
				t.Errorf("after %s: %s\n%s", args, ports(), m.host())
			}
		}
		if has := strings.Contains(m.host(), host.PerFirewall("OVN-K8S-GATEWAY", "gw-")); has != strings.Contains(args, "--local") {
			t.Errorf("after %s: %s", args, m.host())
		}
	}
	// Another MAC.
	mac := m.script("cat /sys/class/net/eth1/address")
	m.script("ip link set eth1 address 02:00:00:00:00:77")
	m.init(physicalArgs)
	same(t, "mac", w.get("Logical_Router_Port", "rtoe-GR_Gw1", "mac"), "02:00:00:00:00:77")
	same(t, "and its peer", w.get("Logical_Switch_Port", "etor-GR_Gw1", "addresses"), `["02:00:00:00:00:77"]`)

	m.script("ip link set eth1 address " + mac)
	if got := m.run("gateway-remove --node-name=Gw1"); got.Status != 0 {
		t.Errorf("%+v", got)
	}
	same(t, "host", m.host(), before)
}

func TestCheck28_Rampout(t *testing.T) {
	w := newGatewayWorld(t, "master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	r := m.run(physicalArgs + " --rampout-ip-subnets=192.168.2.0/24,junk,192.168.3.0/24,10.9.0.0/24")
	if r.Status != 0 || r.Out != complete || r.Err != "ovn-k8s-overlay: warning: junk is not valid subnet: it is left out; write it like 192.168.2.0/24\n"+
		"ovn-k8s-overlay: warning: 10.9.0.0/24 has no pods, they are in 192.168.0.0/16: it is left out\n" {
		t.Errorf("%+v", r)
	}
	want := "0.0.0.0/0 100.64.0.2 dst-ip\n100.64.0.2 100.64.0.2 dst-ip\n192.168.2.0/24 100.64.0.2 src-ip\n192.168.3.0/24 100.64.0.2 src-ip\n"
	same(t, "routes", w.routes("ovn_cluster_router"), want)
	n.fails(n.bridge()+" --rampout-ip-subnets=192.168.3.128/25", "rampout subnet 192.168.3.128/25 overlaps 192.168.3.0/24 of gateway Gw1: give each address to one gateway")
	n.fails(n.bridge()+" --rampout-ip-subnets=192.168.4.0/24,192.168.4.0/25", "rampout subnets 192.168.4.0/24 and 192.168.4.0/25 overlap")
	same(t, "routes", w.routes("ovn_cluster_router"), want)
	m.init(physicalArgs)
	same(t, "without", w.routes("ovn_cluster_router"), "0.0.0.0/0 100.64.0.2 dst-ip\n")
}

// A command killed at any moment is completed by the next one: gateway-init and gateway-remove.
func TestCheck32_Killed(t *testing.T) {
	w := newGatewayWorld(t, "master")
	m := w.nodes[0]
	const rampout, remove, times = " --rampout-ip-subnets=192.168.2.0/24", "gateway-remove --node-name=Gw1", 4
	before, none := m.host(), w.topology()
	for _, args := range []string{physicalArgs, strings.Replace(m.bridge(), "gw2", "Gw1", 1), strings.Replace(localArgs, "gw3", "Gw1", 1)} {
		args += rampout
		start := time.Now()
		m.init(args)
		whole := time.Since(start)
		routes, host := w.routes("ovn_cluster_router"), m.host()
		kill := func(i int, args string) {
			m.script(fmt.Sprintf("timeout -s KILL %.3f %s/ovn-k8s-overlay %s || true", whole.Seconds()*float64(i)/times, bin, args))
		}
		for i := range times {
			kill(i, remove)
			m.run(remove)
			same(t, "removed", m.host(), before)
			same(t, "rows", w.topology(), none)
			kill(i, args)
			m.init(args)
			same(t, "balancing", w.get("Logical_Router", "GR_Gw1", "options:lb_force_snat_ip"), "100.64.0.2")
			same(t, "routes", w.routes("ovn_cluster_router"), routes)
			same(t, "host", m.host(), host)
		}
		m.run(remove)
	}
}

func TestCheck34_Parallel(t *testing.T) {
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprint("host", i))
	}
	w := newWorld(t, names...)
	w.nodes[0].init(masterInitArgs)
	var wg sync.WaitGroup
	for i, n := range w.nodes {
		n.setID("system-id", names[i])
		wg.Go(func() {
			if r := n.run(strings.Replace(n.bridge(), "gw2", fmt.Sprint("gw", i), 1)); r.Status != 0 || r.Out != complete {
				t.Errorf("%+v", r)
			}
		})
	}
	wg.Wait()
	joins := map[string]bool{}
	firsts := 0
	for i := range 10 {
		joins[w.get("Logical_Router_Port", fmt.Sprint("rtoj-GR_gw", i), "networks")] = true
		if w.get("Logical_Router", fmt.Sprint("GR_gw", i), "external_ids:first_gateway") == "yes" {
			firsts++
		}
	}
	if len(joins) != 10 || firsts != 1 {
		t.Errorf("%d first gateways, join addresses %v", firsts, joins)
	}
	for i := range 9 { // any remaining gateway becomes the first
		w.nodes[i].run(fmt.Sprint("gateway-remove --node-name=gw", i))
	}
	same(t, "the last one", w.get("Logical_Router", "GR_gw9", "external_ids:first_gateway"), "yes")
}

func sorted(lines []string) string {
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// H4, H10: at boot the host's part of a gateway works before the database does, and a late address is awaited.
func TestAGatewayBootsBeforeTheDatabase(t *testing.T) {
	w := newWorld(t, "kube-master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	m.init(masterInitArgs)
	n.init(minionInitArgs)
	// start runs a command like a unit, with its output in /run/log.
	start := func(args string) {
		t.Helper()
		p, err := n.Start("sh", "-c", "PATH=$PATH:"+bin+" exec "+bin+"/ovn-k8s-overlay "+args+" --wait >/run/log 2>&1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Stop)
	}
	until := func(script string) {
		t.Helper()
		n.script("for i in $(seq 1500); do { " + script + "; } >/dev/null 2>&1 && exit; sleep 0.02; done; cat /run/log >&2; exit 1")
	}
	local := "gateway-init --cluster-ip-subnet=192.168.0.0/16 --local --node-name=node2"
	n.init(local)
	own := func() string {
		return n.script("ip -4 -br address show dev br-nexthop; ip route show table 1646; ip rule show pref 1647; { " + host.RulesScript + "; } | sed 's/# handle.*//; / drop /d' | grep -e '^-.*OVN-K8S' -e comment | sort")
	}
	before := own()
	n.script("ip address flush dev br-nexthop; ip route flush table 1646; " + host.LostRules() + "; ovs-vsctl set Open_vSwitch . external_ids:ovn-nb=tcp:127.0.0.1:1")
	start(local)
	until("grep -q 'waiting, connecting to the Northbound' /run/log")
	same(t, "without the database", own(), before)
	n.setID("ovn-nb", w.central.NBTCP)

	address := n.Addresses[0].String()
	n.script("ip address del " + address + " dev breth0")
	start("gateway-init --cluster-ip-subnet=192.168.0.0/16 --bridge-interface=breth0 --physical-ip=" + address + " --node-name=node2")
	until("grep -q 'waiting, looking at this host.*is not an address of breth0' /run/log")
	n.script("ip address add " + address + " dev breth0")
	until("grep -q 'Initialization complete' /run/log")
}
