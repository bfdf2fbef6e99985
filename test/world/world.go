// Package world creates a complete cluster of real components: a Kubernetes control
// plane, and a master and minions as hosts with Open vSwitch and OVN. The project's
// programs run on the hosts, started by the commands of the documentation.
//
// It takes no *testing.T, so tests and the demo can use it. All processes end with
// the program that created the cluster, even if it is killed.
package world

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"ovn-k8s/test/build"
	"ovn-k8s/test/host"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/probe"
)

// caFile is the default path of the API server's CA certificate in all programs.
const caFile = "/etc/openvswitch/k8s-ca.crt"

// helperTokenFile has the gateway helper's own token; its path is the documentation's.
const helperTokenFile = "/etc/openvswitch/ovn-k8s-gateway-helper.token"

// Pidfiles of a node's gateway helper, and of the master's watcher.
const (
	HelperPidfile  = "/var/run/openvswitch/ovn-k8s-gateway-helper.pid"
	WatcherPidfile = "/var/run/openvswitch/ovn-k8s-watcher.pid"
)

// Subnets of a dual-stack cluster.
const (
	ClusterSubnets = "10.128.0.0/14,fd01::/48"
	ServiceSubnets = "172.30.0.0/16,fd02::/112"
)

// Options configure New.
type Options struct {
	// Dir keeps the files of the control plane and of the databases and, after
	// Close, the hosts' logs. Default: a temporary directory, removed by Close.
	Dir string
	// Minions is the number of hosts in addition to the master. Default: 2.
	Minions int
	// Kube is an existing control plane, started with KubeOptions. Close does not
	// stop it. If it is nil, New starts one.
	Kube *kubetest.Cluster
	// Together has the watcher and the gateway helper of the master run in one process.
	Together bool
	// OVNKube has ovnkube build the cluster, in place of the other programs. Nodes have subnets after StartKubelets.
	OVNKube bool
	// Masters is the number of masters of ovnkube, on the first hosts, each in a process of its own beside that of the node.
	// Default: the first host has one process with both roles.
	Masters int
	// Clustered has every host run a member of the databases' RAFT clusters.
	Clustered bool
	// Root has Open vSwitch and OVN of the hosts, if not this machine: see host.Upgrade.
	Root string
	// Log receives a line for each step and each command. It may be nil.
	Log func(line string)
}

// A World is a cluster.
type World struct {
	Kube    *kubetest.Cluster
	Fabric  *host.Fabric
	Central *ovntest.Central
	// Nodes are "master", "minion1", "minion2" and so on.
	Nodes []*Node
	// Outside is a host behind the hosts' router. It is not part of the cluster.
	Outside *host.Host

	dir       string
	remove    bool
	ownKube   bool
	together  bool
	ovnkube   bool
	masters   int
	clustered bool
	api       string // the API server's URL for hosts
	log       func(format string, args ...any)
}

// A Node is a host of the cluster.
type Node struct {
	*host.Host
	// Subnets are the pod subnets, comma separated, in the format of the commands' options.
	Subnets string
	// Management are the addresses of its management port, IPv4 and IPv6: the
	// second of each subnet.
	Management []netip.Addr
	// Kubelet is nil until StartKubelets.
	Kubelet *kubelet.Kubelet

	process   string   // with the gateway helper, if it is another one
	masterToo bool     // the process is also ovnkube's master
	args      []string // more of ovnkube

	helperArgs []string // of the last StartHelper
}

// Missing names a prerequisite of New missing on this machine, or is "".
func Missing() string {
	for _, missing := range []string{host.Missing(), ovntest.Missing(), kubetest.Missing()} {
		if missing != "" {
			return missing
		}
	}
	return ""
}

// Build builds the project's programs, and more packages, from this source tree, for
// Install, and returns their directory.
func Build(ctx context.Context, more ...string) (bin string, err error) {
	var packages []string
	for _, p := range append(Programs(), more...) {
		packages = append(packages, "./"+p)
	}
	return build.Run(ctx, build.Target{Module: ".", Packages: packages})
}

// Programs are the names of the project's programs, as Install expects them.
func Programs() []string {
	return []string{"ovn-k8s-overlay", "ovn-k8s-watcher", "ovn-k8s-cni-overlay", "ovn-k8s-gateway-helper", "ovn-k8s-util"}
}

// Roles is the package of a program for Options.Together. Install expects it under its last name.
const Roles = "test/roles"

// KubeOptions are the options of a control plane for a World.
func KubeOptions() kubetest.Options {
	return kubetest.Options{
		Advertise:   host.FabricIPv4().String(),
		Names:       []string{host.FabricIPv4().String(), host.FabricIPv6().String()},
		ServiceCIDR: ServiceSubnets,
	}
}

// New creates hosts with Open vSwitch and OVN, and sets their external_ids as
// documented. It starts none of the project's programs. The caller must Close the
// World.
func New(ctx context.Context, o Options) (*World, error) {
	w := &World{Kube: o.Kube, dir: o.Dir, ownKube: o.Kube == nil, together: o.Together, ovnkube: o.OVNKube, masters: o.Masters, clustered: o.Clustered}
	w.log = func(format string, args ...any) {
		if o.Log != nil {
			o.Log(fmt.Sprintf(format, args...))
		}
	}
	if o.Minions == 0 {
		o.Minions = 2
	}
	if err := (builder{w}).build(ctx, o); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
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

// StartWatcher starts the watcher on the master.
func (w *World) StartWatcher(ctx context.Context) error {
	if w.ovnkube {
		return ovnkube{w}.restart(ctx, w.Master())
	}
	if w.together {
		return w.Do(ctx, w.Master(), filepath.Base(Roles), daemonArgs...)
	}
	return w.Do(ctx, w.Master(), "ovn-k8s-watcher", append([]string{"--overlay"}, daemonArgs...)...)
}

// StartHelper starts or restarts the gateway helper on a node. A node sharing its
// NIC with a gateway needs more args.
func (w *World) StartHelper(ctx context.Context, n *Node, args ...string) error {
	if w.ovnkube {
		return ovnkube{w}.restart(ctx, n)
	}
	n.helperArgs = args
	if err := n.Kill(ctx, HelperPidfile); err != nil {
		return err
	}
	if n == w.Master() && w.together {
		return w.Do(ctx, n, filepath.Base(Roles), append(args, daemonArgs...)...)
	}
	return w.Do(ctx, n, "ovn-k8s-gateway-helper", slices.Concat(args, []string{"--k8s-api-token-file=" + helperTokenFile}, daemonArgs)...)
}

// daemonArgs are the arguments of all daemons.
var daemonArgs = []string{"--pidfile", "--log-file", "-vfile:info", "-vconsole:emer", "--detach"}

// ForgetFlows empties the datapath flow cache of every ovs-vswitchd. The userspace
// datapath of Open vSwitch 3.1 sometimes keeps a stale cached flow (its ct() action
// ends nowhere) after the bridge's OpenFlow flows have changed. A failure after
// ForgetFlows is an error in the OpenFlow flows.
func (w *World) ForgetFlows(ctx context.Context) error {
	return each(w, func(n *Node) error {
		_, _, err := n.Run(ctx, "ovs-appctl", "--target=ovs-vswitchd", "revalidator/purge")
		return err
	})
}

// KillWatcher kills the watcher with SIGKILL.
func (w *World) KillWatcher(ctx context.Context) error {
	if w.ovnkube {
		return w.Master().Kill(ctx, OVNKubePidfile)
	}
	return w.Master().Kill(ctx, WatcherPidfile)
}

// Check runs the watcher's comparison of the database and the API server, or that of ovnkube on the master. Its error ends
// with the differences.
func (w *World) Check(ctx context.Context) error {
	if w.ovnkube {
		return w.CheckOVNKube(ctx, w.Master())
	}
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

// StartKubelets starts a kubelet on every node, and waits until all nodes reach each other's management ports.
func (w *World) StartKubelets(ctx context.Context) error {
	err := each(w, func(n *Node) error {
		n.Kubelet = kubelet.New(kubelet.Options{Host: n.Host, Client: w.Kube.Client(), Log: w.log})
		err := n.Kubelet.Start(ctx)
		if err == nil && w.ovnkube {
			err = ovnkube{w}.learnSubnets(ctx, n)
		}
		return err
	})
	if err != nil {
		return err
	}
	w.log("kubelets on all nodes")
	return meet(ctx, w)
}

// meet waits until each node reaches the management ports of all others. The userspace datapath drops the first packet
// of a tunnel, while it asks for the MAC of the other end. If a connection through a gateway begins with this packet,
// it fails: see "Lost packets on the userspace datapath" in docs/services.md.
func meet(ctx context.Context, w *World) error {
	return each(w, func(n *Node) error {
		for _, other := range w.Nodes {
			p := probe.Probe{Netns: n.Netns(), Network: "icmp", Address: probe.Address(other.Management[0], 0)}
			if _, err := p.Until(ctx); err != nil {
				return fmt.Errorf("%s does not reach %s: %w", n.Name, other.Name, err)
			}
		}
		return nil
	})
}

// each runs do on all nodes in parallel.
func each(w *World, do func(*Node) error) error {
	var g errgroup.Group
	for _, n := range w.Nodes {
		g.Go(func() error { return do(n) })
	}
	return g.Wait()
}

// Close stops and removes everything except Options.Dir, if set, and Options.Kube.
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

// errNoSandbox means that no node of the World runs the pod.
var errNoSandbox = errors.New("the pod does not run")
