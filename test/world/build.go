package world

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"ovn-k8s/test/host"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/ovntest"
)

// A builder creates the parts of a World that need none of the project's programs.
type builder struct{ *World }

func (w builder) build(ctx context.Context, o Options) (err error) {
	if w.dir == "" {
		if w.dir, err = os.MkdirTemp("", "world"); err != nil {
			return err
		}
		w.remove = true
	}
	if w.Fabric, err = host.NewFabric(); err != nil {
		return err
	}
	if w.Kube == nil {
		if err := w.startKube(ctx, o); err != nil {
			return err
		}
	}
	if err := w.forwardAPI(); err != nil {
		return err
	}
	for i := range o.Minions + 1 {
		if err := w.addNode(ctx, i, o.Root); err != nil {
			return err
		}
	}
	if err := w.addOutside(); err != nil {
		return err
	}
	w.log("%d hosts, and one outside", len(w.Nodes))
	return w.startOVN(ctx)
}

// startKube starts a control plane owned by the World.
func (w builder) startKube(ctx context.Context, o Options) (err error) {
	options := KubeOptions()
	options.Dir, options.Log = filepath.Join(w.dir, "kube"), o.Log
	if err := os.MkdirAll(options.Dir, 0o755); err != nil {
		return err
	}
	if w.Kube, err = kubetest.Start(ctx, options); err != nil {
		return err
	}
	w.log("Kubernetes control plane at %s", w.Kube.URL)
	return nil
}

// forwardAPI lets hosts reach the API server at the fabric's address.
func (w builder) forwardAPI() error {
	u, err := url.Parse(w.Kube.URL)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return err
	}
	_, err = w.Fabric.Forward(port, u.Host)
	w.api = "https://" + netip.AddrPortFrom(host.FabricIPv4(), uint16(port)).String()
	return err
}

// addNode creates host number i with the programs of a root file system, "" for this machine's. Number 0 is the master.
func (w builder) addNode(ctx context.Context, i int, root string) error {
	name := "master"
	if i > 0 {
		name = fmt.Sprintf("minion%d", i)
	}
	h, err := host.New(host.Options{Name: name, Fabric: w.Fabric, SecondNIC: true, Logs: w.logs()})
	if err != nil {
		return err
	}
	w.Nodes = append(w.Nodes, &Node{
		Host:    h,
		Subnets: fmt.Sprintf("10.128.%d.0/24,fd01:0:0:%x::/64", i, i),
		Management: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 128, byte(i), 2}),
			netip.MustParseAddr(fmt.Sprintf("fd01:0:0:%x::2", i)),
		},
	})
	if root == "" {
		return nil
	}
	return h.Upgrade(ctx, root)
}

// logs is the directory for the hosts' logs, or "" if Close removes it anyway.
func (w builder) logs() string {
	if w.remove {
		return ""
	}
	return filepath.Join(w.dir, "logs")
}

// startOVN starts Open vSwitch and ovn-controller on all hosts, and ovn-northd with
// both databases on the master or, clustered, on all hosts.
func (w builder) startOVN(ctx context.Context) (err error) {
	if err := each(w.World, func(n *Node) error { return n.StartOVS(ctx) }); err != nil {
		return err
	}
	if w.Central, err = w.startCentral(); err != nil {
		return err
	}
	if err := each(w.World, func(n *Node) error { return n.StartController(ctx, w.Central.SBTCP) }); err != nil {
		return err
	}
	w.log("Open vSwitch and OVN on all of them, the databases on the master")
	return nil
}

func (w builder) startCentral() (*ovntest.Central, error) {
	dir := filepath.Join(w.dir, "ovn")
	if !w.clustered {
		return w.Master().StartCentral(dir)
	}
	var hosts []*host.Host
	for _, n := range w.Nodes {
		hosts = append(hosts, n.Host)
	}
	return host.StartClusters(dir, hosts...)
}
