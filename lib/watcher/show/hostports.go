package show

import (
	"fmt"
	"strings"

	"ovn-k8s/lib/desired/pod"
)

// HostPorts prints the frontends of hostPorts, and the places where they are programmed.
func HostPorts(n World, args []string) (string, error) {
	units := unitsOf(n, pod.UnitPrefix, args)
	if len(args) > 0 {
		if _, _, ok := n.HostPorts(units[0]); !ok {
			return "", fmt.Errorf("%q is no pod with hostPorts: write NAMESPACE/NAME of one outside the host's network that has its addresses", args[0])
		}
	}
	var b strings.Builder
	t := NewTable(&b)
	fmt.Fprintln(t, "POD\tNODE\tHOST PORT\tTO\tPROGRAMMED IN")
	for _, u := range units {
		node, p, ok := n.HostPorts(u)
		if !ok {
			continue
		}
		for _, d := range node.Frontends(p) {
			where := append(balancerNames(node.Balancers(p, d)), "the node's kernel")
			fmt.Fprintf(t, "%s\t%s\t%s/%s\t%s\t%s\n", p.Key, p.Node, d.At, d.Protocol, d.To, strings.Join(where, ", "))
		}
		for _, problem := range node.Problems(p, len(p.Problems)+len(p.HostPorts)) {
			fmt.Fprintf(t, "%s\t%s\t! %s\t\t\n", p.Key, p.Node, problem)
		}
	}
	err := t.Flush()
	return b.String(), err
}
