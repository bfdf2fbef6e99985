package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/test/host"
)

func TestMasterInit(t *testing.T) {
	w := newWorld(t, "master")
	m := w.nodes[0]
	if r := m.run(masterInitArgs); r.Status != 0 || r.Out != complete {
		t.Fatalf("Check 4: %+v", r)
	}

	t.Run("Check10_RouterAndSwitch", func(t *testing.T) {
		// As improved: the router has a name of its own.
		same(t, "routers", w.nb("--bare", "--columns=name", "list", "Logical_Router"), "ovn_cluster_router")
		same(t, "tag", w.nb("get", "Logical_Router", "ovn_cluster_router", "external_ids:k8s-cluster-router"), "yes")
		same(t, "subnet", w.nb("get", "Logical_Switch", "kube-master", "other_config:subnet"), `"192.168.1.0/24"`)
		same(t, "gateway", w.nb("get", "Logical_Switch", "kube-master", "external_ids:gateway_ip"), `"192.168.1.1/24"`)
	})

	mac := regexp.MustCompile(`^00:00:00(:[0-9A-F]{2}){3}$`)
	macOf := func(port string) string { return strings.Trim(w.nb("get", "Logical_Router_Port", port, "mac"), `"`) }
	t.Run("Check11_RouterPorts", func(t *testing.T) {
		same(t, "join", w.nb("get", "Logical_Router_Port", "rtoj-ovn_cluster_router", "networks"), `["100.64.0.1/16"]`)
		same(t, "tag", w.nb("get", "Logical_Router_Port", "rtoj-ovn_cluster_router", "external_ids:connect_to_join"), "yes")
		same(t, "node", w.nb("get", "Logical_Router_Port", "rtos-kube-master", "networks"), `["192.168.1.1/24"]`)
		for _, p := range []string{"rtoj-ovn_cluster_router", "rtos-kube-master"} {
			if !mac.MatchString(macOf(p)) {
				t.Errorf("MAC of %s: %s", p, macOf(p))
			}
		}
	})

	t.Run("Check12_SwitchPorts", func(t *testing.T) {
		for _, p := range [][3]string{{"jtor-ovn_cluster_router", "rtoj-ovn_cluster_router", "join"}, {"stor-kube-master", "rtos-kube-master", "kube-master"}} {
			same(t, "type", w.nb("get", "Logical_Switch_Port", p[0], "type"), "router")
			same(t, "peer", w.nb("get", "Logical_Switch_Port", p[0], "options:router-port"), p[1])
			same(t, "addresses", w.nb("get", "Logical_Switch_Port", p[0], "addresses"), `["`+macOf(p[1])+`"]`)
			if list := w.nb("lsp-list", p[2]); !strings.Contains(list, "("+p[0]+")") {
				t.Errorf("%s is not on %s: %s", p[0], p[2], list)
			}
		}
	})

	t.Run("Check13_LoadBalancerGroups", func(t *testing.T) {
		// As improved: no load balancer before the first Service, and groups in place of the two large ones.
		same(t, "balancers", w.nb("list", "Load_Balancer"), "")
		var groups []string
		for _, name := range []string{"ovn-k8s-cluster", "ovn-k8s-switches"} {
			groups = append(groups, w.nb("--bare", "--columns=_uuid", "find", "Load_Balancer_Group", "name="+name))
		}
		slices.Sort(groups)
		same(t, "of the node", w.nb("get", "Logical_Switch", "kube-master", "load_balancer_group"), "["+strings.Join(groups, ", ")+"]")
		same(t, "of join", w.nb("get", "Logical_Switch", "join", "load_balancer_group"), "[]")
		same(t, "of the router", w.nb("get", "Logical_Router", "ovn_cluster_router", "load_balancer_group"), "[]")
	})

	t.Run("Check14_ManagementPort", func(t *testing.T) {
		const name = "k8s-kube-master"
		same(t, "type", m.iface(name, "type"), "internal")
		same(t, "mtu", m.iface(name, "mtu_request"), "1400")
		same(t, "iface-id", m.iface(name, "external_ids:iface-id"), name)
		same(t, "bridge", m.script("ovs-vsctl port-to-br "+name), "br-int")
		same(t, "logical port", w.nb("get", "Logical_Switch_Port", name, "addresses"), `["`+m.iface(name, "mac_in_use")+` 192.168.1.2"]`)
	})

	t.Run("Check15_Kernel", func(t *testing.T) {
		same(t, "address", m.script("ip -4 -br addr show up dev k8s-kube-master | tr -s ' ' | cut -d' ' -f3-"), "192.168.1.2/24 ")
		same(t, "route", m.script("ip route show 192.168.0.0/16"), "192.168.0.0/16 via 192.168.1.1 dev k8s-kube-master proto 46 ")
		same(t, "mtu", m.script("cat /sys/class/net/k8s-kube-master/mtu"), "1400")
	})

	t.Run("Check16_SecondRun", func(t *testing.T) {
		before, host, writes := w.rows("_uuid,name,external_ids,other_config"), m.state(), w.transactions()
		m.init(masterInitArgs)
		same(t, "rows", w.rows("_uuid,name,external_ids,other_config"), before)
		same(t, "host", m.state(), host)
		if n := w.transactions() - writes; n != 0 {
			t.Errorf("the second run wrote %d transactions", n)
		}
		r := m.run(masterInitArgs + " --dry-run")
		same(t, "a dry run", r.Out, "# Northbound database\nnothing to change\n# this host\nnothing to change\n")
	})

	t.Run("Check23_ChangedSubnet", func(t *testing.T) {
		uuid := w.nb("get", "Logical_Switch", "kube-master", "_uuid")
		m.init(strings.Replace(masterInitArgs, "192.168.1.0", "192.168.9.0", 1))
		same(t, "router", w.nb("get", "Logical_Router_Port", "rtos-kube-master", "networks"), `["192.168.9.1/24"]`)
		same(t, "gateway", w.nb("get", "Logical_Switch", "kube-master", "external_ids:gateway_ip"), `"192.168.9.1/24"`)
		same(t, "switch", w.nb("get", "Logical_Switch", "kube-master", "_uuid"), uuid)
		same(t, "logical port", w.nb("get", "Logical_Switch_Port", "k8s-kube-master", "addresses"), `["`+m.iface("k8s-kube-master", "mac_in_use")+` 192.168.9.2"]`)
		same(t, "address", m.script("ip -4 -br addr show up dev k8s-kube-master | tr -s ' ' | cut -d' ' -f3-"), "192.168.9.2/24 ")
		same(t, "routes", m.script("ip route show dev k8s-kube-master"), "100.64.0.0/16 via 192.168.9.1 proto 46 \n192.168.0.0/16 via 192.168.9.1 proto 46 \n192.168.9.0/24 proto kernel scope link src 192.168.9.2 ")
	})

	t.Run("ChangedClusterSubnet", func(t *testing.T) {
		m.init("master-init --cluster-ip-subnet=192.168.0.0/17 --master-switch-subnet=192.168.9.0/24 --node-name=kube-master")
		same(t, "registry", w.nb("get", "Logical_Router", "ovn_cluster_router", "external_ids:ovn-k8s-cluster-subnets"), `"192.168.0.0/17"`)
		same(t, "route", m.script("ip route show proto 46"), "100.64.0.0/16 via 192.168.9.1 dev k8s-kube-master \n192.168.0.0/17 via 192.168.9.1 dev k8s-kube-master ")
		m.init("master-init --cluster-ip-subnet=10.1.0.0/16 --master-switch-subnet=10.1.1.0/24 --node-name=kube-master")
		same(t, "route", m.script("ip route show proto 46"), "10.1.0.0/16 via 10.1.1.1 dev k8s-kube-master \n100.64.0.0/16 via 10.1.1.1 dev k8s-kube-master ")
	})

	t.Run("SecondMasterOfAnotherName", func(t *testing.T) {
		m.init("master-init --cluster-ip-subnet=10.1.0.0/16 --master-switch-subnet=10.1.2.0/24 --node-name=other")
		same(t, "routers", w.nb("--bare", "--columns=name", "list", "Logical_Router"), "ovn_cluster_router")
		same(t, "both", w.nb("get", "Logical_Router", "ovn_cluster_router", "external_ids:ovn-k8s-node-kube-master", "external_ids:ovn-k8s-node-other"), "\"10.1.1.0/24\"\n\"10.1.2.0/24\"")
	})
}

func TestCheck17_LongNodeName(t *testing.T) {
	w := newWorld(t, "master")
	m := w.nodes[0]
	init := "master-init --cluster-ip-subnet=192.168.0.0/16 --master-switch-subnet=192.168.%d.0/24 --node-name="
	m.init(fmt.Sprintf(init, 1) + "VeryLongNodeName.example.com")
	const id = "k8s-verylongnodename.example.com"
	same(t, "iface-id", m.iface("k8s-verylongnod", "external_ids:iface-id"), id)
	same(t, "logical port", w.nb("get", "Logical_Switch_Port", id, "addresses"), `["`+m.iface("k8s-verylongnod", "mac_in_use")+` 192.168.1.2"]`)

	// Another node of this host with the same 11 characters.
	r := m.init(fmt.Sprintf(init, 2) + "VeryLongNodeName2.example.com")
	if !strings.Contains(r.Err, "run node-remove --node-name=verylongnodename.example.com") {
		t.Errorf("no warning of the other node: %s", r.Err)
	}
	same(t, "the first keeps its port", m.iface("k8s-verylongnod", "external_ids:iface-id"), id)
	other := m.script("ovs-vsctl --bare --columns=name find Interface external_ids:iface-id=k8s-verylongnodename2.example.com")
	if len(other) != 15 || other == "k8s-verylongnod" {
		t.Errorf("interface of the second: %q", other)
	}
	m.init(fmt.Sprintf(init, 2) + "VeryLongNodeName2.example.com")
	same(t, "after a second run", m.script("ovs-vsctl --bare --columns=name find Interface external_ids:iface-id=k8s-verylongnodename2.example.com"), other)
}

func TestCheck18_MTU(t *testing.T) {
	w := newWorld(t, "master")
	m := w.nodes[0]
	m.write("/etc/openvswitch/ovn_k8s.conf", "[default]\nmtu = 1350\n")
	m.init(masterInitArgs)
	same(t, "mtu_request", m.iface("k8s-kube-master", "mtu_request"), "1350")
	same(t, "mtu", m.script("cat /sys/class/net/k8s-kube-master/mtu"), "1350")
	m.write("/etc/openvswitch/ovn_k8s.conf", "[default]\nmtu = 1300\n")
	m.init(masterInitArgs)
	same(t, "changed mtu_request", m.iface("k8s-kube-master", "mtu_request"), "1300")
	same(t, "changed mtu", m.script("cat /sys/class/net/k8s-kube-master/mtu"), "1300")
	m.init(masterInitArgs + " --mtu=1280")
	same(t, "mtu of the command line", m.iface("k8s-kube-master", "mtu_request"), "1280")
}

func TestDryRunChangesNothing(t *testing.T) {
	w := newWorld(t, "master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	n.write("/etc/network/interfaces", "auto lo\niface lo inet loopback\n")
	hosts, writes := m.state()+n.state(), w.transactions()
	r := m.run(masterInitArgs + " --dry-run")
	if r.Status != 0 || !strings.Contains(r.Out, "+ Logical_Switch kube-master") || !strings.Contains(r.Out, "add route 192.168.0.0/16 via 192.168.1.1 dev k8s-kube-master") {
		t.Errorf("master-init --dry-run: %+v", r)
	}
	same(t, "hosts", m.state()+n.state(), hosts)
	if w.transactions() != writes {
		t.Error("the dry run wrote into the database")
	}
	m.init(masterInitArgs)
	hosts, writes = m.state()+n.state(), w.transactions()
	r = n.run(minionInitArgs + " --dry-run")
	for _, want := range []string{
		"+ Logical_Switch node2", "add bridge br-int", "add address 192.168.2.2/24 to k8s-node2", "write /etc/network/interfaces",
		"copy " + bin + "/ovn-k8s-cni-overlay to /opt/cni/bin/ovn-k8s-cni-overlay\nlink /opt/cni/bin/ovn_cni to ovn-k8s-cni-overlay\n", "write /etc/cni/net.d/10-ovn-k8s.conflist\n",
	} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("minion-init --dry-run lacks %q:\n%s", want, r.Out)
		}
	}
	same(t, "hosts", m.state()+n.state(), hosts)
	if w.transactions() != writes {
		t.Error("the dry run wrote into the database")
	}
}

func TestDualStackAndIPv6(t *testing.T) {
	for _, tt := range []struct {
		name, cluster, one, two string
		addresses               []string // of the second node
		pings                   []string // from the second node
	}{
		{"DualStack", "192.168.0.0/16,fd01::/48", "192.168.1.0/24,fd01:0:0:1::/64", "fd01:0:0:2::/64,192.168.2.0/24",
			[]string{"192.168.2.2/24", "fd01:0:0:2::2/64"}, []string{"192.168.1.2", "fd01:0:0:1::2", "192.168.1.1", "fd01:0:0:1::1"}},
		{"IPv6", "fd01::/48", "fd01:0:0:1::/64", "fd01:0:0:2::/64",
			[]string{"fd01:0:0:2::2/64"}, []string{"fd01:0:0:1::2"}},
		{"IPv4", "192.168.0.0/16", "192.168.1.0/24", "192.168.2.0/24",
			[]string{"192.168.2.2/24"}, []string{"192.168.1.2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, "master", "node2")
			m, n := w.nodes[0], w.nodes[1]
			m.t, n.t, w.t = t, t, t
			for _, h := range w.nodes {
				if err := h.StartController(h.ctx, w.central.SBTCP); err != nil {
					t.Fatal(err)
				}
			}
			m.init("master-init --cluster-ip-subnet=" + tt.cluster + " --master-switch-subnet=" + tt.one + " --node-name=master")
			second := "minion-init --cluster-ip-subnet=" + tt.cluster + " --minion-switch-subnet=" + tt.two + " --node-name=node2"
			n.init(second)
			before, writes := w.rows("_uuid,name,external_ids,other_config"), w.transactions()
			n.init(second)
			same(t, "rows after a second run", w.rows("_uuid,name,external_ids,other_config"), before)
			if w.transactions() != writes {
				t.Error("the second run wrote into the database")
			}
			got := strings.Fields(n.script("ip -o addr show dev k8s-node2 scope global | awk '{print $4}'"))
			if diff := cmp.Diff(tt.addresses, got); diff != "" {
				t.Errorf("addresses (-want +got)\n%s", diff)
			}
			if err := w.central.Sync(); err != nil {
				t.Fatal(err)
			}
			for _, to := range tt.pings {
				n.script("ping -c 1 -i 0.2 -w 10 " + to)
			}
		})
	}
}

// Services of the cluster are reached through the management port, too.
// Packets with the address of a pod of the node are dropped before there are routes to pods, though no helper runs.
func TestMinionInitGuardsPods(t *testing.T) {
	w := newWorld(t, "master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	m.init(masterInitArgs)
	rule := host.PerFirewall("-A OVN-SVC-CLAIMED -s 192.168.2.0/24 ! -i k8s-node2 -o k8s-node2 -j DROP", `ip saddr 192.168.2.0/24 iifname != "k8s-node2" oifname "k8s-node2" drop`)
	rules := func() string { return n.script(host.RulesScript) }
	harm := host.LostRules() + "; ip address flush dev k8s-node2"
	program := host.PerFirewall("iptables-restore", "nft")
	before := rules()
	if r := n.run(minionInitArgs + " --dry-run"); !strings.Contains(r.Out, host.PerFirewall("mangle: "+rule, "add rule svc-claimed "+rule)) || rules() != before {
		t.Errorf("a dry run: %+v", r)
	}
	for _, harm := range []string{"true", harm} {
		n.script(harm)
		n.init(minionInitArgs)
		for _, want := range []string{host.PerFirewall("-A FORWARD -j OVN-SVC-CLAIMED", "hook forward priority mangle"), rule} {
			if !strings.Contains(rules(), want) {
				t.Errorf("after %q: no rule %s:\n%s", harm, want, rules())
			}
		}
	}
	// A host that cannot write rules has its network, and fails until it can.
	n.script(harm + `; printf '#!/bin/sh\ncase $* in *list*|*check*|--version) exec /usr/sbin/nft "$@"; esac\nexit 4\n' >/usr/local/bin/` + program + `; chmod +x /usr/local/bin/` + program)
	if r := n.run(minionInitArgs); r.Status != 1 || !strings.Contains(r.Err, "changing table "+host.PerFirewall("mangle", "ovn-k8s of nftables")) || !strings.Contains(n.script("ip route"), "192.168.0.0/16 via 192.168.2.1") {
		t.Errorf("rules that cannot be written: %+v", r)
	}
	n.script("rm /usr/local/bin/" + program)
	n.init(minionInitArgs)
	if r := n.run("node-remove --node-name=node2 --dry-run"); !strings.Contains(r.Out, host.PerFirewall("OVN-SVC-CLAIMED", "svc-claimed")) {
		t.Errorf("a dry run: %+v", r)
	}
	n.run("node-remove --node-name=node2")
	if strings.Contains(rules(), host.PerFirewall("OVN-SVC", "svc-")) {
		t.Errorf("after node-remove:\n%s", rules())
	}
	// A host without the program is a node, with a warning of the missing program.
	n.script("mount --bind /etc/hostname $(command -v " + host.PerFirewall("iptables", "nft") + "); ovs-vsctl set Open_vSwitch . external_ids:ovn-k8s-firewall=" + host.Firewall())
	if r := n.init(minionInitArgs); !strings.Contains(r.Err, "install the package "+host.PerFirewall("iptables", "nftables")) || !strings.Contains(r.Err, "hostPorts") {
		t.Errorf("without the program: %+v", r)
	}
	// The warning has the name of the package on the host's own distribution.
	release, err := filepath.Abs("../lib/platform/testdata/rocky")
	if err != nil {
		t.Fatal(err)
	}
	n.script("mount --bind " + release + " /etc/os-release; mount --bind /etc/hostname $(command -v iptables); ovs-vsctl set Open_vSwitch . external_ids:ovn-k8s-firewall=iptables")
	if r := n.init(minionInitArgs); !strings.Contains(r.Err, "install the package iptables-nft:") {
		t.Errorf("without the program, on Rocky: %+v", r)
	}
}

func TestServiceRoutes(t *testing.T) {
	w := newWorld(t, "master")
	m := w.nodes[0]
	m.setID("ovn-k8s-service-cidr", "10.96.0.0/12")
	m.init(masterInitArgs)
	m.script("ip route add 172.31.0.0/16 via 192.168.1.7 dev k8s-kube-master") // an operator's
	same(t, "route", m.script("ip route show 10.96.0.0/12"), "10.96.0.0/12 via 192.168.1.1 dev k8s-kube-master proto 46 ")
	m.setID("ovn-k8s-service-cidr", "10.112.0.0/12")
	m.init(masterInitArgs)
	same(t, "routes", m.script("ip route show dev k8s-kube-master proto 46"), "10.112.0.0/12 via 192.168.1.1 \n100.64.0.0/16 via 192.168.1.1 \n192.168.0.0/16 via 192.168.1.1 ")
	same(t, "the operator's", m.script("ip route show 172.31.0.0/16 | wc -l"), "1")
	m.fails(strings.Replace(masterInitArgs, "192.168.1.0/24", "192.168.3.0/24", 1)+" --service-cidr=192.168.3.128/25",
		"cluster subnet 192.168.0.0/16 overlaps the subnet of services 192.168.3.128/25: choose another one")
}

func TestOneSubnetForClusterAndNode(t *testing.T) {
	w := newWorld(t, "master")
	m := w.nodes[0]
	m.init("master-init --cluster-ip-subnet=192.168.1.0/24 --master-switch-subnet=192.168.1.0/24 --node-name=m")
	same(t, "routes", m.script("ip route show dev k8s-m"), "100.64.0.0/16 via 192.168.1.1 proto 46 \n192.168.1.0/24 proto kernel scope link src 192.168.1.2 ")
}

// The cluster of the Python era: the router has the master's name, ports have random MACs, no row has an owner.
func TestAdoptsThePythonEra(t *testing.T) {
	w := newWorld(t, "master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	w.nb("lr-add", "Kube-Master", "--", "set", "Logical_Router", "Kube-Master", "external_ids:k8s-cluster-router=yes",
		"--", "ls-add", "join", "--", "lrp-add", "Kube-Master", "rtoj-Kube-Master", "00:00:00:B1:B2:B3", "100.64.1.1/24",
		"--", "set", "Logical_Router_Port", "rtoj-Kube-Master", "external_ids:connect_to_join=yes",
		"--", "lsp-add", "join", "jtor-Kube-Master", "--", "lsp-set-type", "jtor-Kube-Master", "router",
		"--", "lsp-set-options", "jtor-Kube-Master", "router-port=rtoj-Kube-Master", "--", "lsp-set-addresses", "jtor-Kube-Master", "00:00:00:B1:B2:B3",
		"--", "ls-add", "old", "--", "set", "Logical_Switch", "old", "other_config:subnet=192.168.7.0/24", "external_ids:gateway_ip=192.168.7.1/24",
		"--", "ls-add", "kube-master", "--", "set", "Logical_Switch", "kube-master", "other_config:subnet=192.168.1.0/24", "external_ids:gateway_ip=192.168.1.1/24",
		"--", "lrp-add", "Kube-Master", "rtos-kube-master", "00:00:00:A1:A2:A3", "192.168.1.1/24",
		"--", "lsp-add", "kube-master", "k8s-kube-master", "--", "lsp-set-addresses", "k8s-kube-master", "ae:00:00:00:00:01 192.168.1.2",
		"--", "lsp-add", "kube-master", "default_a", "--", "lsp-set-addresses", "default_a", "dynamic")
	uuids := func() string {
		return w.nb("get", "Logical_Router", "Kube-Master", "_uuid", "--", "get", "Logical_Switch", "kube-master", "_uuid", "--",
			"get", "Logical_Router_Port", "rtoj-Kube-Master", "_uuid", "--", "get", "Logical_Switch_Port", "k8s-kube-master", "_uuid")
	}
	before := uuids()
	n.fails("node-remove --node-name=node2", "cluster router Kube-Master was made by an older release")
	n.fails("node-remove --node-name=old", "switch old was made by an older release")
	n.init(minionInitArgs)
	same(t, "network to join", w.nb("get", "Logical_Router_Port", "rtoj-Kube-Master", "networks"), `["100.64.1.1/24"]`)
	m.init(masterInitArgs)
	same(t, "routers", w.nb("--bare", "--columns=name", "list", "Logical_Router"), "Kube-Master")
	same(t, "rows", uuids(), before)
	same(t, "management port", w.nb("get", "Logical_Switch_Port", "k8s-kube-master", "addresses"), `["`+m.iface("k8s-kube-master", "mac_in_use")+` 192.168.1.2"]`)
	same(t, "pod", w.nb("get", "Logical_Switch_Port", "default_a", "addresses"), "[dynamic]")
	n.fails(strings.Replace(minionInitArgs, "192.168.2.0/24", "192.168.7.128/25", 1), "subnet 192.168.7.128/25 of node node2 overlaps subnet 192.168.7.0/24 of switch old")
}

// A failure on the host after the change of the database is completed by the next run.
func TestRepeatAfterFailure(t *testing.T) {
	w := newWorld(t, "master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	m.init(masterInitArgs)
	n.script("mount --bind /etc/cni/net.d /etc/cni/net.d; mount -o remount,ro,bind /etc/cni/net.d")
	r := n.run(minionInitArgs)
	if r.Status != 1 || r.Out != "" || !strings.Contains(r.Err, "trying to write /etc/cni/net.d/10-ovn-k8s.conflist: read-only file system\n") {
		t.Errorf("%+v", r)
	}
	n.script("umount /etc/cni/net.d")
	writes := w.transactions()
	n.init(minionInitArgs)
	checkConflist(t, n.Path("/etc/cni/net.d/10-ovn-k8s.conflist"))
	if w.transactions() != writes {
		t.Error("the database was changed again")
	}
}

// A silent database, and a stopped ovs-vswitchd.
func TestDaemonsThatAreDown(t *testing.T) {
	w := newWorld(t, "master")
	m := w.nodes[0]
	w.central.StopNB()
	m.fails(masterInitArgs, "connecting to the Northbound database at "+w.central.NBTCP+": connect: connection refused")
	if err := w.central.StartNB(); err != nil {
		t.Fatal(err)
	}
	if err := m.StopOVS(m.ctx); err != nil {
		t.Fatal(err)
	}
	m.fails(masterInitArgs, "connecting to Open vSwitch at unix:/var/run/openvswitch/db.sock: connect: connection refused: is ovsdb-server running?")
	same(t, "rows", w.rows("name"), "")
}
