// Package world makes a whole cluster of real parts: a Kubernetes control plane,
// a master and minions as hosts with Open vSwitch and OVN, and on them the
// suite's programs, started by the commands of the documentation.
//
// It takes no *testing.T, so that tests and the demo use it. Everything ends with
// the program that made it, however that ends.
package world

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"ovn-k8s/docs"
	"ovn-k8s/test/build"
	"ovn-k8s/test/host"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/ovntest"
)

// caFile is where the programs look for the API server's CA certificate unless
// told otherwise.
const caFile = "/etc/openvswitch/k8s-ca.crt"

// helperTokenFile has the gateway helper's own token, as the documentation has it.
const helperTokenFile = "/etc/openvswitch/ovn-k8s-gateway-helper.token"

// Subnets of a dual-stack cluster.
const (
	ClusterSubnets = "10.128.0.0/14,fd01::/48"
	ServiceSubnets = "172.30.0.0/16,fd02::/112"
)

// Options say what to make.
type Options struct {
	// Dir keeps the control plane's and the databases' files and, after Close,
	// the hosts' logs: a temporary directory that Close removes unless set.
	Dir string
	// Minions is the number of hosts besides the master: 2 unless set.
	Minions int
	// Kube is a control plane to use, made with KubeOptions. Close leaves it
	// alone. nil makes one.
	Kube *kubetest.Cluster
	// Log receives a line per step and per command. It may be nil.
	Log func(line string)
}

// A World is a cluster.
type World struct {
	Kube    *kubetest.Cluster
	Fabric  *host.Fabric
	Central *ovntest.Central
	// Nodes are the master, called "master", and "minion1" and so on.
	Nodes []*Node
	// Outside is a host behind the hosts' router, with nothing of ours on it.
	Outside *host.Host

	dir     string
	remove  bool
	ownKube bool
	api     string // the API server's URL for hosts
	log     func(format string, args ...any)
}

// A Node is a host of the cluster.
type Node struct {
	*host.Host
	// Subnets are those of its pods, as the documentation's commands have them.
	Subnets string
	// Management are the addresses of its management port, IPv4 and IPv6: the
	// second of each subnet.
	Management []netip.Addr
	// Kubelet is nil until StartKubelets.
	Kubelet *kubelet.Kubelet
}

// Missing names what New would miss on this machine, or is "".
func Missing() string {
	for _, missing := range []string{host.Missing(), ovntest.Missing(), kubetest.Missing()} {
		if missing != "" {
			return missing
		}
	}
	return ""
}

// Build builds the suite's programs as they are in this source, for Install, and
// returns their directory.
func Build(ctx context.Context) (bin string, err error) {
	var packages []string
	for _, p := range Programs() {
		packages = append(packages, "./"+p)
	}
	return build.Run(ctx, build.Target{Module: ".", Packages: packages})
}

// Programs are the suite's, which Install looks for.
func Programs() []string {
	return []string{"ovn-k8s-overlay", "ovn-k8s-watcher", "ovn-k8s-cni-overlay", "ovn-k8s-gateway-helper", "ovn-k8s-util"}
}

// KubeOptions are what a control plane must be like for a World.
func KubeOptions() kubetest.Options {
	return kubetest.Options{
		Advertise:   host.FabricIPv4().String(),
		Names:       []string{host.FabricIPv4().String(), host.FabricIPv6().String()},
		ServiceCIDR: ServiceSubnets,
	}
}

// New makes a cluster of hosts with Open vSwitch and OVN, whose external_ids are
// set as the documentation asks for, but without any program of the suite. Its
// user must Close it.
func New(ctx context.Context, o Options) (*World, error) {
	w := &World{Kube: o.Kube, dir: o.Dir, ownKube: o.Kube == nil}
	w.log = func(format string, args ...any) {
		if o.Log != nil {
			o.Log(fmt.Sprintf(format, args...))
		}
	}
	if o.Minions == 0 {
		o.Minions = 2
	}
	if err := w.build(ctx, o); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

func (w *World) build(ctx context.Context, o Options) (err error) {
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
		if err := w.addNode(i); err != nil {
			return err
		}
	}
	if err := w.addOutside(); err != nil {
		return err
	}
	w.log("%d hosts, and one outside", len(w.Nodes))
	return w.startOVN(ctx)
}

// startKube makes a control plane of our own.
func (w *World) startKube(ctx context.Context, o Options) (err error) {
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
func (w *World) forwardAPI() error {
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

// addNode makes the host with number i, of which 0 is the master.
func (w *World) addNode(i int) error {
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
	return nil
}

// logs is where the hosts' logs go, if anybody can look at them later.
func (w *World) logs() string {
	if w.remove {
		return ""
	}
	return filepath.Join(w.dir, "logs")
}

// startOVN starts Open vSwitch on all hosts, OVN's central half on the master and
// ovn-controller on all.
func (w *World) startOVN(ctx context.Context) (err error) {
	if err := w.each(func(n *Node) error { return n.StartOVS(ctx) }); err != nil {
		return err
	}
	if w.Central, err = w.Master().StartCentral(filepath.Join(w.dir, "ovn")); err != nil {
		return err
	}
	if err := w.each(func(n *Node) error { return n.StartController(ctx, w.Central.SBTCP) }); err != nil {
		return err
	}
	w.log("Open vSwitch and OVN on all of them, the databases on the master")
	return nil
}

// APIServer is the API server's URL for hosts.
func (w *World) APIServer() string { return w.api }

// Master is the host with the databases and the watcher.
func (w *World) Master() *Node { return w.Nodes[0] }

// Node returns a node by its name, or nil.
func (w *World) Node(name string) *Node {
	for _, n := range w.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Install installs the suite's programs, which are in the directory bin, on all
// hosts and brings the network up: what an operator does by the documentation.
func (w *World) Install(ctx context.Context, bin string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	var files []string
	for _, p := range Programs() {
		files = append(files, filepath.Join(bin, p))
	}
	if err := w.each(func(n *Node) error { return n.Install(files...) }); err != nil {
		return err
	}
	if err := w.introduce(ctx); err != nil {
		return err
	}
	return w.initialize(ctx)
}

// introduce gives every host the addresses of the database and the API server,
// and its credentials.
func (w *World) introduce(ctx context.Context) error {
	rbac, err := docs.Files.ReadFile("rbac.yaml")
	if err != nil {
		return err
	}
	if err := w.Kube.Apply(ctx, rbac); err != nil {
		return err
	}
	ca, err := os.ReadFile(w.Kube.CAFile)
	if err != nil {
		return err
	}
	helper, err := w.Kube.ServiceAccountToken(ctx, "kube-system", "ovn-k8s-gateway-helper")
	if err != nil {
		return err
	}
	for i, n := range w.Nodes {
		account := "ovn-k8s-cni"
		if i == 0 {
			account = "ovn-k8s-watcher"
		}
		token, err := w.Kube.ServiceAccountToken(ctx, "kube-system", account)
		if err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(n.Path(caFile), ca, 0o644), os.WriteFile(n.Path(helperTokenFile), []byte(helper), 0o600)); err != nil {
			return err
		}
		ids := []string{
			fmt.Sprintf("external_ids:ovn-nb=%q", w.Central.NBTCP),
			fmt.Sprintf("external_ids:k8s-api-server=%q", w.api),
			fmt.Sprintf("external_ids:ovn-k8s-service-cidr=%q", ServiceSubnets),
		}
		w.log("%s# ovs-vsctl set Open_vSwitch . %s external_ids:k8s-api-token=…", n.Name, strings.Join(ids, " "))
		args := append([]string{"set", "Open_vSwitch", "."}, ids...)
		if err := n.VSCtl(ctx, append(args, fmt.Sprintf("external_ids:k8s-api-token=%q", token))...); err != nil {
			return err
		}
	}
	return nil
}

// initialize runs the commands that make the network, in the order of the
// documentation. The master runs pods, too, so it is also initialized as a minion.
func (w *World) initialize(ctx context.Context) error {
	master := w.Master()
	if err := w.Do(ctx, master, "ovn-k8s-overlay", "master-init", "--cluster-ip-subnet="+ClusterSubnets,
		"--master-switch-subnet="+master.Subnets, "--node-name="+master.Name); err != nil {
		return err
	}
	for _, n := range w.Nodes {
		if err := w.Do(ctx, n, "ovn-k8s-overlay", "minion-init", "--cluster-ip-subnet="+ClusterSubnets,
			"--minion-switch-subnet="+n.Subnets, "--node-name="+n.Name); err != nil {
			return err
		}
	}
	if err := w.StartWatcher(ctx); err != nil {
		return err
	}
	return w.each(func(n *Node) error { return w.StartHelper(ctx, n) })
}

// StartWatcher starts the watcher on the master.
func (w *World) StartWatcher(ctx context.Context) error {
	return w.Do(ctx, w.Master(), "ovn-k8s-watcher", "--overlay", "--pidfile", "--log-file",
		"-vfile:info", "-vconsole:emer", "--detach")
}

// StartHelper starts the gateway helper on a node, or starts it anew. On a node
// that shares a NIC with its gateway it needs more args.
func (w *World) StartHelper(ctx context.Context, n *Node, args ...string) error {
	if err := n.Kill(ctx, "/var/run/openvswitch/ovn-k8s-gateway-helper.pid"); err != nil {
		return err
	}
	return w.Do(ctx, n, "ovn-k8s-gateway-helper", append(args, "--k8s-api-token-file="+helperTokenFile, "--pidfile", "--log-file",
		"-vfile:info", "-vconsole:emer", "--detach")...)
}

// ForgetFlows has every ovs-vswitchd forget how it has treated packets so far. The
// userspace datapath of Open vSwitch 3.1 sometimes keeps a flow of its cache,
// with a ct() that leads nowhere, when the flows of the bridge have changed:
// what does not work afterwards either is wrong in those.
func (w *World) ForgetFlows(ctx context.Context) error {
	return w.each(func(n *Node) error {
		_, _, err := n.Run(ctx, "ovs-appctl", "--target=ovs-vswitchd", "revalidator/purge")
		return err
	})
}

// KillWatcher kills the watcher, as by kill -9.
func (w *World) KillWatcher(ctx context.Context) error {
	return w.Master().Kill(ctx, "/var/run/openvswitch/ovn-k8s-watcher.pid")
}

// Check runs the watcher's comparison of the database and the API server. Its
// error ends with what differs.
func (w *World) Check(ctx context.Context) error {
	stdout, _, err := w.Master().Run(ctx, "ovn-k8s-watcher", "--overlay", "--check")
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(stdout))
	}
	return nil
}

// Do logs a command and runs it on a node.
func (w *World) Do(ctx context.Context, n *Node, name string, args ...string) error {
	w.log("%s# %s %s", n.Name, name, strings.Join(args, " "))
	_, _, err := n.Run(ctx, name, args...)
	return err
}

// StartKubelets starts a kubelet on every node.
func (w *World) StartKubelets(ctx context.Context) error {
	err := w.each(func(n *Node) error {
		n.Kubelet = kubelet.New(kubelet.Options{Host: n.Host, Client: w.Kube.Client(), Log: w.log})
		return n.Kubelet.Start(ctx)
	})
	if err == nil {
		w.log("kubelets on all nodes")
	}
	return err
}

// each does the same on all nodes at once.
func (w *World) each(do func(*Node) error) error {
	var g errgroup.Group
	for _, n := range w.Nodes {
		g.Go(func() error { return do(n) })
	}
	return g.Wait()
}

// Close removes everything but Options.Dir, if that was set, and Options.Kube.
func (w *World) Close() {
	for _, n := range w.Nodes {
		if n.Kubelet != nil {
			n.Kubelet.Close()
		}
	}
	if w.Central != nil {
		w.Central.Close()
	}
	var wg sync.WaitGroup
	for _, n := range w.Nodes {
		wg.Go(n.Close)
	}
	wg.Wait()
	if w.Outside != nil {
		w.Outside.Close()
	}
	if w.Fabric != nil {
		w.Fabric.Close()
	}
	if w.Kube != nil && w.ownKube {
		w.Kube.Close()
	}
	if w.remove {
		_ = os.RemoveAll(w.dir)
	}
}

// errNoSandbox says that a pod does not run on any of our nodes.
var errNoSandbox = errors.New("the pod does not run")
