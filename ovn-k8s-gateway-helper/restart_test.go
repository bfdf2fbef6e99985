package main

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/flow"
	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
)

// wrongTime bounds the time of wrong flows after an event.
var wrongTime = limit.Of(2 * time.Second)

// router connects a namespace with breth0's MAC and addresses, and the source ports of pods, to br-int: from the
// bridge it looks like a gateway router. Its kernel resets unknown connections, so no packet delivered there by
// mistake goes unnoticed.
func (w *world) router() (netns string) {
	w.Helper()
	w.script(fmt.Sprintf(`set -e
		ip netns add gr
		ip link add gr0 type veth peer name eth0 netns gr
		ip -n gr link set eth0 address $(cat /sys/class/net/breth0/address) up
		ip -n gr link set lo up
		ip netns exec gr sysctl -qw net.ipv4.ip_local_port_range="10000 29999" net.ipv6.conf.eth0.accept_ra=0
		ip netns exec gr ethtool -K eth0 tx off >/dev/null
		ip link set gr0 up
		ip -n gr addr add %v dev eth0
		ip -n gr addr add %v dev eth0 nodad
		ip -n gr route add default via %v
		ip -n gr -6 route add default via %v
		ovs-vsctl add-port br-int gr0`, w.Addresses[0], w.Addresses[1], host.FabricIPv4(), host.FabricIPv6()))
	w.wire()
	return w.Path("/run/netns/gr")
}

// wire does the work of ovn-controller after a restart of ovs-vswitchd. Like ovn-controller's flows, this one
// learns no addresses: host and router have the same.
func (w *world) wire() {
	w.Helper()
	w.script("ovs-ofctl add-flow br-int priority=0,actions=ALL")
}

// restartVswitchd kills ovs-vswitchd and starts it again. With both
// datapaths the bridge's device goes with it or is made anew, without addresses.
func (w *world) restartVswitchd() {
	w.Helper()
	if err := w.Kill(w.ctx, "/var/run/openvswitch/ovs-vswitchd.pid"); err != nil {
		w.Fatal(err)
	}
	if err := w.StartSwitch(w.ctx); err != nil {
		w.Fatal(err)
	}
	w.address()
	w.wire()
}

// address gives breth0 its addresses.
func (w *world) address() {
	w.Helper()
	w.script(fmt.Sprintf(`set -e
		ip link set breth0 up
		ip addr replace %v dev breth0
		ip addr replace %v dev breth0 nodad
		ip route replace default via %v
		ip -6 route replace default via %v`, w.Addresses[0], w.Addresses[1], host.FabricIPv4(), host.FabricIPv6()))
}

// right reports whether the bridge has all flows, with the present port numbers.
func (w *world) right() bool {
	out, _, err := w.Host.Run(w.ctx, "ovs-ofctl", "dump-ports-desc", "breth0")
	if err != nil {
		return false
	}
	numbers := map[string]string{}
	for l := range strings.Lines(out) {
		number, rest, ok := strings.Cut(strings.TrimSpace(l), "(")
		name, _, ok2 := strings.Cut(rest, "): addr:")
		if ok && ok2 {
			numbers[name] = number
		}
	}
	nic, patch := numbers["eth0"], numbers["k8s-patch-breth"]
	nodePort := fmt.Sprintf("table=0,priority=100,tcp,in_port=%s,nw_dst=%v,tp_dst=30082 -> output:%s", nic, w.IPv4(), patch)
	return nic != "" && patch != "" && w.has(append(base(nic, patch, "64000"), nodePort)...)
}

// A talk is a session without interruptions.
type talk struct {
	name    string
	session *probe.Session
	before  probe.Typed
}

// talks opens sessions of every kind over the shared NIC.
func (w *world) talks(router string) []*talk {
	w.Helper()
	for _, s := range []struct {
		netns, name string
		ports       []int
	}{{w.Netns(), "host", []int{2222, 12222}}, {router, "router", []int{30082}}, {w.fabric.Netns(), "outside", []int{7000}}} {
		server, err := probe.Serve(s.netns, s.name, s.ports...)
		if err != nil {
			w.Fatal(err)
		}
		w.Cleanup(server.Close)
	}
	var all []*talk
	for _, family := range []struct{ node, outside netip.Addr }{{w.IPv4(), host.FabricIPv4()}, {w.IPv6(), host.FabricIPv6()}} {
		for _, c := range []struct {
			name, netns string
			to          netip.AddrPort
		}{
			{"outside to host", w.fabric.Netns(), netip.AddrPortFrom(family.node, 2222)},
			{"outside to host, at a port that pods have as source", w.fabric.Netns(), netip.AddrPortFrom(family.node, 12222)},
			{"outside to NodePort", w.fabric.Netns(), netip.AddrPortFrom(family.node, 30082)},
			{"host to outside", w.Netns(), netip.AddrPortFrom(family.outside, 7000)},
			{"pod to outside", router, netip.AddrPortFrom(family.outside, 7000)},
		} {
			var s *probe.Session
			w.eventually(c.name, func() (ok bool) {
				var err error
				s, err = probe.OpenSession(w.ctx, c.netns, c.to)
				return err == nil
			})
			w.Cleanup(func() { s.Close() })
			all = append(all, &talk{fmt.Sprintf("%s %v", c.name, c.to), s, s.Typed()})
		}
	}
	return all
}

// undisturbed checks that all sessions continue.
func (w *world) undisturbed(what string, all []*talk) {
	w.Helper()
	for _, t := range all {
		lines := t.session.Typed().Lines
		w.eventually(what+": "+t.name+" goes on", func() bool { return t.session.Typed().Lines > lines+2 })
		now := t.session.Typed()
		if now.Resets > t.before.Resets {
			w.Errorf("%s: %s was reset: %v", what, t.name, now.Err)
		}
		t.before = now
	}
}

// web makes the Service expected by right, in both families.
func (w api) web() *corev1.Service {
	return w.service("web", func(s *corev1.Service) {
		both := corev1.IPFamilyPolicyRequireDualStack
		s.Spec.IPFamilyPolicy = &both
	})
}

func TestCheck73_FlowsComeBackUnderTraffic(t *testing.T) {
	w := newWorld(t)
	w.web()
	p := w.start(shared...)
	router := w.router()
	w.eventually("flows", w.right)
	w.script("ovs-ofctl add-flow breth0 cookie=5,table=1,priority=7,arp,actions=NORMAL")
	all := w.talks(router)
	w.undisturbed("at first", all)
	for _, tt := range []struct {
		what string
		do   func()
		// keeps: flows of others stay.
		keeps bool
	}{
		{"the helper is killed", func() {
			p.Stop()
			p = w.start(shared...)
		}, true},
		{"somebody deletes our flows", func() { w.script("ovs-ofctl del-flows breth0 in_port=$(ovs-vsctl get Interface eth0 ofport)") }, true},
		{"ports get other numbers", func() {
			w.script(`ovs-vsctl set Interface eth0 ofport_request=41 -- set Interface k8s-patch-breth0-br-int ofport_request=42`)
			w.eventually("the numbers", func() bool { return w.ofport("eth0") == "41" && w.ofport("k8s-patch-breth0-br-int") == "42" })
		}, true},
		{"ports change places", func() {
			w.script(`ovs-vsctl set Interface eth0 ofport_request=42 -- set Interface k8s-patch-breth0-br-int ofport_request=41`)
		}, true},
		{"ovsdb-server is killed", func() {
			if err := w.Kill(w.ctx, "/var/run/openvswitch/ovsdb-server.pid"); err != nil {
				w.Fatal(err)
			}
			w.script("ovsdb-server /etc/openvswitch/conf.db --remote=punix:/var/run/openvswitch/db.sock --detach --no-chdir --pidfile -vconsole:off")
		}, true},
		{"the patch port is deleted", func() {
			w.script("ovs-vsctl --timeout=60 del-port breth0 k8s-patch-breth0-br-int")
		}, true},
		{"the NIC leaves and returns", func() {
			w.script("ovs-vsctl --timeout=60 del-port breth0 eth0")
			w.eventually("the bridge is the host's alone", func() bool { return !strings.Contains(fmt.Sprint(w.flows()), "ct(") })
			w.script("ovs-vsctl --timeout=60 add-port breth0 eth0")
		}, true},
		{"ovs-vswitchd is killed", w.restartVswitchd, false},
		{"the bridge is made anew", func() {
			w.script("ovs-vsctl --timeout=60 del-br breth0")
			w.script(`ovs-vsctl --timeout=60 add-br breth0 -- set Bridge breth0 datapath_type=$OVNK8S_TEST_DATAPATH other_config:hwaddr="\"$(cat /sys/class/net/eth0/address)\"" -- add-port breth0 eth0`)
			w.address()
		}, false},
	} {
		if !tt.keeps {
			// The flows go, too, and until they are back all ports get a copy of each packet. OVN drops unknown
			// packets; so must this router.
			w.script(`ip netns exec gr nft 'table inet strays {
				chain input {
					type filter hook input priority 0;
					tcp flags & (fin | syn | rst | ack) != syn socket wildcard 0 accept
					tcp flags & (fin | syn | rst | ack) != syn drop
				}
			}'`)
		}
		tt.do()
		took := w.eventually("flows are right after "+tt.what, w.right)
		t.Logf("%s: right after %v", tt.what, took.Round(time.Millisecond))
		if took > wrongTime {
			t.Errorf("%s: right only after %v", tt.what, took)
		}
		foreign := slices.ContainsFunc(w.flows(), func(f flow.Flow) bool { return f.Cookie == 5 })
		if tt.keeps && !foreign {
			t.Errorf("%s: the flow of somebody else is gone", tt.what)
		}
		w.undisturbed(tt.what, all)
	}
}

func TestTheAPIServerMayGoAway(t *testing.T) {
	w := newWorld(t)
	w.web()
	p := w.start(shared...)
	w.eventually("flows", w.right)
	w.unplug()
	p.Stop()
	// Without the API server the helper cannot know the deleted Services.
	again := w.startBlind()
	w.eventually("flows while nobody knows the Services", w.right)
	w.deleteService("web")
	w.plug()
	took := w.eventually("the flow is gone", func() bool { return !w.right() })
	t.Logf("the API server is followed again after %v", took.Round(time.Millisecond))
	if strings.Count(again.Output(), "WARN") > 6 {
		t.Errorf("complains too much:\n%s", again.Output())
	}
}

// Missing or incomplete settings for a moment, also while the helper restarts with new settings, do not end it.
func TestSettingsChangeAtBadTimes(t *testing.T) {
	w := newWorld(t)
	w.web()
	set := func(pairs string) { w.script("ovs-vsctl --no-wait set Open_vSwitch . " + pairs) }
	server := fmt.Sprintf(`external_ids:k8s-api-server='"https://%v:%d"'`, host.FabricIPv4(), apiPort)
	set(server + " external_ids:ovn-k8s-conntrack-zone=63000")
	p := w.launchBare(append([]string{"--pidfile", "--node-name=node1", "--k8s-api-token-file=/etc/openvswitch/ovn-k8s-gateway-helper.token"}, shared...)...)
	pid := func() string { return w.pidfile("ovn-k8s-gateway-helper.pid") }
	serves := func(zone string) func() bool {
		return func() bool { return strings.Contains(w.script("ovs-ofctl dump-flows breth0"), "zone="+zone) }
	}
	w.eventually("flows", serves("63000"))
	was := pid()

	w.script("ovs-vsctl --no-wait remove Open_vSwitch . external_ids k8s-api-server")
	w.eventually("a complaint", func() bool {
		return strings.Contains(p.Output(), "keeping the former configuration: K8S_API_SERVER not set")
	})
	set("external_ids:ovn-k8s-conntrack-zone=many")
	w.eventually("another", func() bool {
		return strings.Contains(p.Output(), `keeping the former configuration: bad conntrack-zone "many"`)
	})
	if !serves("63000")() {
		t.Error("the flows are gone")
	}
	w.script("ovs-vsctl del-port eth0")
	set(server + " external_ids:ovn-k8s-conntrack-zone=64000")
	w.eventually("a third", func() bool {
		return strings.Contains(p.Output(), `Failed operation. (no row "eth0" in table Interface)`)
	})
	w.script("ovs-vsctl add-port breth0 eth0")
	w.eventually("flows as they should be", w.right)
	if now := pid(); now != was || was == "" {
		t.Errorf("the helper was process %q and is %q", was, now)
	}
	for _, once := range []string{"K8S_API_SERVER not set", "bad conntrack-zone", "Failed operation"} {
		if n := strings.Count(p.Output(), once); n != 1 {
			t.Errorf("%q is said %d times", once, n)
		}
	}
}

func TestAHelperWithoutIPv6(t *testing.T) {
	w := newWorld(t)
	w.web()
	w.script(`mount -t tmpfs tmpfs /proc/sys/net/ipv6
		for tool in ip6tables ip6tables-save ip6tables-restore; do
			printf '#!/bin/sh\necho Address family not supported by protocol >&2\nexit 3\n' >/usr/local/sbin/$tool; chmod +x /usr/local/sbin/$tool
		done`)
	p := w.start(shared...)
	w.eventually("flows", w.right)
	w.eventually("rules", func() bool {
		return strings.Contains(w.script(host.RulesScript), host.PerFirewall("dport 30082", "tcp . 30082"))
	})
	if strings.Contains(p.Output(), "Address family") {
		t.Error("it tries ip6tables")
	}
}

// A management port missing for a moment does not make its host another node.
func TestTheManagementPortIsGoneForAMoment(t *testing.T) {
	w := newWorld(t)
	w.web()
	const port = "ovs-vsctl add-port br-int k8s-other -- set Interface k8s-other type=internal external_ids:iface-id=k8s-other; ip address add 10.128.1.2/24 dev k8s-other; ip link set k8s-other up"
	w.script(port)
	args := append([]string{"--pidfile", "-vconsole:info"}, slices.DeleteFunc(w.args(shared...), func(a string) bool { return strings.HasPrefix(a, "--node-name") })...)
	p := w.launchBare(args...)
	rules := func() bool { return strings.Contains(w.script(host.RulesScript), "k8s-other") }
	w.eventually("flows, routes and rules", func() bool { return w.right() && routed(w) && rules() })
	w.script("ovs-vsctl del-port k8s-other")
	w.eventually("no rules", func() bool { return !rules() })
	w.script(port)
	w.eventually("routes again", func() bool { return routed(w) })
	if strings.Contains(p.Output(), "starting anew") {
		t.Error("the helper took the host for another node")
	}
}

// Without the gateway of a shared NIC, nothing drops the host's segments any more, even before the Services are
// known. The other rules stay in use.
func TestWhatIsForASharedNICGoesWithIt(t *testing.T) {
	w := newWorld(t)
	w.web()
	p := w.start(shared...)
	rules := func() string { return w.script(host.RulesScript) }
	w.eventually("rules", func() bool {
		text := rules()
		return strings.Count(text, host.PerFirewall("-j OVN-SVC-STRAY", "chain svc-stray {")) == 2 && strings.Count(text, host.PerFirewall("dport 30082", "tcp . 30082")) >= 4
	})
	p.Stop()
	w.unplug()
	w.script("ovs-vsctl del-port k8s-patch-breth0-br-int -- del-port k8s-patch-br-int-breth0")
	w.launch()
	w.eventually("no rule for strays", func() bool { return !strings.Contains(rules(), host.PerFirewall("OVN-SVC-STRAY", "svc-stray")) })
	if text := rules(); strings.Count(text, host.PerFirewall("dport 30082", "tcp . 30082")) < 2 {
		t.Errorf("the rules of Services are gone: %s", text)
	}
	w.plug()
	w.eventually("the rules are as they should be", func() bool {
		out := w.appctl("rules/show")
		return strings.Contains(out, host.PerFirewall("dport 30082", "tcp . 30082")) && !strings.Contains(out, "\n! ")
	})
}

func TestARestartChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.web()
	p := w.start(shared...)
	w.eventually("flows", w.right)
	w.script("ovs-vsctl set Interface k8s-patch-br-int-breth0 external_ids:ovn-k8s-cluster-subnets='\"10.128.0.0/14,fd01::/48\"'")
	w.eventually("flows for pods", func() bool { return strings.Contains(w.script("ovs-ofctl dump-flows breth0"), "ipv6_dst=fd01::/48") })
	w.eventually("rules", func() bool {
		out := w.appctl("rules/show")
		return strings.Contains(out, host.PerFirewall("dport 30082", "tcp . 30082")) && !strings.Contains(out, "\n! ")
	})
	p.Stop()
	// youngest is 1 if all flows are older than a second
	youngest := func() string {
		return w.script("ovs-ofctl dump-flows breth0 | sed 's/.*duration=\\([0-9.]*\\)s.*/\\1/' | sort -n | head -1 | awk '{print ($1 > 1)}'")
	}
	rules := w.script(host.RulesScript)
	time.Sleep(1200 * time.Millisecond)
	q := w.start(shared...)
	if strings.Contains(q.Output(), "added or changed") || strings.Contains(q.Output(), "rules changed") {
		t.Errorf("it changed something:\n%s", q.Output())
	}
	if got := youngest(); got != "1" {
		t.Errorf("some flow is younger than the restart: %q", got)
	}
	strip := func(s string) string { return regexp.MustCompile(`(?m)^(#|:).*$`).ReplaceAllString(s, "") } // dates and counters
	if got := w.script(host.RulesScript); strip(got) != strip(rules) {
		t.Errorf("other rules:\n%s", got)
	}
}

func TestManyNodePortsAreOneBundle(t *testing.T) {
	w := newWorld(t)
	const services = 500
	for i := range services {
		w.service(fmt.Sprintf("s%d", i), func(s *corev1.Service) { s.Spec.Ports[0].NodePort = int32(30100 + i) })
	}
	start := time.Now()
	p := w.start(shared...)
	count := func() int { return len(w.flows()) }
	w.eventually("all flows", func() bool { return count() > services })
	t.Logf("%d NodePorts after %v", services, time.Since(start).Round(time.Millisecond))
	bundles := func() (n []string) {
		for l := range strings.Lines(p.Output()) {
			if strings.Contains(l, "added or changed") {
				n = append(n, l)
			}
		}
		return n
	}
	w.eventually("a word about it", func() bool { return len(bundles()) > 0 })
	if b := bundles(); len(b) > 2 || !strings.Contains(b[len(b)-1], fmt.Sprint(services)) {
		t.Errorf("want the base flows and one bundle: %q", b)
	}
	w.eventually("the rules", func() bool {
		return strings.Count(w.script(host.RulesScript), host.PerFirewall("REJECT", ": goto svc-reject")) == services
	})
	t.Logf("and the host's rules after %v", time.Since(start).Round(time.Millisecond))
	before := len(bundles())
	start = time.Now()
	w.update("s7", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 32000 })
	w.eventually("the change", func() bool { return len(bundles()) > before })
	t.Logf("one change after %v", time.Since(start).Round(time.Millisecond))
	if b := bundles(); !strings.Contains(b[len(b)-1], ": 1 added or changed, 1 deleted") {
		t.Errorf("the change was %q", b[before:])
	}
}

// H0: a host does not need the helper. Without flows the bridge never learns the MAC shared by host and router
// behind the patch port.
func TestAHostOutlivesTheHelper(t *testing.T) {
	w := newWorld(t)
	w.web()
	p := w.start(shared...)
	router := w.router()
	w.eventually("flows", w.right)
	server, err := probe.Serve(w.Netns(), "host", 2222)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	p.Stop()
	w.restartVswitchd()
	w.eventually("a bridge without flows of ours", func() bool { return len(w.flows()) == 1 && w.ofport("k8s-patch-breth0-br-int") != "-1" })
	ping := func(netns string) {
		ctx, cancel := context.WithTimeout(w.ctx, 20*time.Millisecond)
		defer cancel()
		_, _ = (probe.Probe{Netns: netns, Network: "icmp", Address: netip.AddrPortFrom(host.FabricIPv4(), 0)}).Once(ctx)
	}
	w.eventually("the fabric's MAC", func() bool {
		ping(w.Netns())
		return strings.Contains(w.script(fmt.Sprintf("ip neigh show %v dev breth0", host.FabricIPv4())), "lladdr")
	})
	w.script(fmt.Sprintf("ip -n gr neigh replace %[1]v dev eth0 nud permanent lladdr $(ip neigh show %[1]v dev breth0 | grep -o 'lladdr [^ ]*' | cut -d' ' -f2)", host.FabricIPv4()))
	const tries = 45
	ok := 0
	for range tries {
		ping(router) // pods continue to send
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		_, err := (probe.Probe{Netns: w.fabric.Netns(), Network: "tcp", Address: netip.AddrPortFrom(w.IPv4(), 2222)}).Once(ctx)
		cancel()
		if err == nil {
			ok++
		}
	}
	if ok != tries {
		t.Errorf("the host answers %d of %d tries; %s", ok, tries, w.script("ovs-appctl fdb/show breth0; ovs-vsctl list port k8s-patch-breth0-br-int"))
	}
}

// H11: a helper without options finds the bridge shared by gateway-init, also if it started before gateway-init.
func TestAHelperFindsItsBridge(t *testing.T) {
	w := newWorld(t)
	w.web()
	p := w.launchBare(w.args("--pidfile", "-vconsole:info")...)
	w.eventually("the helper answers", func() bool { return strings.Contains(w.appctl("reconcile/show"), "services known   true") })
	w.script(`ovs-vsctl --timeout=60 add-port breth0 k8s-patch-breth0-br-int -- set Interface k8s-patch-breth0-br-int type=patch options:peer=k8s-patch-br-int-breth0 external_ids:ovn-k8s-gateway=node1 \
		-- add-port br-int k8s-patch-br-int-breth0 -- set Interface k8s-patch-br-int-breth0 type=patch options:peer=k8s-patch-breth0-br-int external_ids:ovn-k8s-gateway=node1`)
	w.eventually("flows", w.right)
	if !strings.Contains(p.Output(), "served without --physical-bridge") {
		t.Errorf("nothing is said:\n%s", p.Output())
	}
	p.Stop()
	w.script("ovs-ofctl del-flows breth0 cookie=0x6b38736777/-1")
	w.start()
	w.eventually("flows after a restart", w.right)
}
