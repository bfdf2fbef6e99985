package watcher

import (
	"context"
	"fmt"
	"strings"
	"time"

	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/watcher/otherlease"
	"ovn-k8s/lib/watcher/show"
)

// Commands are the watcher's commands for ovs-appctl(8).
func (w *Watcher) Commands() []daemon.Command {
	return []daemon.Command{
		{Name: "reconcile/show", Run: w.showQueue},
		{Name: "reconcile/resync", Run: w.resync},
		{Name: "memory/show", Run: show.Memory},
		{Name: "topology/show", Run: w.show(show.Topology)},
		{Name: "node/show", Usage: "[NODE]", Max: 1, Run: w.show(show.Nodes)},
		{Name: "gateway/show", Usage: "[GATEWAY]", Max: 1, Run: w.show(show.Gateways)},
		{Name: "service/show", Usage: "[NAMESPACE/NAME]", Max: 1, Run: w.show(show.Services)},
		{Name: "hostport/show", Usage: "[NAMESPACE/NAME]", Max: 1, Run: w.show(show.HostPorts)},
		{Name: "pod/show", Usage: "[NAMESPACE/NAME]", Max: 1, Run: w.show(show.Pods)},
		{Name: "policy/show", Usage: "NAMESPACE/POD", Min: 1, Max: 1, Run: w.show(show.Policies)},
		{Name: "policy/check", Usage: "FROM TO[:PORT[/PROTOCOL]]", Min: 2, Max: 2, Run: w.show(show.PolicyCheck)},
	}
}

// standby is the reason why the engine does not run: another watcher has the Lease, or this one cannot get it.
func (w *Watcher) standby() error {
	lease := names.WatcherLease
	if c := w.connections.Load(); c != nil {
		lease = c.lease().String()
		err, unable := c.cluster.ElectionError(), c.state.Unable()
		switch leader := c.cluster.Leader(); {
		case err != nil && kube.Refuses(err):
			return fmt.Errorf("standby: the API server refuses this watcher's token or rights: %w; renew k8s-api-token or k8s-api-token-file", err)
		case err != nil:
			return fmt.Errorf("standby: cannot read the Lease %s: %w", lease, err)
		case unable != nil:
			return fmt.Errorf("standby: %w", unable)
		case leader != "" && leader != c.process.String():
			return fmt.Errorf("standby: %s", c.whoLeads(leader))
		}
		if leader, err := c.db.Leader(); err == nil && otherlease.Other(leader, c.lease()) {
			return fmt.Errorf("standby: %s", otherlease.Text(leader, c.lease()))
		}
	}
	return fmt.Errorf("standby: waiting for the Lease %s, which no other watcher is known to have", lease)
}

// statusInterval is the time between two looks at what the watcher waits for.
const statusInterval = 2 * time.Second

// report reports what this watcher waits for, until ctx ends.
func (w *Watcher) report(ctx context.Context, c *connections) {
	tick := time.NewTicker(statusInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.wait(w.waits(c))
		}
	}
}

// waits is the reason why this watcher does not do all its work; "": it does, or another one leads.
func (w *Watcher) waits(c *connections) string {
	if text := kube.Waiting(c.cluster.ElectionError()); text != "" {
		return text
	}
	e := w.engine.Load()
	if e == nil {
		return ""
	}
	if l := e.lapse.Load(); l != nil {
		return l.String()
	}
	return e.may.Awaits()
}

// answerTimeout bounds the time of a command to wait for the engine.
const answerTimeout = 10 * time.Second

// show returns a command to print the network in the engine's goroutine.
func (w *Watcher) show(text func(show.World, []string) (string, error)) func([]string) (string, error) {
	return func(args []string) (string, error) {
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
			text, err := text(e.network, args)
			if awaits := e.may.Awaits(); awaits != "" {
				text = "! incomplete, waits for " + awaits + "\n" + text
			}
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
}

// showQueue prints the queue, and the pending and the failing units, with their errors.
func (w *Watcher) showQueue([]string) (string, error) {
	c := w.connections.Load()
	e := w.engine.Load()
	if c == nil || e == nil {
		return "", w.standby()
	}
	s := e.loop.Status()
	remote := c.db.Remote()
	if remote == "" {
		remote = "not connected"
	}
	var b strings.Builder
	t := show.NewTable(&b)
	if e.term != nil {
		fmt.Fprintf(t, "leader\t%s\n", e.term.Leader())
	}
	if l := e.lapse.Load(); l != nil {
		fmt.Fprintf(t, "lease\t%s\n", l)
	}
	if awaits := e.may.Awaits(); awaits != "" {
		fmt.Fprintf(t, "waits for\t%s\n", awaits)
	}
	fmt.Fprintf(t, "northbound\t%s\n", remote)
	fmt.Fprintf(t, "transactions\t%d\n", c.db.Transactions())
	fmt.Fprintf(t, "events waiting\t%d\n", s.Events)
	fmt.Fprintf(t, "units waiting\t%d\n", s.Waiting)
	fmt.Fprintf(t, "units in work\t%d\n", s.Syncing)
	show.Failed(t, s.Failed)
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
