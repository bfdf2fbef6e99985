package watcher

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// Commands are the watcher's commands for ovs-appctl(8).
func (w *Watcher) Commands() []daemon.Command {
	return []daemon.Command{
		{Name: "reconcile/show", Run: w.showQueue},
		{Name: "reconcile/resync", Run: w.resync},
		{Name: "memory/show", Run: w.showMemory},
		{Name: "topology/show", Run: w.showTopology},
		{Name: "node/show", Usage: "[NODE]", Max: 1, Run: w.showNodes},
		{Name: "gateway/show", Usage: "[GATEWAY]", Max: 1, Run: w.showGateways},
		{Name: "service/show", Usage: "[NAMESPACE/NAME]", Max: 1, Run: w.showServices},
		{Name: "hostport/show", Usage: "[NAMESPACE/NAME]", Max: 1, Run: w.showHostPorts},
		{Name: "pod/show", Usage: "[NAMESPACE/NAME]", Max: 1, Run: w.showPods},
		{Name: "policy/show", Usage: "NAMESPACE/POD", Min: 1, Max: 1, Run: w.showPolicies},
		{Name: "policy/check", Usage: "FROM TO[:PORT[/PROTOCOL]]", Min: 2, Max: 2, Run: w.checkPolicies},
	}
}

func newTable(b *strings.Builder) *tabwriter.Writer { return tabwriter.NewWriter(b, 0, 0, 2, ' ', 0) }

// standby is the reason why the engine does not run: another watcher has the Lease, or this one cannot get it.
func (w *Watcher) standby() error {
	lease := names.ConfigNamespace + "/" + names.WatcherLease
	if l := w.links.Load(); l != nil {
		err := l.cluster.ElectionError()
		switch leader := l.cluster.Leader(); {
		case err != nil && kube.Refuses(err):
			return fmt.Errorf("standby: the API server refuses this watcher's token or rights: %w; renew k8s-api-token or k8s-api-token-file", err)
		case err != nil:
			return fmt.Errorf("standby: cannot read the Lease %s: %w", lease, err)
		case leader != "" && leader != l.process.String():
			return fmt.Errorf("standby: %s", l.whoLeads(leader))
		}
	}
	return fmt.Errorf("standby: waiting for the Lease %s, which no other watcher is known to have", lease)
}

// answerTimeout bounds the time of a command to wait for the engine.
const answerTimeout = 10 * time.Second

// ask runs f in the engine's goroutine and returns its answer.
func (w *Watcher) ask(f func(*engine) (string, error)) (string, error) {
	e := w.engine.Load()
	if e == nil {
		return "", w.standby()
	}
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, 1)
	e.send(func() []nb.Unit {
		text, err := f(e)
		answers <- answer{text, err}
		return nil
	})
	select {
	case a := <-answers:
		return a.text, a.err
	case <-time.After(answerTimeout):
		return "", fmt.Errorf("the engine did not answer for %s: it waits for the database or the API server", answerTimeout)
	}
}

// showQueue prints the waiting and the failing units, with their errors.
func (w *Watcher) showQueue([]string) (string, error) {
	l := w.links.Load()
	e := w.engine.Load()
	if l == nil || e == nil {
		return "", w.standby()
	}
	s := e.loop.Status()
	remote := l.db.Remote()
	if remote == "" {
		remote = "not connected"
	}
	var b strings.Builder
	t := newTable(&b)
	if e.term != nil {
		fmt.Fprintf(t, "leader\t%s\n", e.term.Leader())
	}
	if l := e.lapse.Load(); l != nil {
		fmt.Fprintf(t, "lease\tlost since %s (%v): only gateways are written\n", l.since.UTC().Format(time.RFC3339), l.err)
	}
	fmt.Fprintf(t, "northbound\t%s\n", remote)
	fmt.Fprintf(t, "transactions\t%d\n", l.db.Transactions())
	fmt.Fprintf(t, "events waiting\t%d\n", s.Events)
	fmt.Fprintf(t, "units waiting\t%d\n", s.Waiting)
	fmt.Fprintf(t, "units in work\t%d\n", s.Syncing)
	fmt.Fprintf(t, "units failing\t%d\n", len(s.Failed))
	for _, f := range s.Failed {
		fmt.Fprintf(t, "  %s\t%v (for %s, tries %d, next in %s)\n", f.Key, f.Err,
			time.Since(f.Since).Round(time.Second), f.Tries, max(0, time.Until(f.Next)).Round(time.Second))
	}
	err := t.Flush()
	return b.String(), err
}

// resync compares everything again.
func (w *Watcher) resync([]string) (string, error) {
	e := w.engine.Load()
	if e == nil {
		return "", w.standby()
	}
	e.send(e.reconnected)
	return "comparing everything again\n", nil
}

// showTopology prints the cluster's subnets and its nodes.
func (w *Watcher) showTopology([]string) (string, error) {
	return w.ask(func(e *engine) (string, error) {
		c := e.world.Facts().Cluster
		var b strings.Builder
		t := newTable(&b)
		fmt.Fprintf(t, "cluster router\t%s\n", c.Router)
		fmt.Fprintf(t, "cluster subnets\t%s\n", ipnet.Join(c.Subnets))
		fmt.Fprintf(t, "join subnets\t%s\n", ipnet.Join(c.Join))
		for _, n := range c.NodeNames() {
			fmt.Fprintf(t, "node %s\t%s\n", n, ipnet.Join(c.Nodes[n]))
		}
		err := t.Flush()
		return b.String(), err
	})
}

// showPods prints the assignments of pods, or the reason why there is none.
func (w *Watcher) showPods(args []string) (string, error) {
	return w.ask(func(e *engine) (string, error) {
		units := slices.Sorted(slices.Values(e.world.Units()))
		if len(args) > 0 {
			units = []nb.Unit{nb.Unit(pod.UnitPrefix + args[0])}
			if _, ok := e.world.Pods.Pod(units[0]); !ok {
				return "", fmt.Errorf("%q is no pod that needs a port: write NAMESPACE/NAME of a scheduled pod outside the host's network", args[0])
			}
		}
		var b strings.Builder
		t := newTable(&b)
		fmt.Fprintln(t, "POD\tNODE\tMAC\tADDRESSES\tANNOTATION")
		for _, u := range units {
			p, ok := e.world.Pods.Pod(u)
			if !ok {
				continue
			}
			a, ok := e.world.Pods.Annotation(u)
			if !ok {
				_, err := e.world.Rows(u)
				fmt.Fprintf(t, "%s\t%s\t-\t-\t%v\n", p.Key, p.Node, err)
				continue
			}
			state := "written"
			if !a.Written() {
				state = "to be written"
			}
			if problem := e.world.Pods.Mismatch(u); problem != nil {
				state += ", " + problem.Message
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", p.Key, p.Node, a.Addresses.MAC, ipnet.Join(a.Addresses.IPs), state)
		}
		err := t.Flush()
		return b.String(), err
	})
}

// showPolicies prints the policies of a pod and their rules.
func (w *Watcher) showPolicies(args []string) (string, error) {
	return w.ask(func(e *engine) (string, error) { return e.world.ShowPolicies(nb.Unit(pod.UnitPrefix + args[0])) })
}

// checkPolicies prints whether policies allow a connection, and the rule that decides.
func (w *Watcher) checkPolicies(args []string) (string, error) {
	q, err := policy.ParseQuery(args[0], args[1])
	if err != nil {
		return "", err
	}
	return w.ask(func(e *engine) (string, error) { return e.world.Check(q) })
}
