package ovnkube

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// packetTimeout is the time to wait for late answers to packets.
const packetTimeout = 5 * time.Second

// betweenPods is part of the description of sessions from pods to pods, which have no NAT.
const betweenPods = " to pod "

// sessions are TCP connections of pods. Packets between pods are for tests that say that none is lost: a lost one of TCP is
// sent again.
type sessions struct {
	*cluster
	pods    map[string]world.Endpoint
	all     map[string]*probe.Session // by description
	from    map[string]probe.Probe    // by description
	packets map[string]*probe.Packets // by description
	dropped int                       // drops before the first packet
	routes  *routeChanges             // since the first packet
}

// newSessions creates pods on nodes. A pod is the backend of a Service of its name.
func (c *cluster) newSessions(nodes map[string]string) *sessions {
	c.Helper()
	for name, node := range nodes {
		_, err := c.Kube.CreatePod(c.ctx, "default", name, node, func(p *corev1.Pod) { p.Labels = map[string]string{world.AppLabel: name} })
		c.must(err)
	}
	return c.gather(nodes)
}

// gather waits until pods run.
func (c *cluster) gather(nodes map[string]string) *sessions {
	c.Helper()
	s := &sessions{c, map[string]world.Endpoint{}, map[string]*probe.Session{}, map[string]probe.Probe{}, map[string]*probe.Packets{}, 0, nil}
	for name := range nodes {
		s.pods[name] = c.await(name)
	}
	return s
}

// ring opens sessions from each of some pods to the next one.
func (s *sessions) ring(names ...string) {
	s.Helper()
	for from, to := range pairs(names) {
		for _, a := range s.pods[to].Addresses {
			s.open(s.pods[from], from+betweenPods+to, probe.Address(a, kubelet.DefaultPort))
		}
	}
}

// pairs are each of some pods with the next one, in a ring.
func pairs(names []string) iter.Seq2[string, string] {
	return func(yield func(from, to string) bool) {
		for i, from := range names {
			if !yield(from, names[(i+1)%len(names)]) {
				return
			}
		}
	}
}

// countPackets sends packets between the pods of ring, too: goOn fails the test if one is lost.
func (s *sessions) countPackets(names ...string) {
	s.Helper()
	s.dropped, s.routes = s.drops(), s.followRoutes()
	for from, to := range pairs(names) {
		for _, a := range s.pods[to].Addresses {
			way := probe.Probe{Netns: s.pods[from].Netns, Network: "icmp", Address: probe.Address(a, 0)}
			_, err := way.Until(s.ctx)
			s.must(err)
			p, err := way.Ping()
			s.must(err)
			s.Cleanup(p.Close)
			s.packets[fmt.Sprintf("packets of %s%s%s, %v", from, betweenPods, to, a)] = p
		}
	}
}

// toService makes a Service of a pod, and opens sessions to it: from pods and hosts, and from outside by NodePorts. Pods
// also connect to the outside.
func (s *sessions) toService(name string) {
	s.Helper()
	service, err := s.CreateService(s.ctx, name, kubelet.DefaultPort, 1, nil)
	s.must(err)
	service.Backends = []world.Endpoint{s.pods[name]}
	s.must(s.AwaitServices(s.ctx, []world.Service{service}))
	hosts, err := s.ServeHosts()
	s.must(err)
	s.Cleanup(hosts.Close)
	for from, pod := range s.pods {
		s.open(pod, from+" to the Service", probe.Address(service.ClusterIPs[0], world.ServicePort))
		s.open(pod, from+" to the outside", probe.Address(hosts.Outside.Addresses[0], kubelet.DefaultPort))
	}
	for _, n := range hosts.Nodes {
		s.open(n, n.Name+" to the Service", probe.Address(service.ClusterIPs[0], world.ServicePort))
		s.open(n, n.Name+" to "+name, probe.Address(s.pods[name].Addresses[0], kubelet.DefaultPort))
		s.open(hosts.Outside, "outside to the NodePort of "+n.Name, probe.Address(n.Addresses[0], service.NodePorts["tcp"]))
	}
}

// open opens a session until the end of the test.
func (s *sessions) open(from world.Endpoint, what string, to netip.AddrPort) {
	s.Helper()
	s.start(fmt.Sprintf("%s, %v", what, to), probe.Probe{Netns: from.Netns, Network: "tcp", Address: to})
}

// start opens a session with a description.
func (s *sessions) start(what string, p probe.Probe) {
	s.Helper()
	_, err := p.Until(s.ctx)
	s.must(err)
	session, err := p.Open(s.ctx)
	s.must(err)
	s.Cleanup(func() { session.Close() })
	s.all[what], s.from[what] = session, p
}

// pause closes sessions with some descriptions. resume opens them again.
func (s *sessions) pause(some func(description string) bool) (resume func()) {
	s.Helper()
	paused := map[string]probe.Probe{}
	for what, p := range s.from {
		if some(what) {
			s.all[what].Close()
			delete(s.all, what)
			paused[what] = p
		}
	}
	return func() {
		s.Helper()
		for what, p := range paused {
			s.start(what, p)
		}
	}
}

// goOn waits until all sessions are answered, and fails the test if one was ever disturbed, or if a packet is lost. It
// prints then what the masters say about gateways: a session to the outside ends when it moves to another gateway.
func (s *sessions) goOn(after string) {
	s.Helper()
	before := s.Failed()
	defer func() {
		if s.Failed() && !before {
			lines, _ := s.Master().Script(s.ctx, "grep -hi gateway /var/log/openvswitch/*.log /var/log/ovn-kubernetes/*.log | tail -n 40")
			s.Log(lines)
		}
	}()
	for what, session := range s.all {
		now := session.Typed()
		s.eventually(what, func() error {
			if session.Typed().Lines == now.Lines {
				return errors.New("no answer")
			}
			return nil
		})
		if err := session.Undisturbed(now); err != nil {
			s.Errorf("after %s: %s: %v", after, what, err)
		}
	}
	s.losesNothing(after)
}

// losesNothing fails the test for each pair of pods with a lost packet. One that is late is not lost. On a busy machine
// ovs-vswitchd, as userspace datapath, may be too slow to read all packets: those that the kernel counts as dropped are none of
// the network's, and neither are those of a moment in which ovs-vswitchd has no routes.
func (s *sessions) losesNothing(after string) {
	s.Helper()
	lost, all := map[string]error{}, 0
	for what, p := range s.packets {
		ctx, cancel := context.WithTimeout(s.ctx, limit.Of(packetTimeout))
		sent, err := p.Lost(ctx)
		cancel()
		others := slices.DeleteFunc(slices.Clone(sent), s.routes.near)
		switch all += len(others); {
		case len(others) > 0:
			lost[what] = err
		case len(sent) > 0:
			s.Logf("after %s: %s: %v, while Open vSwitch read the routes of a host anew", after, what, err)
		case err != nil:
			s.Errorf("after %s: %s: %v", after, what, err)
		}
	}
	dropped := 0
	if all > 0 {
		dropped = s.drops() - s.dropped
	}
	for what, err := range lost {
		say := s.Errorf
		if all <= dropped {
			say = s.Logf
		}
		say("after %s: %s: %v; the kernel dropped %d packets of all pairs that no program read in time", after, what, err, dropped)
	}
}

var dropsOfSocket = regexp.MustCompile(`skmem:\(.*,d([0-9]+)\)`)

// drops is the number of packets that the kernel dropped at sockets of hosts and pods: those of Open vSwitch's interfaces, and
// those for answers.
func (s *sessions) drops() (all int) {
	s.Helper()
	var where []string
	for _, n := range s.Nodes {
		where = append(where, n.Netns())
	}
	for _, p := range s.pods {
		where = append(where, p.Netns)
	}
	for _, netns := range where {
		out, err := exec.CommandContext(s.ctx, "nsenter", "--net="+netns, "ss", "--packet", "--raw", "--all", "--numeric", "--memory").CombinedOutput()
		s.must(err)
		for _, m := range dropsOfSocket.FindAllSubmatch(out, -1) {
			n, err := strconv.Atoi(string(m[1]))
			s.must(err)
			all += n
		}
	}
	return all
}

// silence is the longest time that any session waited for an answer.
func (s *sessions) silence() (longest time.Duration) {
	for _, session := range s.all {
		longest = max(longest, session.Typed().Silence)
	}
	return longest.Round(time.Millisecond)
}

// close ends all sessions and packets.
func (s *sessions) close() {
	for _, session := range s.all {
		session.Close()
	}
	for _, p := range s.packets {
		p.Close()
	}
}
