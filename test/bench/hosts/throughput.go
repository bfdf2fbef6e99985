package hosts

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/bench/run"
	"ovn-k8s/test/host"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

const (
	// workTime is the time of one kind of work on one path, in each round, and warmTime that of the same work before, not
	// measured: flows of the datapath go after 10 s without a packet, and the other paths take longer on an emulated CPU.
	workTime, warmTime = 2 * time.Second, time.Second
	// workPort is the servers' port.
	workPort = 9000
	// podMTU is that of pods, and of the interfaces of the yardsticks.
	podMTU = 1400
)

// A path leads from a client to a server. The yardstick of a path is one without Open vSwitch.
type path struct {
	name      string
	client    string // its network namespace
	address   netip.AddrPort
	yardstick int     // index in plainPaths
	aim       float64 // upper bound of the ratio of CPU times
}

// A work uses a path until a time, and returns the number of units done.
type work struct {
	name, unit string
	do         func(path, time.Time) (float64, error)
}

var works = []work{
	{"a TCP stream", "µs/MB", stream},
	{"requests on a TCP connection", "µs each", requests},
	{"TCP connections", "µs each", connections},
}

// MeasureThroughput compares paths of pods to the same without Open vSwitch: a Linux bridge on one node, and a Geneve
// tunnel of the kernel between two. It counts the CPU time of the whole machine, so nothing else may run on it. It needs
// the kernel's datapath.
func MeasureThroughput(ctx context.Context, b *run.Bench) error {
	if host.Datapath() != host.Kernel {
		b.Say("throughput: not on this datapath; make test-kernel PKG=test/bench ARGS='-run throughput'")
		return nil
	}
	w, end, err := b.World(ctx, "throughput", world.Options{})
	if err != nil {
		return err
	}
	defer end()
	if err := w.StartKubelets(ctx); err != nil {
		return err
	}
	plain, err := plainPaths(ctx, w)
	if err != nil {
		return err
	}
	pods, err := podPaths(ctx, w)
	if err != nil {
		return err
	}
	for _, work := range works {
		if err := measurePaths(ctx, b, w, work, pods, plain); err != nil {
			return err
		}
	}
	return nil
}

// measurePaths measures one kind of work on all paths, by turns.
func measurePaths(ctx context.Context, b *run.Bench, w *world.World, k work, pods []path, plain []path) error {
	all := append(append([]path{}, plain...), pods...)
	costs, upcalls := make([][]float64, len(all)), make([]float64, len(all))
	for round := range b.Rounds + 1 {
		var line []string
		for i, p := range all {
			cost, missed, err := k.measure(ctx, w, p)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", k.name, p.name, err)
			}
			if round > 0 { // the first one only fills caches
				costs[i] = append(costs[i], cost)
				upcalls[i] += missed / float64(b.Rounds)
			}
			line = append(line, fmt.Sprintf("%s %.1f", p.name, cost))
		}
		b.Say("throughput: %s, %s: %s", k.name, k.unit, strings.Join(line, ", "))
	}
	for i, p := range pods {
		b.Report.Beside(k.name+", "+p.name+": CPU time", k.unit, p.aim, costs[len(plain)+i], costs[p.yardstick]).
			Explain("yardstick: %s; upcalls in %v: %.0f", plain[p.yardstick].name, workTime, upcalls[len(plain)+i])
	}
	return nil
}

// measure returns the CPU time of the machine for one unit of work, in microseconds, and the number of packets without a
// flow in the kernel meanwhile.
func (k work) measure(ctx context.Context, w *world.World, p path) (cost, upcalls float64, err error) {
	if _, err := k.do(p, time.Now().Add(warmTime)); err != nil {
		return 0, 0, err
	}
	missedBefore, err := missed(ctx, w)
	if err != nil {
		return 0, 0, err
	}
	before, err := busy()
	if err != nil {
		return 0, 0, err
	}
	units, err := k.do(p, time.Now().Add(workTime))
	if err == nil && units == 0 {
		err = errors.New("nothing passed")
	}
	if err != nil {
		return 0, 0, err
	}
	after, err := busy()
	if err != nil {
		return 0, 0, err
	}
	missedAfter, err := missed(ctx, w)
	return float64((after - before).Microseconds()) / units, missedAfter - missedBefore, err
}

var lookups = regexp.MustCompile(`lookups: hit:\d+ missed:(\d+)`)

// missed is the number of packets without a flow in the datapaths of all nodes, since their start (ovs-dpctl(8)).
func missed(ctx context.Context, w *world.World) (total float64, err error) {
	for _, n := range w.Nodes {
		out, err := n.Script(ctx, "ovs-appctl dpctl/show")
		if err != nil {
			return 0, err
		}
		all := lookups.FindStringSubmatch(out)
		if all == nil {
			return 0, fmt.Errorf("no statistics of the datapath in %q", out)
		}
		count, err := strconv.ParseFloat(all[1], 64)
		if err != nil {
			return 0, err
		}
		total += count
	}
	return total, nil
}

// busy is the CPU time used by the machine since its start: the first line of /proc/stat, without idle, iowait and
// steal (proc_stat(5)), in ticks of 10 ms.
func busy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	var user, nice, system, idle, iowait, irq, softirq int64
	_, err = fmt.Sscanf(string(text), "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq)
	return time.Duration(user+nice+system+irq+softirq) * 10 * time.Millisecond, err
}

// podPaths makes pods and a Service: two pods on one node, one on the other.
func podPaths(ctx context.Context, w *world.World) ([]path, error) {
	client, err := createRunning(ctx, w, "client", w.Nodes[1], nil)
	if err != nil {
		return nil, err
	}
	near, err := createRunning(ctx, w, "near", w.Nodes[1], nil)
	if err != nil {
		return nil, err
	}
	far, err := createRunning(ctx, w, "far", w.Master(), map[string]string{world.AppLabel: "work"})
	if err != nil {
		return nil, err
	}
	for _, e := range []world.Endpoint{near, far} {
		if err := serveWork(ctx, e.Netns); err != nil {
			return nil, err
		}
	}
	s, err := w.CreateService(ctx, "work", workPort, 1, func(s *corev1.Service) {
		s.Spec.Ports = s.Spec.Ports[:1] // TCP
	})
	if err != nil {
		return nil, err
	}
	paths := []path{
		{"pod to pod on its node", client.Netns, probe.Address(near.Addresses[0], workPort), sameNode, 1 / 0.9},
		{"pod to pod on another node", client.Netns, probe.Address(far.Addresses[0], workPort), twoNodes, 1 / 0.9},
		{"pod to a ClusterIP", client.Netns, probe.Address(s.ClusterIPs[0], world.ServicePort), twoNodes, 1 / 0.85},
		{"pod to a NodePort", client.Netns, probe.Address(w.Nodes[1].IPv4(), s.NodePorts["tcp"]), twoNodes, 1 / 0.8},
	}
	for _, p := range paths {
		t := target{name: p.name, address: p.address, client: client}
		if err := t.await(ctx); err != nil {
			return nil, err
		}
	}
	_, err = w.Central.NBCtl("--wait=hv", "sync")
	return paths, err
}

// Indices of plainPaths.
const (
	sameNode = iota
	twoNodes
)

// plainSetup makes a Linux bridge with a tunnel to another host, $1, and two namespaces with addresses $2 and $3.
const plainSetup = `set -e
ip link add plain type bridge
ip link set plain up mtu $4
ip link add plaintunnel type geneve id 4711 remote $1 dstport 6082
ip link set plaintunnel master plain up mtu $4
for a in $2 $3; do
	n=plain-${a##*.}
	ip netns add $n
	ip link add $n mtu $4 type veth peer name eth0 mtu $4 netns $n
	ip link set $n master plain up
	ip -n $n addr add $a/24 dev eth0
	ip -n $n link set eth0 up
	ip -n $n link set lo up
done
`

// plainPaths makes the yardsticks between namespaces of the same hosts.
func plainPaths(ctx context.Context, w *world.World) ([]path, error) {
	here, there := w.Nodes[1], w.Master()
	for _, h := range []struct {
		on, peer *world.Node
		a, b     string
	}{{here, there, "10.99.0.1", "10.99.0.2"}, {there, here, "10.99.0.3", "10.99.0.4"}} {
		if _, err := h.on.Script(ctx, plainSetup, h.peer.IPv4().String(), h.a, h.b, fmt.Sprint(podMTU)); err != nil {
			return nil, err
		}
	}
	netns := func(n *world.Node, name string) string { return n.Path("/run/netns/" + name) }
	for _, server := range []string{netns(here, "plain-2"), netns(there, "plain-3")} {
		if err := serveWork(ctx, server); err != nil {
			return nil, err
		}
	}
	client := netns(here, "plain-1")
	return []path{
		sameNode: {name: "a Linux bridge", client: client, address: netip.MustParseAddrPort("10.99.0.2:9000")},
		twoNodes: {name: "a Geneve tunnel between Linux bridges", client: client, address: netip.MustParseAddrPort("10.99.0.3:9000")},
	}, nil
}

// serveWork starts a server in a network namespace, until ctx ends: it answers each line with a line, and takes in
// everything after an empty line, whose end it answers with the number of bytes.
func serveWork(ctx context.Context, netns string) error {
	var l net.Listener
	err := probe.In(netns, func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprint(":", workPort))
		return err
	})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answerWork(conn)
		}
	}()
	return nil
}

func answerWork(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewReader(conn)
	for {
		l, err := lines.ReadString('\n')
		switch {
		case err != nil:
			return
		case l == "\n":
			n, err := io.Copy(io.Discard, lines)
			if err == nil {
				fmt.Fprintln(conn, n)
			}
			return
		}
		if _, err := io.WriteString(conn, l); err != nil {
			return
		}
	}
}

// dial connects a client to its server.
func (p path) dial() (conn *net.TCPConn, err error) {
	err = probe.In(p.client, func() error {
		c, err := net.DialTimeout("tcp", p.address.String(), 10*time.Second)
		if err == nil {
			conn = c.(*net.TCPConn)
		}
		return err
	})
	return conn, err
}

// stream sends as much as possible and returns the megabytes received.
func stream(p path, end time.Time) (float64, error) {
	conn, err := p.dial()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	chunk := make([]byte, 128<<10)
	_, err = conn.Write([]byte("\n"))
	for err == nil && time.Now().Before(end) {
		_, err = conn.Write(chunk)
	}
	if err == nil {
		err = conn.CloseWrite()
	}
	if err != nil {
		return 0, err
	}
	var received float64
	_, err = fmt.Fscan(conn, &received)
	return received / 1e6, err
}

// requests asks one line after the other.
func requests(p path, end time.Time) (n float64, err error) {
	conn, err := p.dial()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for ; err == nil && time.Now().Before(end); n++ {
		if _, err = conn.Write([]byte("hello\n")); err == nil {
			_, err = answers.ReadSlice('\n')
		}
	}
	return n, err
}

// connections opens a connection for each line.
func connections(p path, end time.Time) (n float64, err error) {
	for ; err == nil && time.Now().Before(end); n++ {
		err = p.askOnce()
	}
	return n, err
}

// askOnce asks one line on a connection of its own. The client resets the connection, so that its port is free again
// at once.
func (p path) askOnce() error {
	conn, err := p.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		return err
	}
	if _, err := bufio.NewReader(conn).ReadSlice('\n'); err != nil {
		return err
	}
	return conn.SetLinger(0)
}
