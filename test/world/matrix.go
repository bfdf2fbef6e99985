package world

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
)

const (
	// cellTimeout is how long one cell of a matrix may take until it works.
	cellTimeout = 10 * time.Second
	// cellsAtOnce is how many are tried at once.
	cellsAtOnce = 16
)

// An Endpoint is who asks or is asked in a Matrix.
type Endpoint struct {
	// Name is shown in the table, and what the endpoint answers.
	Name string
	// Netns is the file of its network namespace.
	Netns string
	// Addresses are at most one of each family.
	Addresses []netip.Addr
}

// A Cell is one way through the network.
type Cell struct {
	From, To Endpoint
	// Address is the one of To that was asked.
	Address netip.Addr
	// Err is nil if TCP, UDP and ICMP work and To saw From's own address.
	Err error
}

// AwaitPod waits until a pod runs, and returns it as an Endpoint.
func (w *World) AwaitPod(ctx context.Context, namespace, name string) (Endpoint, error) {
	pod, err := w.Kube.AwaitPod(ctx, namespace, name, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	if err != nil {
		return Endpoint{}, err
	}
	node := w.Node(pod.Spec.NodeName)
	if node == nil || node.Kubelet == nil {
		return Endpoint{}, fmt.Errorf("looking for pod %s/%s on %q: %w", namespace, name, pod.Spec.NodeName, errNoSandbox)
	}
	s := node.Kubelet.Sandbox(namespace, name)
	if s == nil {
		return Endpoint{}, fmt.Errorf("looking for pod %s/%s on %q: %w", namespace, name, pod.Spec.NodeName, errNoSandbox)
	}
	return Endpoint{Name: namespace + "/" + name, Netns: s.Netns, Addresses: s.Addresses}, nil
}

// ServeNodes lets every node answer at its management addresses, as pods do, and
// returns the nodes as Endpoints and what ends the servers.
func (w *World) ServeNodes() (nodes []Endpoint, stop func(), err error) {
	var servers []*probe.Server
	stop = func() {
		for _, s := range servers {
			s.Close()
		}
	}
	for _, n := range w.Nodes {
		server, err := probe.Serve(n.Netns(), n.Name, kubelet.DefaultPort)
		if err != nil {
			stop()
			return nil, nil, err
		}
		servers = append(servers, server)
		nodes = append(nodes, Endpoint{Name: n.Name, Netns: n.Netns(), Addresses: n.Management})
	}
	return nodes, stop, nil
}

// Matrix tries all ways from each of from to each address of each of to. A way
// that does not work at once is tried for some seconds.
func Matrix(ctx context.Context, from, to []Endpoint) []Cell {
	var cells []Cell
	for _, f := range from {
		for _, t := range to {
			for _, a := range t.Addresses {
				cells = append(cells, Cell{From: f, To: t, Address: a})
			}
		}
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, cellsAtOnce)
	for i := range cells {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			cells[i].Err = cells[i].try(ctx)
		})
	}
	wg.Wait()
	return cells
}

// try tries a cell by each protocol.
func (c Cell) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cellTimeout)
	defer cancel()
	for _, network := range []string{"icmp", "udp", "tcp"} {
		p := probe.Probe{Netns: c.From.Netns, Network: network, Address: probe.Address(c.Address, kubelet.DefaultPort)}
		answer, err := p.Until(ctx)
		if err != nil {
			return err
		}
		if network == "icmp" {
			continue
		}
		if err := c.judge(answer); err != nil {
			return fmt.Errorf("%v: %w", p, err)
		}
	}
	return nil
}

// judge checks that the right one answered, and saw the asking one's address.
func (c Cell) judge(answer string) error {
	name, seen, err := probe.Answer(answer)
	if err != nil {
		return err
	}
	if name != c.To.Name {
		return fmt.Errorf("answered by %q", name)
	}
	for _, a := range c.From.Addresses {
		if a == seen.Addr() {
			return nil
		}
	}
	if c.From.Netns == c.To.Netns {
		return nil // the kernel chooses among the host's own
	}
	return fmt.Errorf("seen as %v, not as one of %v", seen.Addr(), c.From.Addresses)
}

// Failed are the cells that do not work.
func Failed(cells []Cell) []Cell {
	var failed []Cell
	for _, c := range cells {
		if c.Err != nil {
			failed = append(failed, c)
		}
	}
	return failed
}

// Table shows cells as tables, one for each family.
func Table(cells []Cell) string {
	var tables []string
	for _, family := range []string{"IPv4", "IPv6"} {
		rows := map[string]string{family: family} // by who asks, the header by itself
		order := []string{family}
		for _, c := range cells {
			if c.Address.Is6() != (family == "IPv6") {
				continue
			}
			if rows[c.From.Name] == "" {
				rows[c.From.Name] = c.From.short()
				order = append(order, c.From.Name)
			}
			if len(order) == 2 { // the first row names the columns
				rows[family] += "\t" + c.To.short()
			}
			rows[c.From.Name] += "\t" + c.verdict()
		}
		var b strings.Builder
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, name := range order {
			fmt.Fprintln(t, rows[name])
		}
		_ = t.Flush() // into memory
		if len(order) > 1 {
			tables = append(tables, b.String())
		}
	}
	return strings.Join(tables, "\n")
}

// short is the endpoint's name without the usual namespace.
func (e Endpoint) short() string { return strings.TrimPrefix(e.Name, "default/") }

func (c Cell) verdict() string {
	if c.Err != nil {
		return "FAIL"
	}
	return "ok"
}
