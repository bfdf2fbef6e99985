package world

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"ovn-k8s/test/host"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
)

// addOutside makes the host that is not part of the cluster.
func (w *World) addOutside() (err error) {
	w.Outside, err = host.New(host.Options{Name: "outside", Fabric: w.Fabric, Outside: true, Logs: w.logs()})
	return err
}

// Hosts are all who are no pods.
type Hosts struct {
	// Outside is behind the nodes' router. Neighbour is that router, which is in
	// their own network.
	Outside, Neighbour Endpoint
	// Nodes are known by their own addresses, Management are the same nodes by
	// those of their management ports.
	Nodes, Management []Endpoint

	servers []*probe.Server
}

// ServeHosts lets all hosts answer as pods do, and on more ports. The Hosts' user
// must Close them.
func (w *World) ServeHosts(more ...int) (*Hosts, error) {
	h := &Hosts{Outside: endpoint(w.Outside), Neighbour: Endpoint{
		Name: "neighbour", Netns: w.Fabric.Netns(), Addresses: []netip.Addr{host.FabricIPv4(), host.FabricIPv6()},
	}}
	for _, n := range w.Nodes {
		node := endpoint(n.Host)
		node.Label = n.Name + " itself"
		h.Nodes = append(h.Nodes, node)
		h.Management = append(h.Management, Endpoint{Name: n.Name, Netns: n.Netns(), Addresses: n.Management})
	}
	for _, e := range append([]Endpoint{h.Outside, h.Neighbour}, h.Nodes...) {
		s, err := probe.Serve(e.Netns, e.Name, append(more, kubelet.DefaultPort)...)
		if err != nil {
			h.Close()
			return nil, err
		}
		h.servers = append(h.servers, s)
	}
	return h, nil
}

// Close ends the servers.
func (h *Hosts) Close() {
	for _, s := range h.servers {
		s.Close()
	}
}

// endpoint is a host by its own addresses.
func endpoint(h *host.Host) Endpoint {
	e := Endpoint{Name: h.Name, Netns: h.Netns()}
	for _, a := range h.Addresses {
		e.Addresses = append(e.Addresses, a.Addr())
	}
	return e
}

// Modes of gateways, as gateway-init has them.
const (
	Dedicated = "physical-interface" // eth1 is OVN's
	Shared    = "bridge-interface"   // breth0 with eth0 is the host's and OVN's
	Local     = "local"              // by the host's routing
)

// Modes are all modes of gateways.
func Modes() []string { return []string{Dedicated, Shared, Local} }

// AddGateway makes a node a gateway by the documentation's commands, of which
// args are added to gateway-init, and returns the addresses that the outside sees
// pods with.
func (w *World) AddGateway(ctx context.Context, n *Node, mode string, args ...string) ([]netip.Addr, error) {
	addresses, nextHops := n.Addresses, n.Gateways()
	command := []string{"gateway-init", "--cluster-ip-subnet=" + ClusterSubnets, "--node-name=" + n.Name}
	switch mode {
	case Dedicated:
		addresses, nextHops = n.Second()
		if err := n.HideFromKernel(ctx, "eth1"); err != nil {
			return nil, err
		}
		command = append(command, "--physical-interface=eth1")
	case Shared:
		command = append(command, "--bridge-interface=breth0")
		if err := w.StartHelper(ctx, n, "--physical-bridge=breth0", "--physical-interface=eth0"); err != nil {
			return nil, err
		}
	case Local:
		command = append(command, "--local")
	}
	if mode != Local {
		command = append(command, "--physical-ip="+join(addresses), "--default-gw="+join(nextHops))
	}
	if err := w.Do(ctx, n, "ovn-k8s-overlay", append(command, args...)...); err != nil {
		return nil, err
	}
	var seen []netip.Addr
	for _, a := range addresses {
		seen = append(seen, a.Addr())
	}
	return seen, nil
}

// RemoveGateway takes a node's gateway away by the documentation's commands.
func (w *World) RemoveGateway(ctx context.Context, n *Node) error {
	if err := w.Do(ctx, n, "ovn-k8s-overlay", "gateway-remove", "--node-name="+n.Name); err != nil {
		return err
	}
	return w.StartHelper(ctx, n)
}

func join[T fmt.Stringer](list []T) string {
	var text []string
	for _, e := range list {
		text = append(text, e.String())
	}
	return strings.Join(text, ",")
}

// Egress lets each of from ask an address once, all at the same time. It returns
// who was seen with which address, and who got no answer before the end of ctx.
func Egress(ctx context.Context, from []Endpoint, network string, to netip.Addr) (seen map[netip.Addr][]string, silent []string) {
	seen = map[netip.Addr][]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, f := range from {
		wg.Go(func() {
			p := probe.Probe{Netns: f.Netns, Network: network, Address: probe.Address(to, kubelet.DefaultPort)}
			answer, err := p.Once(ctx)
			var client netip.AddrPort
			if err == nil {
				_, client, err = probe.Answer(answer)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, f.Name)
				return
			}
			seen[client.Addr()] = append(seen[client.Addr()], f.Name)
		})
	}
	wg.Wait()
	slices.Sort(silent)
	return seen, silent
}
