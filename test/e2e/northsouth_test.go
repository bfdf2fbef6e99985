package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// failoverTime bounds the time without egress after a gateway has failed.
var failoverTime = limit.Of(10 * time.Second)

// sessionPort is the port of the hosts for sessions like an operator's SSH.
const sessionPort = 22

// surround starts servers on all hosts until the end of the test, also on sessionPort.
func surround(t *testing.T) *world.Hosts {
	t.Helper()
	h, err := cluster.ServeHosts(sessionPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// addGateway makes a node a gateway until the end of the test, and returns the
// source addresses seen outside. It checks that nothing is left of it afterwards.
func addGateway(t *testing.T, n *world.Node, mode string, args ...string) []netip.Addr {
	t.Helper()
	settledHost(t, n)
	before := state(t, n)
	seen, err := cluster.AddGateway(t.Context(), n, mode, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 { // the command can be repeated
			if err := cluster.RemoveGateway(context.Background(), n); err != nil {
				t.Fatal(err)
			}
		}
		unchanged(t, n.Name+"'s gateway leaves something", before, n)
	})
	return seen
}

// settledHost waits until a node's helper has started, and has done its work: Services of a former test may be about to
// go.
func settledHost(t *testing.T, n *world.Node) {
	t.Helper()
	consistent(t)
	var rules string
	eventually(t, n.Name+" has its rules", func() bool {
		rules = sh(t, n, "ovs-appctl -t "+helper()+" rules/show 2>&1 || :")
		return strings.Contains(rules, "IPv4") && !strings.Contains(rules, "\n!")
	}, &rules)
}

var (
	uuid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	// volatile matches values that change by themselves: lifetimes, handles,
	// counters, the state of ports.
	volatile = regexp.MustCompile(`^\d+: |(?:valid_lft|preferred_lft|expires) \S+|\[\d+:\d+\]|# handle \d+|,(true|false)$`)
)

// state returns everything that a gateway may change on a node and in the database:
// ports, flows, addresses, routes, rules, rows. It omits eth1 (OVN may own it) and
// entries made by the kernel.
func state(t *testing.T, n *world.Node) []string {
	t.Helper()
	text := sh(t, n, `
		ovs-vsctl list-ports br-int
		ovs-vsctl list-br
		ovs-vsctl list-ports breth0
		ovs-vsctl --columns=name,other_config,external_ids list bridge breth0
		ovs-ofctl --no-stats dump-flows breth0
		{ `+host.RulesScript+`; } | grep -v -e ^# -e '^:[A-Z]* ' -e '^[*]' -e COMMIT | tr , '\n' || :
		for f in -4 -6; do
			ip $f -o address
			ip $f rule
			ip $f route show table all
		done`)
	text += "\n" + sh(t, cluster.Master(), `ovsdb-client -f csv dump unix:/var/run/ovn/ovnnb_db.sock |
		awk '/ table$/ { t = $1 } t != "NB_Global" { print t, $0 }'`)
	var lines []string
	for line := range strings.Lines(text) {
		line = volatile.ReplaceAllString(uuid.ReplaceAllString(strings.TrimSpace(line), "UUID"), "")
		if !strings.Contains(line, "eth1") && !strings.Contains(line, "fe80:") && !strings.Contains(line, names.PartsSet) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// unchanged waits until the state of a node and of the database is the same as before.
func unchanged(t *testing.T, what string, before []string, n *world.Node) {
	t.Helper()
	var diff string
	eventually(t, what, func() bool {
		diff = cmp.Diff(before, state(t, n))
		return diff == ""
	}, &diff)
}

// sessions opens an operator's sessions, from outside to a node and from the node
// to the outside, in both families. It checks at the end of the test, after all
// clean-up, that none was reset.
func sessions(t *testing.T, node, outside world.Endpoint) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range node.Addresses {
		for _, attempt := range [][2]world.Endpoint{{outside, node}, {node, outside}} {
			s, err := probe.OpenSession(ctx, attempt[0].Netns, probe.Address(attempt[1].Addresses[i], sessionPort))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				t.Helper()
				now := s.Typed()
				eventually(t, "a line on the session "+attempt[0].Name+" to "+attempt[1].Name, func() bool { return s.Typed().Lines > now.Lines })
				if err := s.Undisturbed(now); err != nil {
					t.Errorf("%s to %s: %v", attempt[0].Name, attempt[1].Name, err)
				}
				end := s.Close()
				t.Logf("session %s to %s at %v: %d lines, %d resets, at most %v without answer",
					attempt[0].Name, attempt[1].Name, attempt[1].Addresses[i], end.Lines, end.Resets, end.Silence.Round(time.Millisecond))
			})
		}
	}
}

// inside returns the Attempts within the cluster that must work with any gateways: from
// pods and nodes to all addresses of pods and nodes.
func inside(pods []world.Endpoint, hosts *world.Hosts) []world.Attempt {
	all := slices.Concat(pods, hosts.Management)
	return slices.Concat(world.Matrix(all, all), world.Matrix(pods, hosts.Nodes))
}

// leaves checks that pods reach the outside by all protocols, with one of the
// source addresses in seen.
func leaves(t *testing.T, pods []world.Endpoint, seen []netip.Addr, to ...world.Endpoint) {
	t.Helper()
	for _, e := range to {
		echoes, err := probe.ListenEchoes(e.Netns)
		if err != nil {
			t.Fatal(err)
		}
		var attempts []world.Attempt
		for _, p := range pods {
			attempts = append(attempts, world.Attempts(p, e, seen)...)
		}
		try(t, attempts)
		echoes.Close()
		for _, p := range pods {
			for _, a := range p.Addresses {
				if n := echoes.From(a); n > 0 {
					t.Errorf("%d echo requests to %s came from %v of %s itself", n, e.Name, a, p.Name)
				}
			}
		}
		if !slices.ContainsFunc(seen, func(a netip.Addr) bool { return echoes.From(a) > 0 }) {
			t.Errorf("no echo request to %s came from %v", e.Name, seen)
		}
	}
}

// TestCheck74GatewayModes tests each mode: pods reach the outside with the
// gateway's addresses, the outside reaches pods and NodePorts, all pods and nodes
// reach each other, and the host's own connections are not disturbed.
func TestCheck74GatewayModes(t *testing.T) {
	for _, mode := range world.Modes() {
		t.Run(mode, func(t *testing.T) {
			list := slices.Collect(maps.Values(pods(t, map[string]string{"web-a": "minion1", "web-b": "minion2"})))
			around, n := surround(t), cluster.Node("minion1")
			sessions(t, around.Nodes[1], around.Outside)
			try(t, inside(list, around))
			seen := addGateway(t, n, mode)
			leaves(t, list, seen, around.Outside, around.Neighbour)
			try(t, inside(list, around))
			again := state(t, n)
			if _, err := cluster.AddGateway(t.Context(), n, mode); err != nil {
				t.Fatal(err)
			}
			unchanged(t, "a second run changes something", again, n)
			leaves(t, list, seen, around.Outside)
			arrives(t, seen, list, around.Outside)

			second := addGateway(t, cluster.Node("minion2"), mode)
			leaves(t, list, slices.Concat(seen, second), around.Outside)
			comeBack(t, around.Outside, list, []entrance{{n, mode, seen}, {cluster.Node("minion2"), mode, second}})
		})
	}
}

// An entrance is a gateway from the point of view of a client outside.
type entrance struct {
	node    *world.Node
	mode    string
	outside []netip.Addr
}

// inside returns the source addresses, as seen by pods, of clients that came in through e.
func (e entrance) inside(t *testing.T) []netip.Addr {
	t.Helper()
	if e.mode == world.Local {
		return e.node.Management // masqueraded by the host
	}
	text, err := cluster.Central.NBCtl("get", "Logical_Router", "GR_"+e.node.Name, "options:lb_force_snat_ip")
	if err != nil {
		t.Fatal(err)
	}
	return addrs(strings.Fields(strings.Trim(strings.TrimSpace(text), `"`)))
}

// comeBack checks that answers to an outside client of NodePorts return through the
// client's gateway. It sends several requests, because by the default routes about
// half of the answers would take the other gateway. With policy Local, pods see the
// client itself.
func comeBack(t *testing.T, outside world.Endpoint, pods []world.Endpoint, by []entrance) {
	t.Helper()
	const times = 6
	for _, policy := range []corev1.ServiceExternalTrafficPolicy{corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal} {
		s := service(t, "web", func(s *corev1.Service) {
			s.Name = "web-" + strings.ToLower(string(policy))
			s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, policy
		})
		var attempts []world.Attempt
		for _, e := range by {
			seen := outside.Addresses
			if policy == corev1.ServiceExternalTrafficPolicyCluster {
				seen = e.inside(t)
			}
			for _, d := range slices.Repeat(nodePortsAt(s, e.outside), times) {
				attempts = append(attempts, world.Attempt{
					Row: outside.Name, Column: fmt.Sprintf("a NodePort of policy %s at %s", policy, e.node.Name), From: outside,
					Network: d.network, Address: d.at, Answers: pods, Seen: seen,
				})
			}
		}
		try(t, attempts)
	}
}

// arrives checks that the outside reaches pods if its router has a route to them
// through a gateway, and that pods see its own address.
func arrives(t *testing.T, via []netip.Addr, pods []world.Endpoint, outside world.Endpoint) {
	t.Helper()
	var attempts []world.Attempt
	for _, p := range pods {
		for i, a := range p.Addresses {
			withdraw, err := cluster.Fabric.Route(netip.PrefixFrom(a, a.BitLen()), via[i])
			if err != nil {
				t.Fatal(err)
			}
			defer withdraw()
		}
		attempts = append(attempts, world.Attempts(outside, p, outside.Addresses)...)
	}
	try(t, attempts)
}

// egress sends requests from all to the outside until ok accepts the result.
func egress(t *testing.T, from []world.Endpoint, within time.Duration, what string, ok func(seen map[netip.Addr][]string, silent []string) bool) {
	t.Helper()
	began := time.Now()
	for {
		var lines []string
		good := true
		for _, a := range cluster.Outside.Addresses {
			ctx, cancel := context.WithTimeout(t.Context(), limit.Of(time.Second))
			seen, silent := world.Egress(ctx, from, "udp", a.Addr())
			cancel()
			good = good && ok(seen, silent)
			lines = append(lines, fmt.Sprintf("seen %v, no answer for %v", counts(seen), silent))
		}
		took := time.Since(began)
		if good {
			t.Logf("%s after %v: %s", what, took.Round(10*time.Millisecond), strings.Join(lines, "; "))
			return
		}
		if took > within {
			t.Fatalf("not within %v: %s: %s", within, what, strings.Join(lines, "; "))
		}
	}
}

func counts(seen map[netip.Addr][]string) map[string]int {
	n := map[string]int{}
	for a, who := range seen {
		n[a.String()] = len(who)
	}
	return n
}

// An egressSession is a TCP session from a pod to the outside, over IPv4.
type egressSession struct {
	*probe.Session
	resets int // at the last check
}

func egressSessions(t *testing.T, from []world.Endpoint, outside world.Endpoint) (all []*egressSession) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, e := range from {
		s, err := probe.OpenSession(ctx, e.Netns, probe.Address(outside.Addresses[0], sessionPort))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		all = append(all, &egressSession{Session: s})
	}
	return all
}

// broken waits until every session gets answers, on its old connection or on a new
// one, and returns the number of sessions reset since the last call.
func broken(t *testing.T, all []*egressSession) (n int) {
	t.Helper()
	for i, s := range all {
		was, is := s.Typed(), ""
		eventually(t, fmt.Sprintf("session %d goes on", i), func() bool {
			now := s.Typed()
			is = fmt.Sprintf("%+v", now)
			return now.Lines > was.Lines+2
		}, &is)
		if now := s.Typed().Resets; now > s.resets {
			s.resets = now
			n++
		}
	}
	return n
}

// TestTwoGatewaysShareAndSurvive cuts off one of two gateways. It checks the
// statements of docs/gateways.md about existing connections.
func TestTwoGatewaysShareAndSurvive(t *testing.T) {
	where := map[string]string{}
	for i := range 20 {
		where[fmt.Sprintf("p%d", i)] = []string{"master", "minion2"}[i%2]
	}
	list := slices.Collect(maps.Values(pods(t, where)))
	around := surround(t)
	dying, living := cluster.Node("minion1"), cluster.Node("minion2")
	addGateway(t, dying, world.Dedicated)
	addGateway(t, living, world.Dedicated)
	both := func(seen map[netip.Addr][]string, silent []string) bool { return len(silent) == 0 && len(seen) == 2 }
	all := func(_ map[netip.Addr][]string, silent []string) bool { return len(silent) == 0 }
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(sh(t, cluster.Master(), "grep gateway /var/log/openvswitch/ovn-k8s-watcher.log | tail -n 20"))
		}
	})
	egress(t, list, patience, "both gateways are used", both)
	running := egressSessions(t, list, around.Outside)
	if n := broken(t, running); n > 0 {
		t.Errorf("%d sessions were reset while both gateways lived", n)
	}

	// Another host answers at an address of the Node.
	const moved = "203.0.113.30"
	reportExternal(t, dying.Name, []string{moved})
	sh(t, cluster.Master(), "ip address add "+moved+"/32 dev lo")
	t.Cleanup(func() { sh(t, cluster.Master(), "ip address del "+moved+"/32 dev lo") })
	consistent(t)

	t.Cleanup(func() { mend(t, dying) })
	if err := dying.Cut(); err != nil {
		t.Fatal(err)
	}
	egress(t, list, failoverTime, "egress again without "+dying.Name, all)
	egress(t, list, 0, "egress stays", all)
	n := broken(t, running)
	t.Logf("%d of %d sessions broke with their gateway", n, len(running))
	if n == 0 || n == len(running) {
		t.Errorf("%d of %d sessions broke, and it should be those by %s", n, len(running), dying.Name)
	}
	mend(t, dying)
	egress(t, list, patience, "both gateways are used again", both)
	n = broken(t, running)
	t.Logf("%d of %d sessions broke when it came back", n, len(running))
	if n == len(running) {
		t.Error("every session broke when a gateway came back")
	}
}

func mend(t *testing.T, n *world.Node) {
	t.Helper()
	if err := n.Mend(); err != nil {
		t.Error(err)
	}
}

// TestCheck75EndToEnd tests two nodes with two gateways end to end.
func TestCheck75EndToEnd(t *testing.T) {
	if ovnkube() {
		t.Skip("ovnkube has no egress subnets: --rampout-ip-subnets is an option of gateway-init")
	}
	p := pods(t, map[string]string{"web-pinned": "minion1", "web-free": "minion2"})
	around := surround(t)
	outside, list := around.Outside, []world.Endpoint{p["web-pinned"], p["web-free"]}
	try(t, inside(list, around))
	balanced(t, list, addrs(service(t, "web", nil).Spec.ClusterIPs))

	first := addGateway(t, cluster.Node("minion1"), world.Dedicated)
	leaves(t, list, first, outside)
	second := addGateway(t, cluster.Node("minion2"), world.Dedicated, "--rampout-ip-subnets="+cluster.Node("minion1").Subnets)
	eventually(t, "the pinned pod leaves by the second gateway", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), limit.Of(time.Second))
		defer cancel()
		seen, _ := world.Egress(ctx, list[:1], "udp", outside.Addresses[0])
		return len(seen[second[0]]) == 1
	})
	for range 4 { // each with its own source port, so the hash could select any gateway
		leaves(t, list[:1], second, outside)
	}
	leaves(t, list[1:], slices.Concat(first, second), outside)
	arrives(t, second, list[:1], outside)
	try(t, inside(list, around))

	// A pod in an egress subnet leaves through another gateway if its own is down.
	t.Cleanup(func() { mend(t, cluster.Node("minion2")) })
	if err := cluster.Node("minion2").Cut(); err != nil {
		t.Fatal(err)
	}
	egress(t, list[:1], failoverTime, "the pinned pod leaves by the first gateway", func(seen map[netip.Addr][]string, silent []string) bool {
		return len(silent) == 0
	})
	mend(t, cluster.Node("minion2"))
	egress(t, list[:1], patience, "the pinned pod leaves by its own gateway again", func(seen map[netip.Addr][]string, silent []string) bool {
		return len(seen[second[0]])+len(seen[second[1]]) == 1
	})
}

// balanced checks that each of pods reaches all of them through a Service.
func balanced(t *testing.T, pods []world.Endpoint, service []netip.Addr) {
	t.Helper()
	for _, from := range pods {
		for _, a := range service {
			seen := map[string]bool{}
			eventually(t, fmt.Sprintf("%s reaches every endpoint of %v", from.Name, a), func() bool {
				seen[ask(t, from, "tcp", netip.AddrPortFrom(a, 80))] = true
				return len(seen) == len(pods)
			})
		}
	}
}
