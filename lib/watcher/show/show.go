// Package show prints the state of a network for ovs-appctl(8): pods, Services, nodes, gateways, policies.
package show

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	"ovn-k8s/lib/desired/feature"
	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/watcher/health"
)

// A World is the state to print.
type World interface {
	health.World
	Units() []nb.Unit
	Rows(u nb.Unit) ([]nb.Row, error)
	Pod(u nb.Unit) (pod.Pod, bool)
	Annotation(u nb.Unit) (pod.Annotation, bool)
	Mismatch(u nb.Unit) *feature.Problem
	HostPorts(u nb.Unit) (hostport.Node, hostport.Pod, bool)
	Service(u nb.Unit) (service.Resolved, bool)
	ServiceSummaries(u nb.Unit) []loadbalancer.Summary
	AnsweredBy(gateway string) []netip.Addr
	ShowPolicies(u nb.Unit) (string, error)
	Check(q policy.Query) (string, error)
}

// NewTable returns a writer of aligned columns.
func NewTable(b *strings.Builder) *tabwriter.Writer { return tabwriter.NewWriter(b, 0, 0, 2, ' ', 0) }

// unitsOf lists the unit of the object that is asked for, or the units of all objects of a kind. A list takes long in a large
// cluster, and the engine waits for it.
func unitsOf(n World, prefix string, args []string) []nb.Unit {
	if len(args) > 0 {
		return []nb.Unit{nb.Unit(prefix + args[0])}
	}
	units := slices.DeleteFunc(n.Units(), func(u nb.Unit) bool { return !strings.HasPrefix(string(u), prefix) })
	slices.Sort(units)
	return units
}

// Topology prints the cluster's subnets and its nodes.
func Topology(n World, _ []string) (string, error) {
	c := n.Facts().Cluster
	var b strings.Builder
	t := NewTable(&b)
	fmt.Fprintf(t, "cluster router\t%s\n", c.Router)
	fmt.Fprintf(t, "cluster subnets\t%s\n", ipnet.Join(c.Subnets))
	fmt.Fprintf(t, "join subnets\t%s\n", ipnet.Join(c.Join))
	for _, n := range c.NodeNames() {
		fmt.Fprintf(t, "node %s\t%s\n", n, ipnet.Join(c.Nodes[n]))
	}
	err := t.Flush()
	return b.String(), err
}

// errUnassigned is the reason if addresses have not been assigned yet.
var errUnassigned = errors.New("not assigned yet")

// Pods prints the assignments of pods, or the reason why there is none.
func Pods(n World, args []string) (string, error) {
	units := unitsOf(n, pod.UnitPrefix, args)
	if len(args) > 0 {
		if _, ok := n.Pod(units[0]); !ok {
			return "", fmt.Errorf("%q is no pod that needs a port: write NAMESPACE/NAME of a scheduled pod outside the host's network", args[0])
		}
	}
	var b strings.Builder
	t := NewTable(&b)
	fmt.Fprintln(t, "POD\tNODE\tMAC\tADDRESSES\tANNOTATION")
	for _, u := range units {
		p, ok := n.Pod(u)
		if !ok {
			continue
		}
		a, ok := n.Annotation(u)
		if !ok {
			_, err := n.Rows(u)
			if err == nil {
				err = errUnassigned
			}
			fmt.Fprintf(t, "%s\t%s\t-\t-\t%v\n", p.Key, p.Node, err)
			continue
		}
		state := "written"
		if !a.Written() {
			state = "to be written"
		}
		if problem := n.Mismatch(u); problem != nil {
			state += ", " + problem.Message
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", p.Key, p.Node, a.Addresses.MAC, ipnet.Join(a.Addresses.IPs), state)
	}
	err := t.Flush()
	return b.String(), err
}

// Policies prints the policies of a pod and their rules.
func Policies(n World, args []string) (string, error) {
	return n.ShowPolicies(nb.Unit(pod.UnitPrefix + args[0]))
}

// PolicyCheck prints whether policies allow a connection, and the rule that decides.
func PolicyCheck(n World, args []string) (string, error) {
	q, err := policy.ParseQuery(args[0], args[1])
	if err != nil {
		return "", err
	}
	return n.Check(q)
}
