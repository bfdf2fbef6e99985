package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck01_NoNB(t *testing.T) {
	w := newWorld(t, "master")
	m := w.nodes[0]
	m.script("ovs-vsctl remove Open_vSwitch . external_ids ovn-nb")
	host := m.state()
	m.fails(masterInitArgs, "OVN central database's ip address not set")
	m.fails(minionInitArgs+" --cluster-ip-subnet=10.0.0.0", `"10.0.0.0" is not a subnet`, "OVN central database's ip address not set") // all at once
	m.fails("node-remove --node-name=x", "OVN central database's ip address not set")
	same(t, "rows", w.rows("name"), "")
	same(t, "host", m.state(), host)
}

// A host without ovn-remote, as after the clean-up of ovnkube, is told: its Northbound database may be found by a local socket.
func TestNoSouthboundDatabase(t *testing.T) {
	w := newWorld(t, "node1")
	n := w.nodes[0]
	n.init(masterInitArgs)
	n.script("ovs-vsctl remove Open_vSwitch . external_ids ovn-remote")
	const want = "ovn-k8s-overlay: warning: ovn-remote of Open_vSwitch is not set, so that ovn-controller has no database, and pods here no network: " +
		"set external_ids:ovn-remote to the address of the Southbound database\n"
	for _, args := range []string{masterInitArgs, minionInitArgs, minionInitArgs + " --dry-run"} {
		if r := n.run(args); r.Status != 0 || !strings.Contains(r.Err, want) {
			t.Errorf("%s: %+v", args, r)
		}
	}
	n.setID("ovn-remote", w.central.SBTCP)
	if r := n.init(minionInitArgs); strings.Contains(r.Err, "ovn-remote") {
		t.Errorf("with ovn-remote: %s", r.Err)
	}
}

func TestUsage(t *testing.T) {
	w := newWorld(t, "master")
	m := w.nodes[0]
	host := m.state()
	for _, tt := range []struct{ name, args, want string }{
		{"Check02_NoNodeName", "minion-init --cluster-ip-subnet=192.168.0.0/16 --minion-switch-subnet=192.168.2.0/24", "missing required option --node-name (try"},
		{"NoOptions", "master-init", "missing required option --cluster-ip-subnet, --master-switch-subnet, --node-name (try"},
		{"RemoveNothing", "node-remove", "missing required option --node-name (try"},
		{"NoCommand", "", "no command given; it can be master-init, minion-init, node-remove, gateway-init, gateway-remove (try"},
		{"UnknownCommand", "node-init --physical-ip 10.0.0.5/24", `unknown command "node-init"; it can be master-init, minion-init, node-remove, gateway-init, gateway-remove (try`},
		{"UnknownOption", masterInitArgs + " --minion-switch-subnet=192.168.2.0/24", "unknown option --minion-switch-subnet (try"},
		{"StrayArgument", masterInitArgs + " now", `unexpected argument "now" (try`},
		{"DryRunWithValue", masterInitArgs + " --dry-run=maybe", "bool option --dry-run cannot have an argument (try"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := m.run(tt.args)
			if r.Status != 2 || r.Out != "" || strings.Count(r.Err, "\n") != 1 || !strings.HasPrefix(r.Err, "ovn-k8s-overlay: "+tt.want) {
				t.Errorf("%+v", r)
			}
		})
	}
	same(t, "rows", w.rows("name"), "")
	same(t, "host", m.state(), host)
	for _, args := range []string{"--help", "master-init --help", "minion-init -h", "node-remove --help", "gateway-init --help", "gateway-remove --help", "--version"} {
		if r := m.run(args); r.Status != 0 || r.Err != "" || r.Out == "" {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

func TestBadInput(t *testing.T) {
	w := newWorld(t, "master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	master := func(cluster, subnet, name string) string {
		return fmt.Sprintf("master-init --cluster-ip-subnet='%s' --master-switch-subnet='%s' --node-name='%s'", cluster, subnet, name)
	}
	minion := func(cluster, subnet, name string) string {
		return fmt.Sprintf("minion-init --cluster-ip-subnet='%s' --minion-switch-subnet='%s' --node-name='%s'", cluster, subnet, name)
	}
	table := func(t *testing.T, h *node, tests []input) {
		t.Helper()
		h.t, w.t = t, t
		rows, hosts, writes := w.rows("_uuid,name"), m.state()+n.state(), w.transactions()
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				h.t = t
				h.fails(tt.args, tt.want...)
			})
		}
		h.t = t
		same(t, "rows", w.rows("_uuid,name"), rows)
		same(t, "hosts", m.state()+n.state(), hosts)
		if w.transactions() != writes {
			t.Error("something was written into the database")
		}
	}
	table(t, m, []input{
		{"Check03_EmptyCluster", master("", "192.168.1.0/24", "m"), lines("Arguments should be non-null")},
		{"EmptySubnet", minion("192.168.0.0/16", "", "m"), lines("Arguments should be non-null")},
		{"EmptyName", minion("192.168.0.0/16", "192.168.1.0/24", " "), lines("Arguments should be non-null")},
		{"EmptyNameToRemove", "node-remove --node-name=", lines("Arguments should be non-null")},
		{"Check19_NoRouter", minion("192.168.0.0/16", "192.168.1.0/24", "m"), lines("K8S_CLUSTER_ROUTER not found")},
		{"AllAtOnce", minion("192.168.0.0/33", "10.0.0.1/24", "no_dns") + " --mtu=9 --ovn-nb=tcp:x", lines(
			`node name "no_dns" is not a DNS name`, `"192.168.0.0/33" is not a subnet`, `"10.0.0.1/24" has bits set beyond its prefix length: did you mean 10.0.0.0/24?`,
			`bad ovn-nb "tcp:x" (from --ovn-nb)`, `bad mtu "9" (from --mtu)`)},
		{"Malformed", master("192.168.0.0/16", "192.168.1.0", "m"), lines(`"192.168.1.0" is not a subnet`)},
		{"TooSmall", master("192.168.0.0/16", "192.168.1.0/30", "m"), lines(`"192.168.1.0/30" is too small: it has 2 usable addresses, and 3 are needed`)},
		{"TwoOfOneFamily", master("192.168.0.0/16,10.0.0.0/8", "192.168.1.0/24", "m"), lines("has two subnets of one family")},
		{"Outside", master("192.168.0.0/16", "10.0.1.0/24", "m"), lines("subnets 10.0.1.0/24 of node m are outside the cluster subnets")},
		{"OneFamilyMissing", master("192.168.0.0/16,fd01::/48", "192.168.1.0/24", "m"), lines("give one in each of 192.168.0.0/16,fd01::/48")},
		{"OverlapsJoin", master("100.64.0.0/10", "100.65.1.0/24", "m"), lines("cluster subnet 100.64.0.0/10 overlaps join subnet 100.64.0.0/16")},
		{"NoDNSName", master("192.168.0.0/16", "192.168.1.0/24", "a_b"), lines(`node name "a_b" is not a DNS name`)},
		{"JoinAsName", master("192.168.0.0/16", "192.168.1.0/24", "join"), lines("is the name of the join switch")},
		{"RemoveNoDNSName", "node-remove --node-name=a/b", lines(`node name "a/b" is not a DNS name`)},
		{"SmallMTUForIPv6", master("fd01::/48", "fd01:0:0:1::/64", "m") + " --mtu=1200", lines("mtu 1200 is too small for IPv6")},
		{"AHostAmongPods", master("192.168.0.0/16", "192.168.1.0/24", "m") + " --k8s-api-server=https://192.168.77.1:6443", lines("address 192.168.77.1 of k8s-api-server lies in the cluster subnet 192.168.0.0/16, which is for pods")},
		{"ServicesInTheJoinSubnet", master("192.168.0.0/16", "192.168.1.0/24", "m") + " --service-cidr=100.64.8.0/24", lines("join subnet 100.64.0.0/16 overlaps the subnet of services 100.64.8.0/24")},
		{"UnreachableNB", master("192.168.0.0/16", "192.168.1.0/24", "m") + " --ovn-nb=tcp:127.0.0.1:1", lines("connecting to the Northbound database at tcp:127.0.0.1:1: connect: connection refused")},
		{"NoConfigFile", master("192.168.0.0/16", "192.168.1.0/24", "m") + " --config-file=/nowhere", lines("reading the configuration: open /nowhere: no such file or directory")},
	})

	m.t, w.t = t, t
	m.setID("system-id", "host-m")
	n.setID("system-id", "host-n")
	if _, err := w.central.SBCtl("chassis-add", "host-m", "geneve", "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	m.init(masterInitArgs)
	n.script("ip link add other type veth peer name other2; ip addr add 192.168.3.1/24 dev other; ip link set other up; ip route add 10.7.0.0/16 dev other")
	n.script("ip link add k8s-veth type veth peer name peer; ovs-vsctl add-port breth0 k8s-taken -- set Interface k8s-taken type=internal")
	table(t, n, []input{
		{"UsedByAnotherNode", minion("192.168.0.0/16", "192.168.1.128/25", "n"), lines("subnet 192.168.1.128/25 of node n overlaps subnet 192.168.1.0/24 of node kube-master: choose a free one")},
		{"AnothersName", minion("192.168.0.0/16", "192.168.1.0/24", "Kube-Master"), lines("node kube-master is the host with system-id host-m, which is registered in the Southbound database: give another --node-name")},
		{"SubnetOfTheHost", minion("192.168.0.0/16", "192.168.3.0/24", "n"), lines("this host has a route 192.168.3.0/24 dev other already: delete it")},
		{"RouteOfTheHost", master("10.7.0.0/16", "10.7.1.0/24", "n"), lines("this host has a route 10.7.0.0/16 dev other already: delete it")},
		{"OtherClusterSubnet", minion("192.168.0.0/17", "192.168.2.0/24", "n"), lines("--cluster-ip-subnet is 192.168.0.0/17, but the cluster's is 192.168.0.0/16")},
		{"ForeignInterface", minion("192.168.0.0/16", "192.168.2.0/24", "veth"), lines("there is an interface k8s-veth that Open vSwitch has not made")},
		{"PortOfAnotherBridge", minion("192.168.0.0/16", "192.168.2.0/24", "taken"), lines("port k8s-taken belongs to bridge breth0 already")},
		{"ClusterShrinks", master("10.0.0.0/16", "10.0.1.0/24", "n"), lines("subnets 192.168.1.0/24 of node kube-master are outside the cluster subnets 10.0.0.0/16")},
	})

	n.setID("system-id", "host-m")
	table(t, n, []input{
		{"ClonedHost", minion("192.168.0.0/16", "192.168.2.0/24", "n"), lines("system-id host-m of this host is that of node kube-master: if this host is a clone, remove /etc/openvswitch/system-id.conf and restart Open vSwitch; if it was node kube-master, run node-remove --node-name=kube-master first")},
	})
	n.setID("system-id", "host-n")

	w.t = t
	w.nb("lr-add", "second", "--", "set", "Logical_Router", "second", "external_ids:k8s-cluster-router=yes", "--", "ls-add", "foreign")
	table(t, n, []input{
		{"TwoRouters", minion("192.168.0.0/16", "192.168.2.0/24", "n"), lines("there are 2 cluster routers, ovn_cluster_router (")},
	})
	w.t = t
	w.nb("lr-del", "second")
	table(t, n, []input{
		{"ForeignSwitch", minion("192.168.0.0/16", "192.168.2.0/24", "foreign"), lines(`node/foreign: logical switch "foreign" exists and is not ours: rename or delete it`)},
	})
}

// An input is a command that must fail, and the texts its lines must have.
type input struct {
	name, args string
	want       []string
}

func lines(s ...string) []string { return s }

func TestSSL(t *testing.T) {
	server, client := authority(t, "server"), authority(t, "client")
	for _, ca := range []*pki{server, client} {
		ca.issue("host")
	}
	w := newWorldWith(t, []string{
		"--remote=pssl:6643:[::]", "--private-key=" + server.path("host.key"), "--certificate=" + server.path("host.crt"),
		"--ca-cert=" + client.path("ca.crt"), "--peer-ca-cert=" + server.path("ca.crt"),
	}, "master")
	m := w.nodes[0]
	m.setID("ovn-nb", "ssl:"+net.JoinHostPort(m.IPv4().String(), "6643"))
	dir := t.TempDir()
	key, cert, ca := filepath.Join(dir, "key"), filepath.Join(dir, "cert"), filepath.Join(dir, "ca")
	args := fmt.Sprintf("%s --nb-privkey %s --nb-cert %s --nb-cacert %s", masterInitArgs, key, cert, ca)

	t.Run("Check08_MissingFiles", func(t *testing.T) {
		m.fails(masterInitArgs, "No private key /etc/openvswitch/ovncontroller-privkey.pem found")
		m.fails(args, "No private key "+key+" found")
		client.copy("host.key", key)
		m.fails(args, "No certificate "+cert+" found")
		client.copy("host.crt", cert)
	})
	t.Run("Check09_Bootstrap", func(t *testing.T) {
		bootstrap := "No CA certificate found. Attempting bootstrapping...\nBootstrapping successful. Continuing...\n"
		if r := m.run(args + " --dry-run"); r.Status != 0 || !strings.HasPrefix(r.Err, bootstrap) {
			t.Errorf("dry run: %+v", r)
		}
		if _, err := os.Stat(ca); err == nil {
			t.Error("the dry run kept the CA certificate")
		}
		if r := m.init(args); !strings.HasPrefix(r.Err, bootstrap) {
			t.Errorf("%+v", r)
		}
		got, err := os.ReadFile(ca)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(server.path("ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		same(t, "CA certificate", string(got), string(want))
		if r := m.init(args); strings.Contains(r.Err, "CA certificate") {
			t.Errorf("the second run: %+v", r)
		}
	})
	t.Run("WrongCertificates", func(t *testing.T) {
		client.copy("ca.crt", ca) // not the server's
		m.fails(args, "the server's certificate does not fit the CA certificate "+ca)
		server.copy("ca.crt", ca)
		server.copy("host.key", key) // of another CA than the server's for clients
		server.copy("host.crt", cert)
		m.fails(args, "the server refuses this host's certificate")
		client.copy("host.key", key) // not of this certificate
		m.fails(args, "reading certificate "+cert+" and private key "+key)
	})
}

func TestShowConfig(t *testing.T) {
	w := newWorld(t, "master")
	m := w.nodes[0]
	m.setID("k8s-api-token", "canary")
	m.setID("ovn-k8s-mtu", "1410")
	m.setID("ovn-k8s-mut", "1")
	r := m.run("minion-init --show-config --join-subnet=100.99.0.0/16")
	if r.Status != 0 || strings.Contains(r.Out+r.Err, "canary") {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{"mtu", "1410", "external_ids:ovn-k8s-mtu", "100.99.0.0/16", "--join-subnet", w.central.NBTCP, "********"} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("no %q in\n%s", want, r.Out)
		}
	}
	if !strings.Contains(r.Err, "warning: external_ids:ovn-k8s-mut is no setting: it is ignored; did you mean ovn-k8s-mtu?") {
		t.Errorf("warnings: %s", r.Err)
	}
	m.setID("ovn-k8s-mtu", "many")
	if r := m.run("node-remove --show-config"); r.Status != 1 || !strings.Contains(r.Out, "many") || !strings.Contains(r.Err, `bad mtu "many" (from external_ids:ovn-k8s-mtu)`) {
		t.Errorf("%+v", r)
	}
}
