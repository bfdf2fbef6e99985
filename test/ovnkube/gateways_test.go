package ovnkube

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/host"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// Gateways is a cluster with a shared and a local gateway, a pod on the node of each, and a Service of both pods.
type gateways struct {
	*cluster
	shared, local *world.Node
	addresses     []netip.Addr // of both gateways
	pods          []world.Endpoint
	hosts         *world.Hosts
	service       world.Service
}

// Checks of gateways and Services that need packets, in the order of their needs.
func TestCheck35_39_40_42_44_45_48_Gateways(t *testing.T) {
	g := &gateways{cluster: newCluster(t, world.Options{Minions: 3})}
	g.run()
	g.prepare()
	for _, c := range []struct {
		name string
		test func(*gateways)
	}{
		{"AC-39 rows", (*gateways).rowsOfShared},
		{"AC-42 flows", (*gateways).flows},
		{"AC-35 restart", (*gateways).restarts},
		{"AC-44 edits", (*gateways).edits},
		{"AC-45 vswitchd", (*gateways).switchRestarts},
		{"AC-48 removed meanwhile", (*gateways).removedMeanwhile},
		{"AC-71 named ports", (*gateways).namedPorts},
		{"AC-72 headless", (*gateways).headless},
		{"AC-73 no endpoint", (*gateways).lastEndpoint},
		{"AC-78 health checks", (*gateways).healthChecks},
		{"AC-76 another node", (*gateways).anotherNode},
		{"AC-40 VLAN", (*gateways).vlan},
	} {
		t.Run(c.name, func(t *testing.T) {
			sub := *g
			sub.cluster = &cluster{T: t, World: g.World, ctx: g.ctx}
			c.test(&sub)
		})
	}
}

func (g *gateways) prepare() {
	g.Helper()
	g.shared, g.local = g.Node("minion1"), g.Node("minion2")
	for n, mode := range map[*world.Node]string{g.shared: world.Shared, g.local: world.Local} {
		seen, err := g.AddGateway(g.ctx, n, mode)
		g.must(err)
		g.addresses = append(g.addresses, seen...)
		_, err = g.Kube.CreatePod(g.ctx, "default", "on-"+n.Name, n.Name, func(p *corev1.Pod) { p.Labels = map[string]string{world.AppLabel: "web"} })
		g.must(err)
	}
	g.pods = []world.Endpoint{g.await("on-minion1"), g.await("on-minion2")}
	var err error
	g.hosts, err = g.ServeHosts()
	g.must(err)
	g.Cleanup(g.hosts.Close)
	g.service = g.serve("web", 1)
}

// serve makes a Service of both pods, and waits until all hosts have it.
func (g *gateways) serve(name string, number int) world.Service {
	g.Helper()
	s, err := g.CreateService(g.ctx, name, kubelet.DefaultPort, number, func(s *corev1.Service) {
		s.Spec.Selector = map[string]string{world.AppLabel: "web"}
	})
	g.must(err)
	s.Backends = g.pods
	g.must(g.AwaitServices(g.ctx, []world.Service{s}))
	return s
}

// reach fails unless the outside reaches the NodePorts of a Service on both gateways, pods and hosts reach the outside, and the
// outside reaches the hosts.
func (g *gateways) reach(s world.Service) {
	g.Helper()
	attempts := g.fromOutside(s, g.addresses)
	for i, n := range g.hosts.Nodes[1:3] {
		attempts = append(attempts, world.Attempts(g.pods[i], g.hosts.Outside, n.Addresses)...)
		attempts = append(attempts, world.Attempts(n, g.hosts.Outside, n.Addresses)...)
		attempts = append(attempts, world.Attempts(g.hosts.Outside, n, g.hosts.Outside.Addresses)...)
	}
	g.succeed(attempts)
}

// fromOutside are attempts to the NodePorts of a Service at addresses of gateways.
func (g *gateways) fromOutside(s world.Service, gateways []netip.Addr) []world.Attempt {
	in := slices.DeleteFunc(g.Frontends(s, gateways), func(f world.Frontend) bool { return !f.Outside })
	return g.ServiceAttempts(s, in, []world.Client{g.OutsideClient()})
}

// succeed fails the test unless all attempts succeed.
func (g *gateways) succeed(attempts []world.Attempt) {
	g.Helper()
	g.must(g.Try(g.ctx, attempts))
	for _, a := range attempts {
		if a.Err != nil {
			g.Errorf("%v: %v", a, a.Err)
		}
	}
}

// script runs a shell script on a node.
func (g *gateways) script(n *world.Node, text string) string {
	g.Helper()
	out, err := n.Script(g.ctx, text)
	g.must(err)
	return strings.TrimSpace(out)
}

// rowsOfShared looks for what makes a gateway of a host: its chassis, addresses, MAC and next hops, and the NAT of pods.
func (g *gateways) rowsOfShared() {
	name, own := g.shared.Name, g.shared.Addresses
	mac := g.script(g.shared, "cat /sys/class/net/breth0/address")
	for _, c := range []struct {
		command string
		want    []string
	}{
		{"--bare --columns=options,external_ids find Logical_Router name=GR_" + name, []string{"chassis=" + name, "lb_force_snat_ip=100.64.0.", names.PhysicalIP + "=" + own[0].Addr().String()}},
		{"--bare --columns=mac,networks find Logical_Router_Port name=rtoe-GR_" + name, []string{mac, own[0].String(), own[1].String()}},
		{"lr-nat-list GR_" + name, []string{"snat", own[0].Addr().String(), "10.128.0.0/14", own[1].Addr().String(), "fd01::/48"}},
		{"lr-route-list GR_" + name, []string{"0.0.0.0/0", g.shared.Gateways()[0].String(), "::/0", g.shared.Gateways()[1].String()}},
		{"lsp-list ext_" + name, []string{"(breth0_" + name + ")", "(etor-GR_" + name + ")"}},
	} {
		out, err := g.Central.NBCtl(strings.Fields(c.command)...)
		g.must(err)
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				g.Errorf("%s: no %q in\n%s", c.command, want, out)
			}
		}
	}
	chassis, err := g.Central.SBCtl("--bare", "--columns=name", "find", "Chassis", "name="+name)
	g.must(err)
	bound, err := g.Central.SBCtl("--bare", "get", "Port_Binding", "breth0_"+name, "chassis")
	if err != nil || strings.TrimSpace(chassis) == "" || strings.TrimSpace(bound) == "[]" {
		g.Errorf("the NIC's port is bound to %q, %v", bound, err)
	}
}

// flows checks that each side of the bridge gets the answers to its own connections, and that the bridge has no flow too many
// and none too few.
func (g *gateways) flows() {
	g.reach(g.service)
	var all []*probe.Session
	outside := probe.Address(g.hosts.Outside.Addresses[0], kubelet.DefaultPort)
	for range 10 {
		for _, netns := range []string{g.shared.Netns(), g.pods[0].Netns} {
			s, err := probe.OpenSession(g.ctx, netns, outside)
			g.must(err)
			defer s.Close()
			all = append(all, s)
		}
	}
	for i, s := range all {
		before := s.Typed()
		g.eventually(fmt.Sprint("session ", i, " goes on"), func() error { return s.Undisturbed(before) })
	}
	g.eventually("the flows of the bridge", func() error { return unmarked(g.script(g.shared, "ovs-appctl -t ovnkube flows/show")) })
}

// unmarked returns an error if a line has the mark of a difference.
func unmarked(text string) error {
	for l := range strings.Lines(text) {
		if strings.ContainsAny(l[:1], "!+-~") {
			return fmt.Errorf("it differs: %s", l)
		}
	}
	return nil
}

// restarts restarts the process of each node: its management port keeps its addresses all the time, and nothing is there twice.
func (g *gateways) restarts() {
	const state = "ip -o address; ip route show table all; ip -6 route show table all; ip rule; ip -6 rule"
	before := g.rows()
	for _, n := range []*world.Node{g.shared, g.local} {
		was := sortedLines(g.script(n, state))
		monitor, err := n.Start("ip", "-o", "monitor", "address", "route")
		g.must(err)
		defer monitor.Stop()
		g.marked(n, monitor.Output, "127.0.0.8")
		g.must(g.RestartOVNKube(g.ctx, n, n.Arguments()...))
		g.eventually("check", func() error { return g.CheckOVNKube(g.ctx, n) })
		g.marked(n, monitor.Output, "127.0.0.9")
		for l := range strings.Lines(monitor.Output()) {
			if strings.Contains(l, "Deleted") && strings.Contains(l, names.ManagementPort(n.Name)) {
				g.Errorf("%s: %s", n.Name, l)
			}
		}
		if diff := cmp.Diff(was, sortedLines(g.script(n, "ip address del 127.0.0.8/32 dev lo; ip address del 127.0.0.9/32 dev lo; "+state))); diff != "" {
			g.Errorf("%s (-before +after):\n%s", n.Name, diff)
		}
	}
	if diff := cmp.Diff(before, g.rows()); diff != "" {
		g.Errorf("rows (-before +after):\n%s", diff)
	}
	g.reach(g.service)
}

// marked waits until a monitor has seen an address that is added now, and so everything before it.
func (g *gateways) marked(n *world.Node, output func() string, address string) {
	g.Helper()
	g.eventually("the monitor", func() error {
		g.script(n, "ip address replace "+address+"/32 dev lo")
		if !strings.Contains(output(), address) {
			return fmt.Errorf("it has not seen %s", address)
		}
		return nil
	})
}

func sortedLines(text string) []string { return slices.Sorted(strings.SplitSeq(text, "\n")) }

// gone waits until nothing in the database and on the nodes has a port of a Service.
func (g *gateways) gone(port int) {
	g.Helper()
	number := regexp.MustCompile(fmt.Sprintf(`\b%d\b`, port))
	g.eventually(fmt.Sprintf("port %d is gone", port), func() error {
		for what, text := range map[string]string{
			"the database": strings.Join(g.rows(), "\n"),
			"the bridge":   g.script(g.shared, "ovs-ofctl --no-stats dump-flows breth0"),
			"the firewall": g.script(g.local, host.RulesScript),
		} {
			if number.MatchString(text) {
				return fmt.Errorf("%s has it", what)
			}
		}
		return nil
	})
}

// edits changes the NodePorts of a Service, and deletes it.
func (g *gateways) edits() {
	s := g.serve("edited", 2)
	g.reach(s)
	api := g.Kube.Client().CoreV1().Services("default")
	o, err := api.Get(g.ctx, s.Name, metav1.GetOptions{})
	g.must(err)
	old := s.NodePorts
	s.NodePorts = map[string]int{}
	for i := range o.Spec.Ports {
		p := &o.Spec.Ports[i]
		p.NodePort = 30044 + int32(i) // in the static band of NodePorts: dynamic allocation takes it last
		s.NodePorts[strings.ToLower(string(p.Protocol))] = int(p.NodePort)
	}
	_, err = api.Update(g.ctx, o, metav1.UpdateOptions{})
	g.must(err)
	for _, port := range old {
		g.gone(port)
	}
	g.must(g.AwaitServices(g.ctx, []world.Service{s}))
	g.reach(s)
	g.must(api.Delete(g.ctx, s.Name, metav1.DeleteOptions{}))
	for _, port := range s.NodePorts {
		g.gone(port)
	}
	g.reach(g.service)
}

// switchRestarts kills ovs-vswitchd of the node with the shared NIC.
func (g *gateways) switchRestarts() {
	g.must(g.shared.RestartVswitchd(g.ctx))
	g.eventually("the flows of the bridge", func() error { return unmarked(g.script(g.shared, "ovs-appctl -t ovnkube flows/show")) })
	_, err := g.Central.NBCtl("--wait=hv", "sync")
	g.must(err)
	g.reach(g.service)
}

// removedMeanwhile deletes a Service while ovnkube does not run.
func (g *gateways) removedMeanwhile() {
	s := g.serve("removed", 3)
	for _, n := range []*world.Node{g.shared, g.local} {
		g.must(n.Kill(g.ctx, world.OVNKubePidfile))
	}
	g.must(g.Kube.Client().CoreV1().Services("default").Delete(g.ctx, s.Name, metav1.DeleteOptions{}))
	for _, n := range []*world.Node{g.shared, g.local} {
		g.must(g.RestartOVNKube(g.ctx, n, n.Arguments()...))
	}
	for _, port := range s.NodePorts {
		g.gone(port)
	}
	g.reach(g.service)
}

// vlan moves the shared gateway to a VLAN: packets of pods leave with its tag, those of the host without.
func (g *gateways) vlan() {
	g.must(g.RestartOVNKube(g.ctx, g.shared, append(g.shared.Arguments(), "-gateway-vlanid=100")...))
	g.eventually("the port of the VLAN", func() error {
		tag, err := g.Central.NBCtl("--bare", "--columns=tag", "find", "Logical_Switch_Port", "name=breth0_minion1.100")
		if err == nil && strings.TrimSpace(tag) != "100" {
			err = fmt.Errorf("its tag is %q", tag)
		}
		return err
	})
	_, err := g.Central.NBCtl("--wait=hv", "sync")
	g.must(err)
	p := probe.Probe{Netns: g.pods[0].Netns, Network: "udp", Address: probe.Address(g.hosts.Outside.Addresses[0], kubelet.DefaultPort)}
	g.eventually("a packet of the VLAN", func() error {
		ctx, cancel := context.WithTimeout(g.ctx, limit.Of(time.Second))
		defer cancel()
		if answer, err := p.Once(ctx); err == nil {
			g.Errorf("it has the answer %q of a network without VLAN", answer)
		}
		_, err := g.shared.Script(g.ctx, "ovs-ofctl dump-flows br-int | grep 'n_packets=[1-9].*mod_vlan_vid:100,output:'")
		return err
	})
	node := g.hosts.Nodes[1]
	for _, a := range world.Try(g.ctx, world.Attempts(node, g.hosts.Outside, node.Addresses)) {
		g.Errorf("the host itself: %v: %v", a, a.Err)
	}
}
