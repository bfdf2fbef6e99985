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

// addOutside creates the host outside the cluster.
func (w builder) addOutside() (err error) {
	w.Outside, err = host.New(host.Options{Name: "outside", Fabric: w.Fabric, Outside: true, Logs: w.logs()})
	return err
}

// Hosts are all endpoints except pods.
type Hosts struct {
	// Outside is behind the nodes' router. Neighbour is that router, on the nodes'
	// own network.
	Outside, Neighbour Endpoint
	// Nodes have the nodes' own addresses. Management are the same nodes with the
	// addresses of their management ports.
	Nodes, Management []Endpoint

	servers []*probe.Server
}

// ServeHosts starts servers on all hosts, on the pods' default port and on the
// ports in more. The caller must Close the Hosts.
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

// Close stops the servers.
func (h *Hosts) Close() {
	for _, s := range h.servers {
		s.Close()
	}
}

// endpoint returns a host with its own addresses.
func endpoint(h *host.Host) Endpoint {
	e := Endpoint{Name: h.Name, Netns: h.Netns()}
	for _, a := range h.Addresses {
		e.Addresses = append(e.Addresses, a.Addr())
	}
	return e
}

// Modes of gateways, after the options of gateway-init.
const (
	Dedicated = "physical-interface" // eth1 belongs to OVN
	Shared    = "bridge-interface"   // the host and OVN share breth0 with eth0
	Local     = "local"              // through the host's routing
)

// Modes are all modes of gateways.
func Modes() []string { return []string{Dedicated, Shared, Local} }

// AddGateway makes a node a gateway with the documented commands; args are appended
// to gateway-init. It returns the source addresses of pods as seen outside.
func (w *World) AddGateway(ctx context.Context, n *Node, mode string, args ...string) ([]netip.Addr, error) {
	if w.ovnkube {
		return ovnkube{w}.gateway(ctx, n, mode, args...)
	}
	if mode == Shared {
		if err := w.StartHelper(ctx, n, "--physical-bridge=breth0", "--physical-interface=eth0"); err != nil {
			return nil, err
		}
	}
	return w.GatewayInit(ctx, n, mode, args...)
}

// GatewayInit makes a node a gateway without a change of its helper. It returns the same as AddGateway.
func (w *World) GatewayInit(ctx context.Context, n *Node, mode string, args ...string) ([]netip.Addr, error) {
	addresses, nextHops := n.Addresses, n.Gateways()
	command := []string{"gateway-init", "--cluster-ip-subnet=" + ClusterSubnets, "--node-name=" + n.Name}
	switch mode {
	case Dedicated:
		addresses, nextHops = n.Second()
		command = append(command, "--physical-interface=eth1")
	case Shared:
		command = append(command, "--bridge-interface=breth0")
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

// RemoveGateway removes a node's gateway with the documented commands.
func (w *World) RemoveGateway(ctx context.Context, n *Node) error {
	if w.ovnkube {
		if err := w.RestartOVNKube(ctx, n); err != nil {
			return err
		}
		return ovnkube{w}.awaitGateway(ctx, n, false)
	}
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

// Egress sends one request from each of from to an address, all in parallel. It
// returns the clients' names by source address seen, and the names of clients
// without an answer before ctx ended.
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
