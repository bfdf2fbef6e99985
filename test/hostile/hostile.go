// Package hostile draws objects that an API server accepts and that are written
// to hurt, and measures what they cost the engine.
//
// A kind of object joins with a function of its own, as Policies in policies.go,
// and an entry in Kinds.
package hostile

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// MaxObject is the size of an object in bytes of JSON that API servers accept:
// etcd's limit of a request.
const MaxObject = 1_500_000

// A Case is objects that one author creates in this order.
type Case struct {
	Name    string
	Objects []any
}

// A Source draws cases.
type Source struct{ *rand.Rand }

// NewSource returns the source with a number.
func NewSource(seed uint64) Source { return Source{rand.New(rand.NewPCG(seed, 14))} }

// Kinds lists what Draw draws from, by name.
func Kinds() map[string]func(Source) Case {
	return map[string]func(Source) Case{"policy": Policies, "pod": Pods, "namespace": Namespaces}
}

// KindNames lists the kinds, sorted. A case has a seed, and the kind at the place of the
// seed modulo their number.
func KindNames() []string { return slices.Sorted(maps.Keys(Kinds())) }

// One draws one of a list.
func One[T any](s Source, list ...T) T { return list[s.IntN(len(list))] }

// Fits reports whether an API server accepts an object of this size.
func Fits(o any) bool {
	b, err := json.Marshal(o)
	return err == nil && len(b) <= MaxObject
}

// A Cost is what one change costs.
type Cost struct {
	Units   int // touched
	Rows    int // written or deleted
	Members int // references to rows that are there, added or removed
	Bytes   int // of the rows and members written, about
	Row     int // bytes of the largest row
	Alloc   int // bytes that the engine allocated
	Time    time.Duration
}

// String formats a cost on one line.
func (c Cost) String() string {
	return fmt.Sprintf("%6d units %6d rows %7d members %9d bytes, largest row %8d, allocated %6.1f MB, %6.0f ms",
		c.Units, c.Rows, c.Members, c.Bytes, c.Row, float64(c.Alloc)/1e6, float64(c.Time.Microseconds())/1e3)
}

// Max returns the larger of each figure.
func (c Cost) Max(d Cost) Cost {
	return Cost{
		max(c.Units, d.Units), max(c.Rows, d.Rows), max(c.Members, d.Members), max(c.Bytes, d.Bytes),
		max(c.Row, d.Row), max(c.Alloc, d.Alloc), max(c.Time, d.Time),
	}
}

// A Cluster is a World and the rows that it had.
type Cluster struct {
	World *desired.World
	rows  map[nb.Unit]map[string]row
}

// A row is what a row was.
type row struct {
	text string
	in   map[nb.Ref]bool
}

// bytesOfRef is the size of one reference in a transaction: ["uuid","…"].
const bytesOfRef = 48

// NewCluster returns a cluster of so many nodes and pods, in namespaces of 100
// pods, one pod in ten with a label of its own.
func NewCluster(nodes, pods int) (*Cluster, error) {
	c, err := topology.New(names.ClusterRouter, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/48")},
		[]netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")})
	if err != nil {
		return nil, err
	}
	c.Nodes, c.Chassis = map[string][]netip.Prefix{}, map[string]string{}
	for i := range nodes {
		c.Nodes[NodeName(i)] = []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/24", i/250, i%250)), netip.MustParsePrefix(fmt.Sprintf("fd00:0:0:%x::/64", i+1)),
		}
		c.Chassis[NodeName(i)] = fmt.Sprint("chassis-", i)
	}
	w := desired.NewWorld()
	w.Put(c)
	var all []any
	for i := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName(i), Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3)}}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.100.%d.%d", i/250, 1+i%250)}}
		all = append(all, n)
	}
	w.Replace(&corev1.Node{}, all)
	for i := range (pods + 99) / 100 {
		name := fmt.Sprint("namespace-", i)
		w.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name, "team": fmt.Sprint(i % 10)}}})
	}
	for i := range pods {
		w.Put(Pod(fmt.Sprint("namespace-", i/100), fmt.Sprint("pod-", i), i, nodes))
	}
	w.Put(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "namespace-0", Name: "closed"}}) // the first brings ACLs to all nodes
	w.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Tenant, Labels: map[string]string{corev1.LabelMetadataName: Tenant, "team": "0"}}})
	w.Settle()
	out := &Cluster{w, map[nb.Unit]map[string]row{}}
	out.account(w.Units())
	return out, nil
}

// Tenant is the namespace of the hostile author.
const Tenant = "tenant"

// NodeName is the name of node i.
func NodeName(i int) string { return fmt.Sprint("node-", i) }

// Pod is an ordinary pod.
func Pod(namespace, name string, i, nodes int) *corev1.Pod {
	labels := map[string]string{"app": fmt.Sprint("app-", i%100), "version": "v1", "tier": fmt.Sprint("tier-", i%4)}
	if i%10 == 0 {
		labels["statefulset.kubernetes.io/pod-name"] = name
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprint("uid-", namespace, "-", name)), Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: NodeName(i % nodes),
			Containers: []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{
				{Name: "http", ContainerPort: int32(8080 + i%3), Protocol: corev1.ProtocolTCP}, {Name: "metrics", ContainerPort: 9090, Protocol: corev1.ProtocolTCP},
			}}},
		},
	}
}

// Put measures what it costs to put an object.
func (c *Cluster) Put(o any) Cost { return c.measure(func() []nb.Unit { return c.World.Put(o) }) }

// Remove measures what it costs to remove an object.
func (c *Cluster) Remove(o any) Cost { return c.measure(func() []nb.Unit { return c.World.Remove(o) }) }

func (c *Cluster) measure(change func() []nb.Unit) Cost {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	dirty := map[nb.Unit]bool{}
	for _, units := range [][]nb.Unit{change(), c.World.Settle()} {
		for _, u := range units {
			dirty[u] = true
		}
	}
	touched := make([]nb.Unit, 0, len(dirty))
	for u := range dirty {
		_, _ = c.World.Rows(u) // of which the Problems are told elsewhere
		touched = append(touched, u)
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	cost := c.account(touched)
	cost.Units, cost.Time, cost.Alloc = len(touched), took, int(after.TotalAlloc-before.TotalAlloc)
	return cost
}

// account compares the rows of units with those that they had.
func (c *Cluster) account(units []nb.Unit) (cost Cost) {
	for _, u := range units {
		rows, _ := c.World.Rows(u)
		old, now := c.rows[u], make(map[string]row, len(rows))
		for _, r := range rows {
			key := r.Table + " " + r.ID
			bare := r
			bare.In = nil
			n := row{bare.String(), make(map[nb.Ref]bool, len(r.In))}
			for _, ref := range r.In {
				n.in[ref] = true
			}
			now[key] = n
			cost = cost.add(old[key], n)
			cost.Row = max(cost.Row, len(n.text))
		}
		for key, o := range old {
			if _, ok := now[key]; !ok {
				cost = cost.add(o, row{})
			}
		}
		if c.rows[u] = now; len(now) == 0 {
			delete(c.rows, u)
		}
	}
	return cost
}

// add adds what it costs to make one row another.
func (c Cost) add(old, now row) Cost {
	if old.text != now.text {
		c.Rows++
		c.Bytes += len(now.text) + bytesOfRef
	}
	changed := 0
	for ref := range now.in {
		if !old.in[ref] {
			changed++
		}
	}
	for ref := range old.in {
		if !now.in[ref] {
			changed++
		}
	}
	c.Members += changed
	c.Bytes += changed * bytesOfRef
	return c
}

// Size is how many rows the cluster has.
func (c *Cluster) Size() (rows int) {
	for _, r := range c.rows {
		rows += len(r)
	}
	return rows
}

// A Result is what a case costs: at worst one of its objects as it comes or goes,
// and an ordinary pod that comes while they are there.
type Result struct {
	Case            Case
	Object, Removal Cost
	Pod             Cost
	Problem         string // the first that units of the objects have
}

// Try puts the objects of a case, then an ordinary pod, and removes all of them.
func (c *Cluster) Try(k Case) Result {
	out := Result{Case: k}
	for _, o := range k.Objects {
		out.Object = out.Object.Max(c.Put(o))
	}
	out.Problem = c.problem()
	p := Pod("namespace-0", "further", 7, len(c.World.Cluster().Nodes))
	p.Labels["app"] = "app-new"
	out.Pod = c.Put(p)
	c.Remove(p)
	for i := range k.Objects {
		out.Removal = out.Removal.Max(c.Remove(k.Objects[len(k.Objects)-1-i]))
	}
	return out
}

func (c *Cluster) problem() string {
	for _, u := range c.World.Units() {
		if !strings.Contains(string(u), "/"+Tenant+"/") {
			continue
		}
		if _, err := c.World.Rows(u); err != nil {
			return string(u) + ": " + err.Error()
		}
	}
	return ""
}
