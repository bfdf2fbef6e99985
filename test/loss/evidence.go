package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"ovn-k8s/test/world"
)

const (
	// stuckTime is the age at which a connection is inspected: its SYN was sent three times by then.
	stuckTime = 3200 * time.Millisecond
	// inspectInterval is the time between two inspections.
	inspectInterval = 300 * time.Millisecond
	// seenLate is the time by which the API's watch may tell of a change later to this program than to a kubelet.
	seenLate = time.Second
)

// inspect searches again and again for waiting and failed connections, in the connection tracking of all nodes, until
// ctx ends, and reports the failed ones when their history is known.
func (f *field) inspect(ctx context.Context, a *asker) {
	tick := time.NewTicker(inspectInterval)
	defer tick.Stop()
	var inspected []*try
	for {
		select {
		case <-ctx.Done():
			for _, t := range inspected {
				a.report(t)
			}
			return
		case <-tick.C:
		}
		for len(inspected) > 0 && time.Since(inspected[0].ended()) > seenLate {
			a.report(inspected[0])
			inspected = inspected[1:]
		}
		waiting, ended := a.waiting(stuckTime), a.takeEnded()
		inspected = append(inspected, ended...)
		if len(waiting)+len(ended) == 0 {
			continue
		}
		var wg sync.WaitGroup
		for _, n := range f.w.Nodes {
			wg.Go(func() { f.inspectNode(ctx, a, n, append(slices.Clip(waiting), ended...)) })
		}
		wg.Wait()
		if len(waiting) > 0 {
			f.save(ctx)
		}
	}
}

// save writes the nodes' state to the directory of the option -evidence.
func (f *field) save(ctx context.Context) {
	if f.evidence == "" {
		return
	}
	for _, n := range f.w.Nodes {
		for _, command := range []string{
			"ovs-appctl dpctl/dump-flows -m", "ovs-appctl dpctl/dump-conntrack", "ovs-appctl coverage/show", "ovs-ofctl -O OpenFlow15 dump-groups br-int",
			"ovs-appctl ofproto/list-tunnels; ovs-appctl tnl/neigh/show; ovs-appctl dpif/show", "ovs-ofctl dump-flows br-int",
		} {
			r, err := n.Try(command)
			if err != nil {
				continue
			}
			name := fmt.Sprintf("%s-%s-%s", clock(time.Now()), n.Name, strings.NewReplacer(" ", "_", "/", "_").Replace(command))
			_ = os.WriteFile(filepath.Join(f.evidence, name[:min(len(name), 80)]), []byte(r.Out+r.Err), 0o644)
		}
	}
}

// inspectNode adds to each connection the entries with its port in a node's connection tracking.
func (f *field) inspectNode(ctx context.Context, a *asker, n *world.Node, waiting []*try) {
	out, _, err := n.Run(ctx, "ovs-appctl", "--timeout=10", "dpctl/dump-conntrack")
	if err != nil {
		return
	}
	for _, t := range waiting {
		tuples := []string{fmt.Sprintf("sport=%d,", t.port)}
		if tuple := f.translated[n.Name].tuple(hop{uint16(t.port), t.place.to.Port()}); tuple != "" {
			tuples = append(tuples, tuple)
		}
		for l := range strings.Lines(out) {
			if slices.ContainsFunc(tuples, func(tuple string) bool { return strings.Contains(l, tuple) }) {
				a.note(t, n.Name+": "+strings.TrimSpace(l))
			}
		}
	}
}

// replySource is the endpoint in an entry.
var replySource = regexp.MustCompile(`reply=\(src=([^,]+),`)

// explain prints a connection with its evidence, and the history of its endpoint: by connection tracking, or else
// by the answer.
func (f *field) explain(t *try) {
	f.say("%s", t)
	endpoints := f.history.ofPod(t.by)
	for _, l := range t.evidence {
		f.say("    %s", l)
		if m := replySource.FindStringSubmatch(l); m != nil && f.history.isPod(m[1]) && !slices.Contains(endpoints, m[1]) {
			endpoints = append(slices.Clip(endpoints), m[1])
		}
	}
	for _, e := range endpoints {
		f.say("    %s: %s", e, f.history.of(e, t.began))
	}
	if len(endpoints) == 0 {
		f.say("    no endpoint is known: %s", f.history.around(t.began))
	}
	if t.cause = f.cause(t, endpoints); t.err != nil && t.cause != "" {
		f.say("    cause: %s", t.cause)
	}
}

// Causes of failures.
const (
	repeatedSYN = "a repeated SYN, which conntrack translated before the gateway's flows (docs/services.md)"
	podEnded    = "the end of its pod"
)

// entry has the node, source, destination and zone of an entry of connection tracking.
var entry = regexp.MustCompile(`^(\S+): tcp,orig=\(src=([^,]+),dst=([^,]+),.*,zone=(\d+)`)

// cause derives the cause of a failure from its evidence. After a repeated SYN the endpoint's node has the connection from
// two sources: with and without the gateway's SNAT.
func (f *field) cause(t *try, endpoints []string) string {
	sources := map[string]string{} // by node and zone
	for _, l := range t.evidence {
		m := entry.FindStringSubmatch(l)
		if m == nil || !slices.Contains(endpoints, m[3]) {
			continue
		}
		if other, ok := sources[m[1]+m[4]]; ok && other != m[2] {
			return repeatedSYN
		}
		sources[m[1]+m[4]] = m[2]
	}
	for _, e := range endpoints {
		seen := t.ended().Add(seenLate)
		if deleted, ok := f.history.deleted(e, seen); ok && seen.Sub(deleted) >= f.preStop {
			return podEnded
		}
	}
	return ""
}

// result prints the counts of a figure.
func (f *field) result(a *asker, what string) {
	tried, failed, again, late := a.stop()
	fmt.Fprintf(f.out, "%s: %s: %d connections, %d failed, %d sent packets again, %d others took more than %v\n", f.name, what, tried, failed, again, late, lateTime)
	causes := map[string]int{}
	for _, t := range a.done {
		if t.err != nil {
			causes[cmp.Or(t.cause, "unknown")]++
		}
	}
	for _, c := range slices.Sorted(maps.Keys(causes)) {
		fmt.Fprintf(f.out, "    cause: %s: %d failed\n", c, causes[c])
	}
}
