package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
)

// killsVariable is the number of kills of TestKilledAtAnyMoment for each mode and family; see docs/testing.md.
const killsVariable = "OVNK8S_TEST_KILLS"

// undoWithin bounds the time until the watchdog has undone the move of a killed process: see limits of lib/nicbridge.
const undoWithin = 20 * time.Second

// A node killed at any moment of its start never cuts its host off for longer than the move and its undoing: sessions with
// the host go on before the next start. That one makes it complete, and everything can be taken back.
func TestKilledAtAnyMoment(t *testing.T) {
	kills, err := strconv.Atoi(os.Getenv(killsVariable))
	if err != nil {
		kills = 1
	}
	both := []string{"10.128.2.0/23", "fd01:0:0:2::/64"}
	for _, mode := range []string{"shared", "spare", "local"} {
		for family, subnets := range map[string][]string{"4": both[:1], "6": both[1:], "46": both} {
			t.Run(mode+" IPv"+family, func(t *testing.T) {
				t.Parallel()
				k := newKilled(t, mode, family, subnets, kills)
				for k.kills < kills {
					k.round()
				}
				k.report()
			})
		}
	}
}

// A killed is a node whose process is killed again and again.
type killed struct {
	*world
	options         []string
	moments         []moment
	sessions        []*probe.Session // with the host
	before, started []string         // the host's state without the node, and with it
	packets         []*probe.Packets // to the host
	usual           time.Duration    // the longest time that a start without a kill cuts the host off
	kills           int
}

// A moment of a start comes with a line of the log, or with a script's success, and a drawn time later.
type moment struct {
	says, script string
	within       time.Duration
}

// newKilled makes a host, and starts its node once without a kill.
func newKilled(t *testing.T, mode, family string, subnets []string, kills int) *killed {
	t.Helper()
	k := &killed{world: newNode(t, "k-"+mode+"-"+family, subnets...), options: []string{"gateway-mode=" + mode, "nodeport=true"}}
	ctx, cancel := context.WithTimeout(t.Context(), limit.Of(time.Duration(4+kills)*time.Minute))
	t.Cleanup(cancel)
	k.ctx = ctx
	k.moments = moments(k.Name, mode)
	if mode == "shared" { // a move of many routes takes longer, and may be killed in the middle
		k.script("for i in $(seq 1000); do echo route add 203.0.$((i / 250)).$((i % 250))/32 via 198.18.0.1 dev eth0; done | ip -batch -")
	}
	if mode == "spare" {
		_, via := k.Second()
		hops := map[string]string{"4": via[0].String(), "6": via[1].String(), "46": fmt.Sprintf("%v,%v", via[0], via[1])}
		k.options = append(k.options, "gateway-interface=eth1", "gateway-nexthop="+hops[family])
	}
	// Without ovn-controller br-int has no flows: a start that finds it suspends the wait, one that makes it does so later.
	k.loose = regexp.MustCompile(`(ovn-k8s|ovn-ofctrl)-wait-before-clear="[0-9]+", `)
	k.meet()
	k.before = sorted(k.state())
	k.start(k.options...)
	k.complete()
	k.started = sorted(k.settled())
	k.takeBack()
	k.usual = k.outage()
	return k
}

// meet opens sessions with all addresses of the host: of a neighbour, and of a host behind the router.
func (k *killed) meet() {
	k.t.Helper()
	const port = 7777
	server, err := probe.Serve(k.Netns(), k.Name, port)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(server.Close)
	for i, a := range k.Addresses {
		for _, from := range []netip.Addr{k.Gateways()[i], host.FabricBeyond()[i]} {
			s, err := probe.Probe{Netns: k.FabricNetns(), Network: "tcp", Address: probe.Address(a.Addr(), port), Source: from}.Open(k.ctx)
			if err != nil {
				k.t.Fatal(err)
			}
			k.t.Cleanup(func() { s.Close() })
			k.sessions = append(k.sessions, s)
			p, err := probe.Probe{Netns: k.FabricNetns(), Address: probe.Address(a.Addr(), port), Source: from}.Ping()
			if err != nil {
				k.t.Fatal(err)
			}
			k.t.Cleanup(p.Close)
			k.packets = append(k.packets, p)
		}
	}
}

// answers waits until the host answers again.
func (k *killed) answers(after string) {
	k.t.Helper()
	for _, s := range k.sessions {
		was := s.Typed()
		k.until("the host answers after "+after, func() error { return s.Undisturbed(was) })
	}
}

// moments are moments of the start of a node.
func moments(name, mode string) []moment {
	all := []moment{
		{within: 3 * time.Second}, {within: 3 * time.Second},
		{says: "external_ids:ovn-remote="},
		{script: "ip link show dev k8s-" + name},
		{script: "{ ip route; ip -6 route; } | grep 'via .* dev k8s-" + name + "'"},
		{script: "{ ip route; ip -6 route; } | grep -e 172.30.0.0/16 -e fd02::/112"},
		{script: "{ " + host.RulesScript + "; } | grep -i ovn-k8s"},
		{says: "set annotation " + names.GatewayAnnotation},
		{script: "ls /opt/cni/bin/ovn-k8s-cni-overlay"},
		{script: "ls /etc/cni/net.d/10-ovn-kubernetes.conflist"},
		{says: "host is complete", within: 100 * time.Millisecond},
	}
	of := map[string][]moment{
		"shared": {
			{says: "moving eth0", within: 300 * time.Millisecond}, {says: "moving eth0", within: 300 * time.Millisecond},
			{script: "ovs-vsctl br-exists breth0"},
			{script: "ovs-vsctl port-to-br eth0"},
			{script: "test -z \"$(ip -6 address show dev eth0 scope global)\""},
			{script: "test -z \"$(ip -4 address show dev eth0)\""},
			{script: "ip address show dev breth0 | grep 198.18.0"},
			{script: "test -z \"$(ip route show default)\" || ip route show default | grep breth0", within: 100 * time.Millisecond},
			{script: "ip route show default | grep breth0"},
			{says: "moved eth0"},
			{script: "ovs-vsctl port-to-br k8s-patch-breth0-br-int"},
			{script: "ovs-ofctl dump-flows breth0 | grep 'ct('"},
		},
		"spare": {{script: "ovs-vsctl port-to-br eth1"}, {script: "test -z \"$(ip -4 address show dev eth1)\""}},
		"local": {{script: "ovs-vsctl br-exists br-local"}, {script: "ip address show dev br-nexthop | grep inet"}},
	}
	return append(all, of[mode]...)
}

// kill waits for a drawn moment of the running start, and kills it: in the host, since a move of a NIC takes little time. It
// returns the moment.
func (k *killed) kill() string {
	k.t.Helper()
	m := k.moments[rand.IntN(len(k.moments))]
	if m.says != "" {
		k.until("a line with "+m.says, func() error {
			if log := k.role.Output(); !strings.Contains(log, m.says) && !strings.Contains(log, "host is complete") { // a later start has less to say
				return errors.New("not yet")
			}
			return nil
		})
	}
	late := rand.N(m.within + time.Millisecond).Seconds()
	k.script(fmt.Sprintf(`set -e
		until process=$(pgrep -o -f '^/[^ ]*[.]test node init-node='); do :; done
		for i in $(seq 40000); do { %s; } >/dev/null 2>&1 && break; done
		sleep %f
		kill -9 $process`, cmp.Or(m.script, "true"), late))
	k.stop()
	k.kills++
	return fmt.Sprintf("a kill %.3fs after %q", late, m.says+m.script)
}

// round kills the start of a host without a node, or of a complete one, once or twice, and starts the node again.
func (k *killed) round() {
	k.t.Helper()
	if rand.IntN(4) == 0 {
		k.start(k.options...)
		k.complete()
		k.stop()
	}
	var after string
	for range 1 + rand.IntN(2) {
		k.start(k.options...)
		after = k.kill()
		k.answers(after)
	}
	k.start(k.options...)
	k.complete()
	k.same("the start after "+after, k.started)
	k.until("check after "+after, func() error { return k.check(k.options...) })
	k.takeBack()
}

// takeBack kills the complete node, and cleans up.
func (k *killed) takeBack() {
	k.t.Helper()
	k.stop()
	k.clean(k.options...)
	k.same("a clean-up", k.before)
	k.script("! ls /etc/openvswitch/ovn-k8s-util/*.json 2>/dev/null")
}

// report fails the test if the host was ever cut off for longer than by design.
func (k *killed) report() {
	k.t.Helper()
	longest, most := k.outage(), k.usual+limit.Of(undoWithin)
	k.t.Logf("%d kills: the host was cut off for at most %v, by a start without a kill for %v", k.kills, longest.Round(time.Millisecond), k.usual.Round(time.Millisecond))
	if longest > most {
		k.t.Errorf("a kill cut the host off for %v, want at most %v", longest, most)
	}
}

// outage is the longest time that the host did not answer packets.
func (k *killed) outage() (longest time.Duration) {
	for _, p := range k.packets {
		longest = max(longest, p.Outage())
	}
	return longest
}
