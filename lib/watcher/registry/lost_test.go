package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

func (a *api) ReadConfigMap(context.Context, types.NamespacedName) (map[string]string, error) {
	return a.data, nil
}

func (a *api) Warn(_ runtime.Object, reason, _ string) { a.events = append(a.events, reason) }

// A keeper is a Copy with what its record lacks.
type keeper struct {
	*Copy
	*api
	out     bytes.Buffer
	current topology.Cluster
	nodes   map[string]bool
}

func newKeeper(a *api, current topology.Cluster) *keeper {
	k := &keeper{api: a, current: current, nodes: map[string]bool{}}
	for node := range current.Nodes {
		k.nodes[node] = true
	}
	k.Copy = New(a, ConfigMap("kube-system"), func(func() []nb.Unit) {}, func() (topology.Cluster, bool) { return k.current, true })
	log := logrus.New()
	log.SetOutput(&k.out)
	k.KeepLost(logrus.NewEntry(log), func() map[string]bool { return k.nodes })
	return k
}

// write writes the copy, if it differs from the last one.
func (k *keeper) write(t *testing.T) {
	t.Helper()
	if err := k.Sync(nil); err != nil {
		t.Fatal(err)
	}
	if len(k.jobs) > 0 {
		c := <-k.jobs
		k.copied(c, k.save(t.Context(), c))
		k.rested()
	}
}

// nodesOnly has n nodes, and can be read back: its nodes are no gateways.
func nodesOnly(t *testing.T, n int) topology.Cluster {
	t.Helper()
	c := largeTopology(t, n)
	c.Gateways = nil
	return c
}

// A copy that cannot be parsed is told. It is written anew if the database has the record, and what differs is kept. Without
// a record it may be needed: nobody touches it.
func TestAnUnreadableCopyIsWrittenAnew(t *testing.T) {
	const join, gone, removed = names.JoinSubnets, names.NodePrefix + "node-0001.example.com", names.NodePrefix + "removed"
	bad := nodesOnly(t, 2).Registry()
	bad[join], bad[removed], bad["mine"] = "x", "10.255.0.0/24", "y"
	bad[names.GatewayPrefix+"junk"] = "{"
	bad[names.LostPrefix+removed] = "z"
	k := newKeeper(&api{data: maps.Clone(bad)}, nodesOnly(t, 2))
	k.current = nodesOnly(t, 1)
	for range 2 {
		if c, err := k.Read(t.Context()); c != nil || !errors.As(err, new(Unreadable)) {
			t.Fatalf("without a record: %v, %v", c, err)
		}
		k.write(t)
	}
	if k.writes != 0 || !maps.Equal(k.data, bad) {
		t.Errorf("without a record: %v", k.data)
	}
	k.Present(false)
	c, err := k.Read(t.Context())
	if c != nil || err != nil {
		t.Fatalf("with a record: %v, %v", c, err)
	}
	k.Found(c)
	k.write(t)
	want := k.current.Registry()
	for key, value := range map[string]string{join: "x", gone: bad[gone], "mine": "y", names.GatewayPrefix + "junk": "{"} {
		want[names.LostPrefix+key] = value
	}
	if !maps.Equal(k.data, want) {
		t.Errorf("written: %v\nwant %v", k.data, want)
	}
	if events := fmt.Sprint(k.events); events != "[TopologyUnreadable TopologyLost]" || strings.Count(k.out.String(), "cannot be restored from it") != 1 {
		t.Errorf("Events %s, log:\n%s", events, &k.out)
	}

	next := newKeeper(&api{data: k.data}, nodesOnly(t, 2))
	c, err = next.Read(t.Context())
	if c == nil || err != nil {
		t.Fatalf("the next process: %v, %v", c, err)
	}
	next.Found(c)
	next.write(t)
	want = next.current.Registry()
	for key, value := range map[string]string{join: "x", "mine": "y", names.GatewayPrefix + "junk": "{"} {
		want[names.LostPrefix+key] = value
	}
	if !maps.Equal(next.data, want) || len(next.events) > 0 {
		t.Errorf("the next process: %v\nwant %v; Events %q", next.data, want, next.events)
	}
}

// A pass while a copy is written, or cannot be, costs the same in clusters of all sizes.
func TestWaitingCopiesCostNothing(t *testing.T) {
	cost := func(n int, what string) float64 {
		k := newKeeper(&api{}, largeTopology(t, n))
		saved := largeTopology(t, n-1)
		k.Found(&saved)
		if err := k.Sync(nil); err != nil || len(k.jobs) != 1 {
			t.Fatalf("%v, %d jobs", err, len(k.jobs))
		}
		if what == "refused" {
			k.copied(<-k.jobs, errors.New("refused"))
		}
		return testing.AllocsPerRun(10, func() { _ = k.Sync(nil) })
	}
	for _, what := range []string{"busy", "refused"} {
		if few, many := cost(10, what), cost(1000, what); many > few {
			t.Errorf("%s: %.0f allocations with 1 000 nodes, %.0f with 10", what, many, few)
		}
	}
}

// Nodes missing from a record read over a new connection are kept. A removal between two readings over one connection is final.
func TestLostNodesAreKeptAfterANewConnection(t *testing.T) {
	const lost = names.LostPrefix + names.NodePrefix + "node-0001.example.com"
	for anew, want := range map[bool]string{false: "", true: "10.128.1.0/24"} {
		k := newKeeper(&api{}, nodesOnly(t, 2))
		k.Found(nil)
		k.Present(true)
		k.write(t)
		k.current = nodesOnly(t, 1)
		k.Present(anew)
		k.write(t)
		if got := k.data[lost]; got != want || len(k.events) > 0 != anew {
			t.Errorf("anew %v: lost %q, want %q; Events %q", anew, got, want, k.events)
		}
	}
}

// A name too long for a key of the ConfigMap, recorded by an earlier release, takes nothing from the others.
func TestANameTooLongForTheCopy(t *testing.T) {
	long := strings.Repeat("a.", 120) + "a"
	current := nodesOnly(t, 2)
	current.Nodes[long] = current.Nodes["node-0001.example.com"]
	k := newKeeper(&api{}, current)
	k.Found(nil)
	k.write(t)
	want := nodesOnly(t, 2).Registry()
	if !maps.Equal(k.data, want) {
		t.Errorf("written: %v\nwant %v", k.data, want)
	}
	k.current = nodesOnly(t, 3)
	k.current.Nodes[long] = current.Nodes[long]
	k.write(t)
	if k.writes != 2 || k.data[names.NodePrefix+"node-0002.example.com"] == "" {
		t.Errorf("%d writes, the last one %v", k.writes, k.data)
	}
	if out := k.out.String(); strings.Count(out, "lacks 1 keys of more than 253 characters, such as "+names.NodePrefix+long) != 1 || fmt.Sprint(k.events) != "[TopologyNameTooLong]" {
		t.Errorf("Events %s, log:\n%s", k.events, out)
	}
}

// A record from a backup may also lack a gateway whose host is no node, and have former subnets of a node. Both are kept until
// the record has them again. Those of Nodes that are gone are not.
func TestLostGatewaysAndSubnetsAreKept(t *testing.T) {
	const node0, node1, node2 = "node-0000.example.com", "node-0001.example.com", "node-0002.example.com"
	full := largeTopology(t, 3)
	gone, alone := full.Gateways[node2], full.Gateways[node0]
	alone.Node, alone.Chassis = "", "chassis-gw"
	full.Gateways = map[string]topology.Gateway{node2: gone, "gw": alone}
	k := newKeeper(&api{}, full)
	delete(k.nodes, node2)
	k.Found(nil)
	k.Present(true)
	k.write(t)
	k.current = nodesOnly(t, 2)
	k.current.Nodes[node1] = full.Nodes[node2]
	k.Present(true)
	k.write(t)
	lost := map[string]string{names.NodePrefix + node1: "10.128.1.0/24", names.GatewayPrefix + "gw": full.Registry()[names.GatewayPrefix+"gw"]}
	if got := lostOf(k.data); !maps.Equal(got, lost) {
		t.Errorf("kept: %v\nwant %v", got, lost)
	}
	const text = "lacks what its copy has: gateway gw, node " + node1 + " (10.128.1.0/24, and the record has 10.128.2.0/24); if"
	if strings.Count(k.out.String(), text) != 1 || fmt.Sprint(k.events) != "[TopologyLost]" {
		t.Errorf("Events %s, log:\n%s", k.events, &k.out)
	}

	next := newKeeper(&api{data: k.data}, k.current)
	next.nodes = k.nodes
	c, err := next.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next.Found(c)
	next.Present(true)
	next.write(t)
	if got := lostOf(next.data); !maps.Equal(got, lost) || len(next.events) > 0 {
		t.Errorf("the next process keeps %v, Events %s", got, next.events)
	}
	next.current = nodesOnly(t, 2)
	next.current.Gateways = map[string]topology.Gateway{"gw": alone}
	next.write(t)
	if got := lostOf(next.data); len(got) > 0 {
		t.Errorf("recorded again, and kept: %v", got)
	}
}
