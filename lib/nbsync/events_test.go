package nbsync_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/facts"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/lib/nbsync/owned"
	"ovn-k8s/lib/ovsdb"
)

// A city is a large cluster of gateways: for each node 100 pods, 10 Services and 2 policies. 100 Services have a Local
// policy over an endpoint on each node, so the number of endpoints is linear in the nodes. One Service of 500 has affinity
// and a NodePort.
type city struct {
	*testing.B
	nodes int
	world *desired.World
	db    *ovsdb.DB
	sync  *nbsync.Sync
	up    chan struct{}
}

const (
	cityPods     = 100 // of a node
	cityServices = 10
	cityPolicies = 2
	citySpaces   = 100
	cityLocal    = 100 // in all
)

// BenchmarkEvents measures the watcher's cost of each kind of event, beside a real Northbound database without
// ovn-northd. OVNK8S_BENCH_NODES is the number of nodes.
func BenchmarkEvents(b *testing.B) {
	nodes, err := strconv.Atoi(os.Getenv("OVNK8S_BENCH_NODES"))
	if err != nil {
		nodes = 20
	}
	c, _, _ := open(b)
	c.StopNorthd()
	m, err := ovsdb.NBModel()
	if err != nil {
		b.Fatal(err)
	}
	var tables []ovsdb.Table
	for name, columns := range owned.Columns() {
		tables = append(tables, ovsdb.Table{Name: name, Columns: columns})
	}
	db, err := ovsdb.Open(b.Context(), ovsdb.Options{Name: "NB", Remotes: []string{c.NB}, Model: m, Tables: tables, Unindexed: true})
	if err != nil {
		b.Fatal(err)
	}
	y := &city{B: b, nodes: nodes, world: desired.NewWorld(), db: db, sync: &nbsync.Sync{DB: db, Compare: desired.Compare}, up: make(chan struct{}, 10)}
	defer y.sync.Follow(db)()
	defer db.Handle(y.sync.Handler(func(nb.Unit) {}))()
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = db.Run(ctx, func() { y.up <- struct{}{} }, nil)
	}()
	defer func() { cancel(); <-ended }()
	<-y.up
	for b.Loop() {
		y.timed("fill", y.fill)
		y.events()
		y.whole()
	}
}

// timed reports the time of a single call, the CPU time of this process, and the memory allocated. Other work of the
// machine changes the first much, the second a little, and the last not at all.
func (y *city) timed(what string, do func()) {
	y.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start, used := time.Now(), y.cpu()
	do()
	took, cpu := time.Since(start).Seconds(), y.cpu()-used
	runtime.ReadMemStats(&after)
	allocated := float64(after.TotalAlloc-before.TotalAlloc) / 1e6
	y.ReportMetric(took, "s/"+what)
	y.ReportMetric(cpu, "s-CPU/"+what)
	y.ReportMetric(allocated, "MB-allocated/"+what)
	y.Logf("%s: %.1f s, CPU %.1f s, %.0f MB allocated", what, took, cpu, allocated)
}

// cpu returns the CPU time of the process, in seconds (getrusage(2)).
func (y *city) cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		y.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// topology returns the cluster; gateway number other has another next hop.
func (y *city) topology(other int) topology.Cluster {
	c, err := topology.New(names.ClusterRouter, prefixes("10.0.0.0/8"), prefixes("100.64.0.0/16"))
	if err != nil {
		y.Fatal(err)
	}
	c.Chassis, c.Gateways = map[string]string{}, map[string]topology.Gateway{}
	for i := range y.nodes {
		node := fmt.Sprint("n", i)
		c.Nodes[node] = prefixes(fmt.Sprintf("10.%d.%d.0/24", i/250, i%250))
		c.Chassis[node] = "chassis-" + node
		g := topology.Gateway{
			Mode: topology.Physical, Interface: "eth1", Chassis: c.Chassis[node], MAC: "0a:00:00:00:00:01", Node: node, First: i == 0,
			IPs:      []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i / 250), byte(2 + i%250)}), 16)},
			NextHops: []netip.Addr{netip.AddrFrom4([4]byte{192, 168, 255, 254})},
			Join:     []netip.Addr{netip.AddrFrom4([4]byte{100, 64, byte((i + 2) / 256), byte((i + 2) % 256)})},
		}
		if i == other {
			g.MAC = "0a:00:00:00:00:02"
		}
		c.Gateways[node] = g
	}
	return c
}

func (y *city) space(i int, label string) *corev1.Namespace {
	name := fmt.Sprint("space", i%citySpaces)
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name, "team": label}}}
}

func (y *city) pod(i, app int) *corev1.Pod {
	p := newPod(fmt.Sprint("p", i), fmt.Sprint("n", i%y.nodes))
	p.Namespace, p.UID = y.space(i, "").Name, types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
	p.Labels = map[string]string{"app": fmt.Sprint("app-", app%20), "version": "v1"}
	return p
}

func (y *city) node(i int, address string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	return n
}

func (y *city) address(i int) string { return fmt.Sprintf("172.20.%d.%d", i/250, 1+i%250) }

func (y *city) policy(i, port int) *networkingv1.NetworkPolicy {
	p := fromNext(y.space(i, "").Name, i, map[string]string{"app": fmt.Sprint("app-", i/citySpaces%20)})
	if port > 0 {
		p.Spec.Ingress[0].From[0].PodSelector.MatchLabels = map[string]string{"app": fmt.Sprint("app-", port%20)}
	}
	return p
}

// service returns a Service and its endpoints, one of them at place move.
func (y *city) service(i, move int) (*corev1.Service, *discoveryv1.EndpointSlice) {
	name, port := fmt.Sprint("s", i), int32(8080)
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: fmt.Sprintf("172.16.%d.%d", i/250, 1+i%250), Ports: []corev1.ServicePort{{Port: 80}}},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new(string), Port: &port}},
	}
	endpoints := 10
	switch {
	case i%max(2, cityServices*y.nodes/cityLocal) == 1:
		endpoints, s.Spec.Type, s.Spec.ExternalTrafficPolicy = y.nodes, corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyLocal
		s.Spec.Ports[0].NodePort = int32(30000 + i/max(2, cityServices*y.nodes/cityLocal))
	case i%500 == 2:
		s.Spec.Type, s.Spec.SessionAffinity = corev1.ServiceTypeNodePort, corev1.ServiceAffinityClientIP
		s.Spec.Ports[0].NodePort = int32(31000 + i/500)
	}
	for e := range endpoints {
		n, host := (i+e)%y.nodes, 10+i%80
		if e == 0 {
			host += move
		}
		on := fmt.Sprint("n", n)
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", n/250, n%250, host)}, NodeName: &on})
	}
	return s, slice
}

// fill makes the World and writes all rows.
func (y *city) fill() {
	before := inUse()
	w := y.world
	w.Put(y.topology(-1))
	w.Put(y.space(0, "a"))
	var nodes []any
	for i := range y.nodes {
		nodes = append(nodes, y.node(i, y.address(i)))
	}
	w.Replace(&corev1.Node{}, slices.Values(nodes))
	for i := range citySpaces {
		w.Put(y.space(i, "a"))
	}
	for i := range y.nodes * cityPolicies {
		w.Put(y.policy(i, 0))
	}
	team := everywhere("b")
	team.Namespace, team.Spec.Ingress[0].From[0].NamespaceSelector.MatchLabels = y.space(0, "").Name, map[string]string{"team": "b"}
	w.Put(team)
	for i := range y.nodes * cityPods {
		w.Put(y.pod(i, i/citySpaces))
	}
	for i := range y.nodes * cityServices {
		s, slice := y.service(i, 0)
		w.Put(s)
		w.Put(slice)
	}
	w.Allocate()
	y.ReportMetric(inUse()-before, "MB/world")
	y.applyAll()
	y.ReportMetric(inUse()-before, "MB/all")
}

// inUse returns the heap in use, in MB. A closed connection needs a second collection.
func inUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// resident returns the resident memory of the process, in MB (proc(5)).
func (y *city) resident() float64 {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	var size, pages int
	if err == nil {
		_, err = fmt.Sscan(string(text), &size, &pages)
	}
	if err != nil {
		y.Fatal(err)
	}
	return float64(pages*os.Getpagesize()) / 1e6
}

// applyAll applies all units, as the loop does when everything is dirty. It returns the number of changed rows.
func (y *city) applyAll() (changed int) {
	for chunk := range slices.Chunk(slices.SortedFunc(slices.Values(y.world.Units()), desired.Compare), 20000) {
		changes, failed := y.sync.Apply(y.Context(), rowsOf(y.world, chunk))
		if changed += len(changes); len(failed) > 0 {
			u := slices.Min(slices.Collect(maps.Keys(failed)))
			y.Fatalf("%d units failed, as %s: %v", len(failed), u, failed[u])
		}
	}
	return changed
}

// events measures events of each kind, alternating with events to undo them.
func (y *city) events() {
	w := y.world
	y.kind("pod", 200, func(i int) []nb.Unit {
		if i%2 == 1 {
			return w.Remove(y.pod(y.nodes*cityPods+i-1, 0))
		}
		return w.Put(y.pod(y.nodes*cityPods+i, 0))
	})
	y.kind("label", 100, func(i int) []nb.Unit { return w.Put(y.pod(i/2, i/2/citySpaces+(i+1)%2)) })
	y.kind("endpoint", 100, func(i int) []nb.Unit {
		_, slice := y.service(3+i/2, (i+1)%2)
		return w.Put(slice)
	})
	y.kind("endpoint-local", 20, func(i int) []nb.Unit {
		_, slice := y.service(1, (i+1)%2)
		return w.Put(slice)
	})
	y.kind("endpoint-affinity", 20, func(i int) []nb.Unit {
		_, slice := y.service(2, (i+1)%2)
		return w.Put(slice)
	})
	y.kind("service", 100, func(i int) []nb.Unit {
		s, _ := y.service(4+i/2, 0)
		s.Spec.Ports[0].Port += int32((i + 1) % 2)
		return w.Put(s)
	})
	y.kind("policy", 100, func(i int) []nb.Unit { return w.Put(y.policy(i/2, (i+1)%2*(3+i/citySpaces))) })
	y.kind("namespace", 20, func(i int) []nb.Unit { return w.Put(y.space(i/2, []string{"b", "a"}[i%2])) })
	y.kind("node", 20, func(i int) []nb.Unit { return w.Put(y.node(i/2, y.address(i/2+(i+1)%2*y.nodes))) })
	y.kind("gateway", 20, func(i int) []nb.Unit { return w.Put(facts.Silent{fmt.Sprint("n", 1+i/2): i%2 == 0}) })
	var registries []map[string]string // as they are in the database
	for i := range 20 {
		registries = append(registries, y.topology([]int{i, -1}[i%2]).Registry())
	}
	parser := new(topology.Parser)
	if _, err := parser.ReadRegistry(y.topology(-1).Registry()); err != nil {
		y.Fatal(err)
	}
	y.kind("router", 20, func(i int) []nb.Unit {
		c, err := parser.ReadRegistry(registries[i])
		if err != nil {
			y.Fatal(err)
		}
		return w.Put(c)
	})
}

// kind reports the cost of n events of a kind: the 99th percentile of the time until the transaction is ready, the
// rows changed by each, and the bytes allocated.
func (y *city) kind(name string, n int, do func(i int) []nb.Unit) {
	var times []time.Duration
	var before, after runtime.MemStats
	rows, bytes := 0, uint64(0)
	for i := range n {
		runtime.ReadMemStats(&before)
		start := time.Now()
		want := rowsOf(y.world, append(do(i), y.world.Allocate()...))
		if _, err := y.sync.Plan(want); err != nil {
			y.Fatal(err)
		}
		times = append(times, time.Since(start))
		runtime.ReadMemStats(&after)
		bytes += after.TotalAlloc - before.TotalAlloc
		changes, _ := y.sync.Apply(y.Context(), want)
		rows += len(changes)
	}
	slices.Sort(times)
	p99, half := times[len(times)*99/100], times[len(times)/2]
	y.ReportMetric(float64(p99.Microseconds())/1000, "ms-p99/"+name)
	y.ReportMetric(float64(rows)/float64(n), "rows/"+name)
	y.ReportMetric(float64(bytes)/1000/float64(n), "kB/"+name)
	y.Logf("%-18s p50 %8.2f ms, p99 %8.2f ms, %7.1f rows, %9.1f kB", name, float64(half.Microseconds())/1000, float64(p99.Microseconds())/1000, float64(rows)/float64(n), float64(bytes)/1000/float64(n))
}

// whole measures events about everything: a new connection, and a comparison of all rows.
func (y *city) whole() {
	y.timed("reconnect", func() {
		if err := y.db.Renew(y.Context()); err != nil {
			y.Fatal(err)
		}
		<-y.up
	})
	before := y.db.Transactions()
	y.timed("resync", func() {
		if n := y.applyAll(); n > 0 {
			y.Errorf("comparing everything changes %d rows", n)
		}
	})
	y.ReportMetric(float64(y.db.Transactions()-before), "transactions/resync")
	y.ReportMetric(inUse(), "MB/end")
	y.ReportMetric(y.resident(), "MB/resident")
	y.profile()
}

// profile writes a heap profile while everything is there, to the file OVNK8S_BENCH_HEAP.
func (y *city) profile() {
	name := os.Getenv("OVNK8S_BENCH_HEAP")
	if name == "" {
		return
	}
	f, err := os.Create(name)
	if err != nil {
		y.Fatal(err)
	}
	defer f.Close()
	if err := pprof.Lookup("heap").WriteTo(f, 0); err != nil {
		y.Fatal(err)
	}
}
