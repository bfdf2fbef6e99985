package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/names"
	"ovn-k8s/test/host"
)

// base are the flows of the specification, for both families.
func base(nic, patch, zone string) []string {
	text := `table=0,priority=100,ip,in_port=X -> ct(commit,zone=Z),output:P
table=0,priority=100,ipv6,in_port=X -> ct(commit,zone=Z),output:P
table=0,priority=50,ip,in_port=P -> ct(table=1,zone=Z)
table=0,priority=50,ipv6,in_port=P -> ct(table=1,zone=Z)
table=1,priority=100,ct_state=+est+trk -> output:X
table=1,priority=100,ct_state=+rel+trk -> output:X
table=1,priority=0, -> NORMAL`
	text = strings.NewReplacer("in_port=P", "in_port="+nic, "in_port=X", "in_port="+patch, "output:P", "output:"+nic, "output:X", "output:"+patch, "zone=Z", "zone="+zone).Replace(text)
	return strings.Split(text, "\n")
}

func (w *world) numbers() (nic, patch string) {
	w.Helper()
	return w.ofport("eth0"), w.ofport("k8s-patch-breth0-br-int")
}

func TestCheck68_BaseFlows(t *testing.T) {
	w := newWorld(t)
	before := w.flows()
	w.start(shared...)
	nic, patch := w.numbers()
	if !w.has(base(nic, patch, "64000")...) {
		t.Errorf("flows: %v", w.flows())
	}
	// The only other flows are for ARP, neighbour discovery and the shared MAC.
	for _, f := range w.flows() {
		known := slices.Contains(base(nic, patch, "64000"), line(f)) || slices.Contains(before, f)
		if !known && !strings.Contains(f.Match, "arp") && !strings.Contains(f.Match, "icmp6") && !strings.Contains(f.Match, "dl_") && f.Match != "in_port=LOCAL" {
			t.Errorf("a flow too much: %v", f)
		}
	}
	if !slices.Contains(w.flows(), before[0]) || before[0].Actions != "NORMAL" || before[0].Cookie != 0 {
		t.Errorf("the default flow %v is not there: %v", before[0], w.flows())
	}
	w.script("ovs-vsctl set Open_vSwitch . external_ids:ovn-k8s-conntrack-zone=64321")
	took := w.eventually("the zone is the new one", func() bool { return w.has(base(nic, patch, "64321")...) })
	t.Logf("a new zone after %v", took.Round(time.Millisecond))
	for _, f := range w.flows() {
		if strings.Contains(f.Actions, "64000") {
			t.Errorf("a flow of the former zone stays: %v", f)
		}
	}
}

func TestCheck69_NodePorts(t *testing.T) {
	w := newWorld(t)
	w.start(shared...)
	nic, patch := w.numbers()
	s := w.service("web", nil)
	to := func(proto, addr string, port int) string {
		field := "nw_dst"
		if strings.Contains(addr, ":") {
			field = "ipv6_dst"
		}
		return fmt.Sprintf("table=0,priority=100,%s,in_port=%s,%s=%s,tp_dst=%d -> output:%s", proto, nic, field, addr, port, patch)
	}
	v4, v6 := w.IPv4().String(), w.IPv6().String()
	took := w.eventually("tcp/30082", func() bool { return w.has(to("tcp", v4, 30082)) })
	t.Logf("a NodePort after %v", took.Round(time.Millisecond))
	w.service("dns", func(s *corev1.Service) {
		both := corev1.IPFamilyPolicyPreferDualStack
		s.Spec.IPFamilyPolicy = &both
		s.Spec.Ports[0].Protocol, s.Spec.Ports[0].NodePort = corev1.ProtocolUDP, 30086
	})
	w.eventually("udp of both families", func() bool { return w.has(to("udp", v4, 30086), to("udp6", v6, 30086)) })
	w.service("sctp", func(s *corev1.Service) {
		s.Spec.Ports[0].Protocol, s.Spec.Ports[0].NodePort = corev1.ProtocolSCTP, 30083
	})
	w.service("default-protocol", func(s *corev1.Service) { s.Spec.Ports[0].Protocol, s.Spec.Ports[0].NodePort = "", 30084 })
	w.service("vips", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.Ports[0].NodePort = 30085
		s.Spec.ExternalIPs = []string{"203.0.113.7"}
		s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.8"}}
	})
	w.service("inside", func(s *corev1.Service) { s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeClusterIP, 0 })
	drop := strings.Replace(strings.Replace(to("tcp", "203.0.113.8", 80), "priority=100", "priority=95", 1), "output:"+patch, "drop", 1)
	w.eventually("sctp, the default protocol, external addresses", func() bool {
		return w.has(to("sctp", v4, 30083), to("tcp", v4, 30084), to("tcp", v4, 30085), to("tcp", "203.0.113.7", 80), drop,
			fmt.Sprintf("table=0,priority=100,tcp,in_port=%s,nw_src=198.51.100.0/24,nw_dst=203.0.113.8,tp_dst=80 -> output:%s", nic, patch))
	})
	for _, f := range w.flows() {
		if strings.Contains(f.Match, s.Spec.ClusterIP) {
			t.Errorf("a ClusterIP has a flow: %v", f)
		}
	}
	if out := w.appctl("service/show", "default/web"); !strings.Contains(out, "tcp/node:30082") || !strings.Contains(out, "flows") {
		t.Errorf("service/show: %s", out)
	}
}

func TestCheck70_StaleFlowsGoOthersStay(t *testing.T) {
	w := newWorld(t)
	first := w.start(shared...)
	nic, patch := w.numbers()
	first.Stop()
	w.script(fmt.Sprintf(`set -e
		ovs-ofctl add-flow breth0 priority=100,in_port=%[1]s,tcp,tp_dst=31000,actions=output:%[2]s
		ovs-ofctl add-flow breth0 cookie=%[3]d,priority=100,in_port=%[1]s,udp,tp_dst=31001,actions=output:%[2]s
		ovs-ofctl add-flow breth0 priority=100,in_port=%[1]s,tcp,tp_dst=22,actions=LOCAL
		ovs-ofctl add-flow breth0 priority=200,in_port=%[1]s,tcp,tp_dst=31002,actions=output:%[2]s
		ovs-ofctl add-flow breth0 cookie=5,table=1,priority=7,ip,actions=NORMAL`, nic, patch, bridgeflows.Cookie))
	w.start(shared...)
	var rest []string
	w.eventually("the stale flows are gone", func() bool {
		rest = nil
		for _, f := range w.flows() {
			if f.Cookie != bridgeflows.Cookie || strings.Contains(f.Match, "tp_dst") {
				rest = append(rest, line(f))
			}
		}
		return len(rest) <= 4
	})
	slices.Sort(rest)
	want := []string{
		"table=0,priority=0, -> NORMAL",
		"table=0,priority=100,tcp,in_port=" + nic + ",tp_dst=22 -> LOCAL",
		"table=0,priority=200,tcp,in_port=" + nic + ",tp_dst=31002 -> output:" + patch,
		"table=1,priority=7,ip -> NORMAL",
	}
	if diff := cmp.Diff(want, rest); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCheck71_ADeletedServiceHasNoFlows(t *testing.T) {
	w := newWorld(t)
	p := w.start(shared...)
	before := w.flows()
	w.service("web", nil)
	w.eventually("the flow", func() bool { return len(w.flows()) > len(before) })
	// The Python era missed changes: of the nodePort, and to ClusterIP again.
	w.update("web", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30099 })
	w.eventually("the new port alone", func() bool {
		text := fmt.Sprint(w.flows())
		return strings.Contains(text, "tp_dst=30099") && !strings.Contains(text, "tp_dst=30082")
	})
	w.update("web", func(s *corev1.Service) { s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeClusterIP, 0 })
	w.eventually("no flow", func() bool { return len(w.flows()) == len(before) })
	w.update("web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
	w.eventually("a flow again", func() bool { return len(w.flows()) > len(before) })
	w.deleteService("web")
	w.eventually("no flow", func() bool { return cmp.Equal(before, w.flows()) })

	// Changes during the helper's absence count, too.
	w.service("web", nil)
	w.eventually("the flow", func() bool { return len(w.flows()) > len(before) })
	p.Stop()
	w.deleteService("web")
	w.start(shared...)
	w.eventually("no flow", func() bool { return cmp.Equal(before, w.flows()) })
}

func TestCheck72_Preconditions(t *testing.T) {
	w := newWorld(t)
	w.script("ovs-vsctl add-port breth0 ghost -- add-port br-int other -- set Interface other type=internal || true")
	for _, tt := range []struct {
		name, want string
		status     int
		args       []string
	}{
		{"no API server", "K8S_API_SERVER not set", 1, shared},
		{"one of two", "--physical-bridge and --physical-interface belong together", 2, w.args("--physical-bridge=breth0")},
		{"bad addresses", `"10.0.0.1" is not a subnet`, 2, w.args("--nodeport-addresses=10.0.0.1")},
	} {
		for _, detach := range []string{"", "--detach"} {
			t.Run(tt.name+detach, func(t *testing.T) {
				args := slices.Clone(tt.args)
				if detach != "" {
					args = append(args, detach, "--pidfile")
				}
				status, stderr := w.once(args...)
				if status != tt.status || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "ovn-k8s-gateway-helper: ") != 1 {
					t.Errorf("status %d, %q", status, stderr)
				}
			})
		}
	}
}

// Without the capability, a helper neither starts nor takes anything away.
func TestRootWithoutAPermission(t *testing.T) {
	w := newWorld(t)
	before := w.flows()
	for _, args := range [][]string{w.args(shared...), w.args("--remove", shared[0], shared[1]), w.args("--detach", "--pidfile")} {
		cmd, _ := w.command(args...)
		cmd.Args = append([]string{"setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/usr/bin/setpriv"
		_, stderr, err := host.RunCommand(w.ctx, cmd)
		if err == nil || !strings.Contains(stderr, "ovn-k8s-gateway-helper: this needs the capability CAP_NET_ADMIN, because") || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: %v, %q", args, err, stderr)
		}
	}
	if now := w.flows(); !cmp.Equal(now, before) {
		t.Error(cmp.Diff(before, now))
	}
}

// H4: the helper waits for a late bridge or NIC, and reports the reason to its starter.
func TestALateBridgeIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.script("ovs-vsctl add-port breth0 ghost -- add-port br-int other -- set Interface other type=internal || true")
	for _, tt := range []struct {
		name, want string
		args       []string
		mend       string
	}{
		{"no bridge", "physical bridge breth9 does not exist", []string{"--physical-bridge=breth9", "--physical-interface=eth9"},
			"ip link add eth9 type veth peer name peer9; ovs-vsctl add-br breth9 -- set Bridge breth9 datapath_type=$OVNK8S_TEST_DATAPATH -- add-port breth9 eth9"},
		{"no interface", `Failed operation. (no row "eth8" in table Interface)`, []string{"--physical-bridge=breth0", "--physical-interface=eth8"},
			"ip link add eth8 type veth peer name peer8; ovs-vsctl add-port breth0 eth8"},
		{"bad interface", "physical-interface ghost is invalid", []string{"--physical-bridge=breth0", "--physical-interface=ghost"}, ""},
		{"other bridge", `physical-interface other is no port of breth0, but of "br-int"`, []string{"--physical-bridge=breth0", "--physical-interface=other"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := w.args(append(tt.args, "--pidfile", "--log-file", "-vconsole:emer", "--detach")...)
			status, stderr := w.once(args...)
			if status != 0 || !strings.HasPrefix(stderr, "ovn-k8s-gateway-helper: waiting: "+tt.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("status %d, %q", status, stderr)
			}
			if tt.mend != "" {
				w.script(tt.mend)
				w.eventually("Services are known", func() bool { return strings.Contains(w.appctl("reconcile/show"), "services known   true") })
			}
			w.appctl("exit")
			w.eventually("the pidfile is gone", func() bool { return w.pidfile("ovn-k8s-gateway-helper.pid") == "" })
		})
	}
}

func TestAHelperIsStartedOnce(t *testing.T) {
	w := newWorld(t)
	args := w.args(append(shared, "--pidfile", "--log-file", "-vfile:info", "-vconsole:emer", "--detach")...)
	if status, stderr := w.once(args...); status != 0 || stderr != "" {
		t.Fatalf("status %d, %q", status, stderr)
	}
	pid := w.pidfile("ovn-k8s-gateway-helper.pid")
	if status, stderr := w.once(args...); status != 1 || !strings.Contains(stderr, "already running as pid "+pid) {
		t.Errorf("second start: status %d, %q", status, stderr)
	}
	help := w.appctl("help")
	for _, c := range []string{"flows/show", "rules/show", "service/show", "reconcile/show", "reconcile/resync", "vlog/set", "exit"} {
		if !strings.Contains(help, c) {
			t.Errorf("help lacks %s:\n%s", c, help)
		}
	}
	w.eventually("Services are known", func() bool { return strings.Contains(w.appctl("reconcile/show"), "services known   true") })
	if out := w.appctl("flows/show"); !strings.Contains(out, "bridge breth0, NIC port ") || strings.Contains(out, "\n+") || !strings.Contains(out, "1 flows of others") {
		t.Error(out)
	}
	w.eventually("rules are shown as they should be", func() bool {
		out := w.appctl("rules/show")
		return strings.Contains(out, host.PerFirewall("nat: -A PREROUTING -j OVN-SVC-PREROUTING", "add chain svc-prerouting")) && !strings.Contains(out, "\n!")
	})
	w.appctl("exit")
	w.eventually("the pidfile is gone", func() bool { return w.pidfile("ovn-k8s-gateway-helper.pid") == "" })
}

func TestRemoveLeavesNothing(t *testing.T) {
	w := newWorld(t)
	if !host.WithoutIPTables() {
		w.script("iptables -A FORWARD -s 192.0.2.0/24 -j DROP; iptables -t nat -N FOREIGN")
	}
	w.script(`ovs-vsctl add-port br-int k8s-node1 -- set Interface k8s-node1 type=internal external_ids:iface-id=k8s-node1
		ip address add 10.128.1.2/24 dev k8s-node1; ip link set k8s-node1 up; ip route add 192.0.2.0/24 via 10.128.1.1`)
	state := func() string {
		return fmt.Sprint(w.flows()) + w.script("for i in iptables ip6tables; do ! command -v $i >/dev/null || { $i -S; $i -t nat -S; }; done; nft list table ip ovn-k8s 2>/dev/null | grep -e 'map svc' -e 'set svc' -e ' . '; ip route show dev k8s-node1; sysctl net.ipv4.conf.k8s-node1.route_localnet; ovs-vsctl get Open_vSwitch . external_ids:ovn-cms-options")
	}
	w.script("ovs-vsctl set Open_vSwitch . external_ids:ovn-cms-options=enable-chassis-as-gw")
	before := state()
	w.service("web", nil)
	p := w.start(shared...)
	w.eventually("flows, rules and routes", func() bool {
		return strings.Count(state(), "30082") > 2 && routed(w) && strings.Contains(state(), names.MTUOption)
	})
	p.Stop()
	for range 2 {
		if status, stderr := w.once(append(shared, "--remove")...); status != 0 || stderr != "" {
			t.Errorf("status %d, %q", status, stderr)
		}
		if diff := cmp.Diff(before, state()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	// The host still forwards packets, so no host outside may use a pod's address.
	if rules := w.script(host.RulesScript); !strings.Contains(rules, host.PerFirewall("-A OVN-SVC-CLAIMED -s 10.128.1.0/24 ! -i k8s-node1 -o k8s-node1 -j DROP", `ip saddr 10.128.1.0/24 iifname != "k8s-node1" oifname "k8s-node1" drop`)) {
		t.Errorf("nothing guards pods:\n%s", rules)
	}
}

// Section 5 of the findings: the helper reports kube-proxy on its host, in both of its modes.
func TestKubeProxyIsFound(t *testing.T) {
	for mode, rules := range map[string]string{
		"iptables": "iptables -t nat -N KUBE-SERVICES && iptables -t nat -A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -j RETURN",
		"nftables": "nft add table ip kube-proxy && nft add chain ip kube-proxy services",
	} {
		t.Run(mode, func(t *testing.T) {
			if mode == "iptables" {
				host.NeedIPTables(t)
			}
			w := newWorld(t)
			w.script(rules)
			p := w.start()
			w.eventually("a warning", func() bool { return strings.Contains(p.Output(), "kube-proxy has rules here ("+mode) })
		})
	}
}

// H12: a table that drops packets of pods is named once, until a rule accepts them.
func TestFirewallsThatDropAreNamed(t *testing.T) {
	w := newWorld(t)
	w.script(localGateway)
	p := w.start("-vconsole:info")
	options := func() string {
		return w.script("ovs-vsctl --if-exists get Open_vSwitch . external_ids:ovn-cms-options")
	}
	w.script(`nft -f - <<'END'
table inet firewalld {
	chain filter_FORWARD { type filter hook forward priority filter + 10; policy drop; ct state established,related accept; }
}
END`)
	const line = `nftables: chain filter_FORWARD of table inet firewalld drops at hook forward all packets that its rules do not accept, and no rule names interface "br-nexthop"`
	w.within(soon, "a warning", func() bool { return strings.Contains(p.Output(), line) })
	w.script("ovs-appctl -t ovn-k8s-gateway-helper reconcile/resync; nft add table inet other")
	w.eventually("reconcile/show names it", func() bool { return strings.Contains(w.appctl("reconcile/show"), line) })
	if n := strings.Count(p.Output(), line); n != 1 {
		t.Errorf("%d lines", n)
	}
	if got := options(); !strings.Contains(got, "ovn-k8s-firewall-drops:inet/firewalld/filter_FORWARD") {
		t.Errorf("ovn-cms-options: %s", got)
	}
	w.script(`nft insert rule inet firewalld filter_FORWARD iifname '"br-nexthop"' accept`)
	w.within(soon, "it is accepted", func() bool { return strings.Contains(p.Output(), "firewall: recovered") })
	if got := options(); strings.Contains(got, "firewall") {
		t.Errorf("ovn-cms-options: %s", got)
	}
	if host.Firewall() != config.NFTables {
		return
	}
	// As iptables-restore-translate makes it: iptables cannot read it, so it has no rule of ours.
	w.script(`nft -f - <<'END'
table ip filter {
	chain FORWARD { type filter hook forward priority filter; policy drop; ct state established,related accept; }
}
END`)
	w.within(soon, "a warning of a table of iptables", func() bool {
		return strings.Contains(p.Output(), "chain FORWARD of table ip filter drops at hook forward")
	})
}
