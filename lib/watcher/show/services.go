package show

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"ovn-k8s/lib/desired/loadbalancer"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/names"
)

// Services prints the frontends of Services, their endpoints, and the load balancers.
func Services(n World, args []string) (string, error) {
	units := unitsOf(n, service.UnitPrefix, args)
	if len(args) > 0 {
		if _, ok := n.Service(units[0]); !ok {
			return "", fmt.Errorf("%q is no Service: write NAMESPACE/NAME", args[0])
		}
	}
	var b strings.Builder
	t := NewTable(&b)
	fmt.Fprintln(t, "SERVICE\tFRONTEND\tENDPOINTS\tNOTES\tPROGRAMMED IN")
	for _, u := range units {
		if r, ok := n.Service(u); ok {
			describeService(t, r, n.ServiceSummaries(u))
			if _, err := n.Rows(u); err != nil {
				fmt.Fprintf(t, "%s\t! %v\t\t\t\n", r.Key, err)
			}
		}
	}
	err := t.Flush()
	return b.String(), err
}

// describeService writes a line for each frontend.
func describeService(t *tabwriter.Writer, r service.Resolved, all []loadbalancer.Summary) {
	if !r.Ours {
		fmt.Fprintf(t, "%s\t-\t\t\theadless, ExternalName or another proxy's\n", r.Key)
		return
	}
	for _, s := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.Key, s.Name, endpointsOf(s), strings.Join(s.Notes, "; "), strings.Join(balancerNames(s.Balancers), ", "))
	}
}

// endpointsOf lists the endpoints of a frontend.
func endpointsOf(s loadbalancer.Summary) string {
	var words []string
	for _, e := range s.Endpoints {
		word := e.AddrPort().String()
		if e.Node != "" {
			word += "@" + e.Node
		}
		if e.State == service.Draining {
			word += " (terminating)"
		}
		words = append(words, word)
	}
	if words == nil {
		return "none: refused"
	}
	return strings.Join(words, ", ")
}

// balancerNames are the names of load balancers, as ovn-nbctl lb-list prints them.
func balancerNames(ids []string) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = names.LoadBalancer(id)
	}
	return out
}
