package world

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"ovn-k8s/docs"
	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/poll"
)

// OVNKube are the programs for Options.OVNKube, beside Programs. Install expects them.
func OVNKube() []string { return []string{"ovnkube", "ovn-k8s-cni-shim"} }

// Pidfiles of a node's ovnkube, and of a master with a process of its own.
const (
	OVNKubePidfile = "/var/run/openvswitch/ovnkube.pid"
	MasterPidfile  = "/var/run/openvswitch/ovnkube-master.pid"
)

// Log files of the same processes.
const (
	OVNKubeLog = "/var/log/openvswitch/ovnkube.log"
	MasterLog  = "/var/log/openvswitch/ovnkube-master.log"
)

// OVNKubeTokenFile has the token of a node's account, or of the masters'.
const OVNKubeTokenFile = "/etc/openvswitch/ovnkube.token"

const (
	ovnkubeNamespace = "ovn-kubernetes"
	masterAccount    = "ovnkube-master"
	masterTokenFile  = "/etc/openvswitch/ovnkube-master.token"
	// rangesOfNodes are ClusterSubnets with the lengths of nodes' subnets.
	rangesOfNodes = "10.128.0.0/14/24,fd01::/48/64"
)

// ovnkube is the part of a World for Options.OVNKube.
type ovnkube struct{ *World }

// start prepares all nodes, and starts ovnkube on them: on the master with both roles.
func (w ovnkube) start(ctx context.Context) error {
	if err := w.prepare(ctx); err != nil {
		return err
	}
	if err := w.startMasters(ctx); err != nil {
		return err
	}
	return each(w.World, func(n *Node) error { return w.restart(ctx, n) })
}

// startMasters starts the masters with processes of their own.
func (w ovnkube) startMasters(ctx context.Context) error {
	if w.masters == 0 {
		return nil
	}
	token, err := w.Kube.ServiceAccountToken(ctx, ovnkubeNamespace, masterAccount)
	if err != nil {
		return err
	}
	for _, n := range w.Nodes[:w.masters] {
		if err := os.WriteFile(n.Path(masterTokenFile), []byte(token), 0o600); err != nil {
			return err
		}
		if err := Masters(w).Restart(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// Masters are the masters of a World with processes of their own: see Options.Masters.
type Masters struct{ *World }

// Restart starts the master of a host, or kills and starts it.
func (m Masters) Restart(ctx context.Context, n *Node) error {
	if err := n.Kill(ctx, MasterPidfile); err != nil {
		return err
	}
	return m.Do(ctx, n, "ovnkube", append(m.options(n), daemonOf(MasterPidfile, MasterLog)...)...)
}

// Check runs the comparison of the master of a host, as CheckOVNKube: of the database.
func (m Masters) Check(ctx context.Context, n *Node) error { return compare(ctx, n, m.options(n)) }

// options are those of the master of a host.
func (m Masters) options(n *Node) []string {
	return append([]string{"-init-master=" + n.Name, "-k8s-api-token-file=" + masterTokenFile}, ovnkube(m).clusterOptions()...)
}

// bothRoles reports whether ovnkube on a host is the master, too.
func (w ovnkube) bothRoles(n *Node) bool { return n == w.Master() && w.masters == 0 }

// daemonOf are the options of a process in the background.
func daemonOf(pidfile, log string) []string {
	return []string{"-loglevel=4", "-logfile=" + log, "-pidfile=" + pidfile, "--detach"}
}

// prepare makes the accounts of all nodes, and gives the nodes their credentials.
func (w ovnkube) prepare(ctx context.Context) error {
	common, err := docs.Files.ReadFile("rbac-ovnkube.yaml")
	if err != nil {
		return err
	}
	if err := w.Kube.Apply(ctx, common); err != nil {
		return err
	}
	ca, err := os.ReadFile(w.Kube.CAFile)
	if err != nil {
		return err
	}
	for _, n := range w.Nodes {
		token, err := w.account(ctx, n)
		if err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(n.Path(caFile), ca, 0o644), os.WriteFile(n.Path(OVNKubeTokenFile), []byte(token), 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// account makes the account of a node, and returns a token. The master's is also that of the role master.
func (w ovnkube) account(ctx context.Context, n *Node) (string, error) {
	template, err := docs.Files.ReadFile("rbac-ovnkube-node.yaml")
	if err != nil {
		return "", err
	}
	account, manifest := "ovnkube-node-"+n.Name, strings.ReplaceAll(string(template), "NODE", n.Name)
	if w.bothRoles(n) {
		const inNamespace = "\n  namespace: "
		manifest = strings.ReplaceAll(manifest, account+inNamespace, masterAccount+inNamespace) // bindings keep their names
		account = masterAccount
	}
	if err := w.Kube.Apply(ctx, []byte(manifest)); err != nil {
		return "", err
	}
	return w.Kube.ServiceAccountToken(ctx, ovnkubeNamespace, account)
}

// RestartOVNKube starts ovnkube on a node, or kills and starts it, with more args.
func (w *World) RestartOVNKube(ctx context.Context, n *Node, args ...string) error {
	n.args = args
	return ovnkube{w}.restart(ctx, n)
}

// SetArguments sets more args of ovnkube on a node, for its next start.
func (n *Node) SetArguments(args ...string) { n.args = args }

// Arguments are the args of RestartOVNKube or SetArguments.
func (n *Node) Arguments() []string { return n.args }

// restart is RestartOVNKube with the args of the last one.
func (w ovnkube) restart(ctx context.Context, n *Node) error {
	if err := n.Kill(ctx, OVNKubePidfile); err != nil {
		return err
	}
	n.process, n.masterToo = "ovnkube", w.bothRoles(n) || slices.ContainsFunc(n.args, isMaster)
	return w.Do(ctx, n, "ovnkube", append(w.options(n), daemonOf(OVNKubePidfile, OVNKubeLog)...)...)
}

// RestartApart is RestartOVNKube for the master with a process for each role, and the args of the last one.
func RestartApart(ctx context.Context, w *World, n *Node) error {
	if err := n.Kill(ctx, OVNKubePidfile); err != nil {
		return err
	}
	all := ovnkube{w}.options(n)
	n.masterToo = false // its process of the gateway helper
	master := append(slices.DeleteFunc(slices.Clone(all), isNode), daemonOf(MasterPidfile, MasterLog)...)
	if err := w.Do(ctx, n, "ovnkube", master...); err != nil {
		return err
	}
	return w.Do(ctx, n, "ovnkube", append(slices.DeleteFunc(all, isMaster), daemonOf(OVNKubePidfile, OVNKubeLog)...)...)
}

func isMaster(option string) bool { return strings.HasPrefix(option, "-init-master=") }
func isNode(option string) bool   { return strings.HasPrefix(option, "-init-node=") }

// options are the roles of ovnkube on a node, and their options.
func (w ovnkube) options(n *Node) []string {
	all := []string{"-init-node=" + n.Name}
	if w.bothRoles(n) {
		all = append(all, "-init-master="+n.Name)
	}
	return slices.Concat(all, w.common(), n.args)
}

// common are the options of a node.
func (w ovnkube) common() []string {
	return append(w.clusterOptions(), "-k8s-api-token-file="+OVNKubeTokenFile, "-nodeport")
}

// clusterOptions are the options of all roles on all hosts.
func (w ovnkube) clusterOptions() []string {
	return []string{"-cluster-subnets=" + rangesOfNodes, "-k8s-service-cidr=" + ServiceSubnets, "-k8s-apiserver=" + w.api,
		"-k8s-cacert=" + caFile, "-nb-address=" + w.Central.NBTCP, "-sb-address=" + w.Central.SBTCP}
}

// CleanNode ends ovnkube on a node, and takes back what its node role did.
func (w *World) CleanNode(ctx context.Context, n *Node) error {
	if err := n.end(ctx, OVNKubePidfile); err != nil {
		return err
	}
	return w.Do(ctx, n, "ovnkube", append([]string{"-cleanup-node=" + n.Name}, ovnkube{w}.common()...)...)
}

// CheckOVNKube runs the comparison of ovnkube on a node: of the host and, on the master, of the database. Its error ends
// with the differences.
func (w *World) CheckOVNKube(ctx context.Context, n *Node) error {
	return compare(ctx, n, ovnkube{w}.options(n))
}

// compare runs ovnkube check on a node with options.
func compare(ctx context.Context, n *Node, options []string) error {
	stdout, _, err := n.Run(ctx, "ovnkube", append([]string{"check"}, options...)...)
	if err != nil {
		return fmt.Errorf("%s: %w: %s", n.Name, err, strings.TrimSpace(stdout))
	}
	return nil
}

// gateway makes a node a gateway: see AddGateway.
func (w ovnkube) gateway(ctx context.Context, n *Node, mode string, args ...string) ([]netip.Addr, error) {
	if len(args) > 0 {
		return nil, fmt.Errorf("ovnkube has no options %v of gateway-init", args)
	}
	if err := w.RestartOVNKube(ctx, n, GatewayOptions(n, mode)...); err != nil {
		return nil, err
	}
	if err := w.awaitGateway(ctx, n, true); err != nil {
		return nil, err
	}
	addresses := n.Addresses
	if mode == Dedicated {
		addresses, _ = n.Second()
	}
	var seen []netip.Addr
	for _, a := range addresses {
		seen = append(seen, a.Addr())
	}
	return seen, nil
}

// GatewayOptions are ovnkube's options for a gateway of a mode on a node; "" is none.
func GatewayOptions(n *Node, mode string) []string {
	switch mode {
	case Dedicated:
		_, nextHops := n.Second()
		return []string{"-gateway-mode=spare", "-gateway-interface=eth1", "-gateway-nexthop=" + join(nextHops)}
	case Shared:
		return []string{"-gateway-mode=shared", "-gateway-interface=breth0", "-gateway-nexthop=" + join(n.Gateways())}
	case Local:
		return []string{"-gateway-mode=local"}
	}
	return nil
}

// awaitGateway waits until the master has made, or removed, the gateway of a node.
func (w ovnkube) awaitGateway(ctx context.Context, n *Node, want bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit.Of(time.Minute))
	defer cancel()
	return poll.Until(ctx, func() error {
		found, err := w.Central.NBCtl("--bare", "--columns=name", "find", "Logical_Router", "name=GR_"+n.Name)
		if err == nil && (found != "") != want {
			err = fmt.Errorf("the gateway router of %s: %q", n.Name, found)
		}
		return err
	})
}

// learnSubnets waits for the subnets of a node that ovnkube gave it.
func (w ovnkube) learnSubnets(ctx context.Context, n *Node) error {
	watch, err := w.Kube.Client().CoreV1().Nodes().Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", n.Name).String()})
	if err != nil {
		return err
	}
	defer watch.Stop()
	for e := range watch.ResultChan() {
		o, ok := e.Object.(*corev1.Node)
		if !ok {
			return fmt.Errorf("watching node %s: %v", n.Name, e.Object)
		}
		subnets, err := nodesubnet.ParseAnnotations(o.Annotations)
		if err != nil || len(subnets) == 0 {
			continue
		}
		n.Subnets, n.Management = join(subnets), nil
		for _, s := range subnets {
			n.Management = append(n.Management, s.Masked().Addr().Next().Next())
		}
		return nil
	}
	return fmt.Errorf("node %s got no subnets: %w", n.Name, ctx.Err())
}

// Rejoin deletes the Node of a node without pods while its kubelet is stopped, waits until its switch is gone, and starts the
// kubelet again.
func Rejoin(ctx context.Context, w *World, n *Node) error {
	n.Kubelet.Stop()
	if err := w.Kube.Client().CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	err := poll.Until(ctx, func() error {
		found, err := w.Central.NBCtl("--bare", "--columns=name", "find", "Logical_Switch", "name="+n.Name)
		if err == nil && found != "" {
			err = fmt.Errorf("switch %s exists", found)
		}
		return err
	})
	if err == nil {
		err = n.Kubelet.Start(ctx)
	}
	if err != nil {
		return err
	}
	return ovnkube{w}.learnSubnets(ctx, n)
}
