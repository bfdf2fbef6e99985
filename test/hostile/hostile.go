// Package hostile draws objects accepted by API servers but written to do harm, and
// measures their cost for the engine. It also makes Ethernet frames to attack decoders
// of packets: frames of every layer type known to gopacket, with drawn, short and
// lying contents.
//
// A kind of object joins with a function of its own, as Policies in policies.go,
// and an entry in Kinds.
package hostile

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/nb"
)

// MaxObject is the maximum size of an object in bytes of JSON: etcd's limit of a
// request.
const MaxObject = 1_500_000

// A Case is a sequence of objects, created or changed by one author.
type Case struct {
	Name    string
	Objects []any
	// Restore holds the original state of objects that existed before.
	Restore []any
}

// A Source draws cases.
type Source struct{ *rand.Rand }

// NewSource returns the source with a number.
func NewSource(seed uint64) Source { return Source{rand.New(rand.NewPCG(seed, 14))} }

// Kinds returns the functions of Draw by name.
func Kinds() map[string]func(Source) Case {
	return map[string]func(Source) Case{"policy": Policies, "pod": Pods, "namespace": Namespaces, "service": Services, "node": Nodes, "flips": Flips}
}

// Draw draws a case by its name: a kind and a seed, as in "policy/3377".
func Draw(name string) (Case, error) {
	kind, number, _ := strings.Cut(name, "/")
	seed, err := strconv.ParseUint(number, 10, 64)
	draw := Kinds()[kind]
	if draw == nil || err != nil {
		return Case{}, fmt.Errorf("%q is no case: give one of %s, and a number, as in policy/17", name, slices.Sorted(maps.Keys(Kinds())))
	}
	k := draw(NewSource(seed))
	k.Name = name + ": " + k.Name
	return k, nil
}

// Names lists n cases, evenly distributed over the kinds.
func Names(n int) (out []string) {
	kinds := slices.Sorted(maps.Keys(Kinds()))
	for i := range n {
		out = append(out, fmt.Sprint(kinds[i%len(kinds)], "/", i))
	}
	return out
}

// One draws one of a list.
func One[T any](s Source, list ...T) T { return list[s.IntN(len(list))] }

// Fits reports whether an API server accepts an object of this size.
func Fits(o any) bool {
	b, err := json.Marshal(o)
	return err == nil && len(b) <= MaxObject
}

// A Cost is the cost of one change.
type Cost struct {
	Units   int // touched
	Rows    int // written or deleted
	Members int // references to existing rows, added or removed
	Bytes   int // of the rows and members written, estimated
	Row     int // bytes of the largest row
	Alloc   int // bytes allocated by the engine
	// Time is CPU time of the engine's thread, without other load and garbage collection.
	Time time.Duration
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

// A Cluster is a World and its rows after the last change.
type Cluster struct {
	World   *desired.World
	rows    map[nb.Unit]map[string]row
	problem string // the first since Try began
}

// A row holds the former state of a row.
type row struct {
	bytes int // of its text
	hash  uint64
	in    map[nb.Ref]bool
}

var seed = maphash.MakeSeed()

// bytesOfRef is the size of one reference in a transaction: ["uuid","…"].
const bytesOfRef = 48

// Put measures the cost of a put object.
func (c *Cluster) Put(o any) Cost { return c.measure(func() []nb.Unit { return c.World.Put(o) }) }

// Remove measures the cost of a removed object.
func (c *Cluster) Remove(o any) Cost { return c.measure(func() []nb.Unit { return c.World.Remove(o) }) }

// measure returns the cost of a change.
func (c *Cluster) measure(change func() []nb.Unit) Cost {
	var before, after runtime.MemStats
	var rows map[nb.Unit][]nb.Row
	runtime.ReadMemStats(&before)
	took := CPUTime(func() { rows = c.changed(change) })
	runtime.ReadMemStats(&after)
	cost := c.account(rows)
	cost.Units, cost.Time, cost.Alloc = len(rows), took, int(after.TotalAlloc-before.TotalAlloc)
	return cost
}

// changed runs a change like the engine, and returns the rows of all units that it concerns.
func (c *Cluster) changed(change func() []nb.Unit) map[nb.Unit][]nb.Row {
	dirty := map[nb.Unit]bool{}
	for _, units := range [][]nb.Unit{change(), c.World.Allocate()} {
		for _, u := range units {
			dirty[u] = true
		}
	}
	rows := make(map[nb.Unit][]nb.Row, len(dirty))
	for u := range dirty {
		var err error
		if rows[u], err = c.World.Rows(u); err != nil && c.problem == "" {
			c.problem = fmt.Sprint(u, ": ", err)
		}
	}
	return rows
}

// CPUTime returns the CPU time of work, which must stay in one goroutine. Other processes and garbage collection do not count.
func CPUTime(work func()) time.Duration {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.LockOSThread() // for threadTime
	defer runtime.UnlockOSThread()
	start := threadTime()
	work()
	return threadTime() - start
}

// threadTime returns the CPU time of the calling thread.
func threadTime() time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &use); err != nil {
		panic(err) // only for bad arguments
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// account compares the rows of units with their former ones.
func (c *Cluster) account(all map[nb.Unit][]nb.Row) (cost Cost) {
	for u, rows := range all {
		old, now := c.rows[u], make(map[string]row, len(rows))
		for _, r := range rows {
			key := r.Table + " " + r.ID
			bare := r
			bare.In = nil
			text := bare.String()
			n := row{len(text), maphash.String(seed, text), make(map[nb.Ref]bool, len(r.In))}
			for _, ref := range r.In {
				n.in[ref] = true
			}
			now[key] = n
			cost = cost.add(old[key], n)
			cost.Row = max(cost.Row, n.bytes)
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

// add adds the cost of changing a row.
func (c Cost) add(old, now row) Cost {
	if old.bytes != now.bytes || old.hash != now.hash {
		c.Rows++
		c.Bytes += now.bytes + bytesOfRef
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

// Size returns the number of rows of the cluster.
func (c *Cluster) Size() (rows int) {
	for _, r := range c.rows {
		rows += len(r)
	}
	return rows
}

// A Result is the cost of a case: of the worst change of its objects when they are put and
// when they are removed, and of an ordinary pod beside them.
type Result struct {
	Case            Case
	Object, Removal Cost
	Pod             Cost
	Problem         string // the first problem of the objects' units
}

// String formats a result on lines.
func (r Result) String() string {
	return fmt.Sprintf("  comes %s\n  goes  %s\n  pod   %s\n  %.300s", r.Object, r.Removal, r.Pod, r.Problem)
}

// Try puts the objects of a case, then an ordinary pod, and removes all of them.
func (c *Cluster) Try(k Case) Result {
	out := Result{Case: k}
	c.problem = ""
	for _, o := range k.Objects {
		out.Object = out.Object.Max(c.Put(o))
	}
	out.Problem = c.problem
	p := Pod("namespace-0", "further", 7, len(c.World.Facts().Cluster.Nodes))
	p.Labels["app"] = "app-new"
	out.Pod = c.Put(p)
	c.Remove(p)
	for _, o := range k.Gone() {
		out.Removal = out.Removal.Max(c.Remove(o))
	}
	for _, o := range k.Restore {
		out.Removal = out.Removal.Max(c.Put(o))
	}
	return out
}

// Gone lists the objects to remove, each once, the last first.
func (k Case) Gone() (out []any) {
	name := func(o any) string {
		m := o.(metav1.Object)
		return fmt.Sprintf("%T %s/%s", o, m.GetNamespace(), m.GetName())
	}
	stays := map[string]bool{}
	for _, o := range k.Restore {
		stays[name(o)] = true
	}
	for _, o := range slices.Backward(k.Objects) {
		if !stays[name(o)] {
			stays[name(o)] = true
			out = append(out, o)
		}
	}
	return out
}
