package topology

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
)

func parse(t testing.TB, text string) []netip.Prefix {
	t.Helper()
	p, err := ipnet.ParseSubnets(text, 0)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func empty(t testing.TB) Cluster {
	t.Helper()
	c, err := New(names.ClusterRouter, parse(t, "10.0.0.0/8,fd00::/32"), parse(t, "100.64.0.0/16,fd98::/64"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// readOneByOne has the result of readKeys, in time quadratic in the number of keys.
func readOneByOne(c Cluster, keys map[string]string) (Cluster, error) {
	var errs []error
	for _, key := range (&Parser{now: map[string]Gateway{}}).order(keys) {
		r := newReader(c, new(Parser))
		r.Nodes, r.Chassis, r.Gateways = maps.Clone(c.Nodes), maps.Clone(c.Chassis), maps.Clone(c.Gateways)
		r.index()
		if node, ok := strings.CutPrefix(key, names.ChassisPrefix); ok {
			c = c.WithChassis(node, keys[key])
			continue
		}
		r.names, r.subnets = map[string]bool{}, disjoint{} // nothing is known not to overlap
		if err := r.readSlowly(key, keys[key]); err != nil {
			errs = append(errs, fmt.Errorf("reading %s of the topology: %w", key, err))
			continue
		}
		c = r.Cluster
	}
	c.Gateways = c.Gateways.oneFirst()
	return c, errors.Join(errs...)
}

// readSlowly reads one key without the help of the indexes.
func (r *reader) readSlowly(key, value string) (err error) {
	if node, ok := strings.CutPrefix(key, names.NodePrefix); ok {
		subnets, err := ipnet.ParseSubnets(value, MinHosts)
		if err != nil {
			return err
		}
		with, err := r.withNode(node, subnets, 1, CheckNodeName(node))
		if err == nil {
			r.Cluster = with
		}
		return err
	}
	if name, ok := strings.CutPrefix(key, names.GatewayPrefix); ok {
		for i := range 256 { // in joined, so that add decides
			r.joined[netip.AddrFrom4([4]byte{100, 64, 0, byte(i)})] = true
		}
		return r.readGateway(name, value)
	}
	return nil
}

// L5: the indexes do not change the result for any record.
func TestReadingByIndexes(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		keys := randomRecord(r)
		want, wantErr := readOneByOne(empty(t), keys)
		got, err := new(Parser).readKeys(empty(t), keys)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Fatalf("seed %d: %v (-one by one +by indexes):\n%s", seed, keys, diff)
		}
		if fmt.Sprint(wantErr) != fmt.Sprint(err) {
			t.Fatalf("seed %d:\n got %v\nwant %v", seed, err, wantErr)
		}
	}
}

// Keys are in the order of their join addresses, if any, and then of their names.
func TestOrderOfKeys(t *testing.T) {
	for seed := range uint64(100) {
		keys := randomRecord(rand.New(rand.NewPCG(seed, 7)))
		keys[names.GatewayPrefix+"broken"], keys[names.GatewayPrefix+"without"] = "{", `{"mode":"physical"}`
		join := func(key string) (a netip.Addr) {
			var g Gateway
			if strings.HasPrefix(key, names.GatewayPrefix) && json.Unmarshal([]byte(keys[key]), &g) == nil && len(g.Join) > 0 {
				a = g.Join[0]
			}
			return a
		}
		want := slices.Sorted(maps.Keys(keys))
		slices.SortStableFunc(want, func(a, b string) int { return join(a).Compare(join(b)) })
		got := (&Parser{now: map[string]Gateway{}}).order(keys)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d:\n got %q\nwant %q", seed, got, want)
		}
	}
}

// randomRecord returns a record of few nodes and gateways with frequent conflicts.
func randomRecord(r *rand.Rand) map[string]string {
	keys := map[string]string{}
	name := func() string { return []string{"a", "b", "B", "c", "d", "no_name"}[r.IntN(6)] }
	for range r.IntN(8) {
		n := r.IntN(5)
		keys[names.NodePrefix+name()] = fmt.Sprintf("10.0.%d.0/%d,fd00:0:0:%d::/64", n, 21+r.IntN(5), n)
		keys[names.ChassisPrefix+name()] = fmt.Sprint("id", r.IntN(4))
		g := Gateway{
			Mode: []string{Physical, Bridge, Local, "none"}[r.IntN(4)], Interface: fmt.Sprint("eth", r.IntN(2)), Chassis: fmt.Sprint("id", r.IntN(4)),
			IPs:  []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(6))}), 24)},
			Join: []netip.Addr{netip.AddrFrom4([4]byte{100, 64, 0, byte(r.IntN(6))}), netip.MustParseAddr(fmt.Sprint("fd98::", 2+r.IntN(6)))},
		}
		if r.IntN(3) == 0 {
			g.Rampout = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(4)), 0}), 22+r.IntN(3)).Masked()}
		}
		keys[names.GatewayPrefix+name()] = g.text()
	}
	return keys
}

// Record returns a record of n nodes, all of them gateways.
func record(t testing.TB, n int) map[string]string {
	t.Helper()
	keys := empty(t).Registry()
	for i := range n {
		node := fmt.Sprint("node", i)
		keys[names.NodePrefix+node] = fmt.Sprintf("10.%d.%d.0/24,fd00:0:0:%x::/64", i/256, i%256, i)
		keys[names.ChassisPrefix+node] = fmt.Sprint("id", i)
		keys[names.GatewayPrefix+node] = Gateway{
			Mode: Physical, Interface: "eth1", Chassis: fmt.Sprint("id", i), MAC: "0a:00:00:00:00:01", Node: node,
			IPs:      []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, byte(i / 250), byte(2 + i%250)}), 16)},
			NextHops: []netip.Addr{netip.MustParseAddr("192.168.255.254")},
			Join:     []netip.Addr{netip.AddrFrom4([4]byte{100, 64, byte((i + 2) / 256), byte((i + 2) % 256)}), netip.MustParseAddr(fmt.Sprintf("fd98::%x", i+2))},
		}.text()
	}
	return keys
}

// L5: memory allocated by reading grows with the nodes, not with their square.
func TestReadingIsLinear(t *testing.T) {
	allocated := func(n int) uint64 {
		keys := record(t, n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c, err := ReadRegistry(keys)
		runtime.ReadMemStats(&after)
		if err != nil || len(c.Gateways) != n || len(c.Nodes) != n {
			t.Fatalf("%d gateways and %d nodes of %d: %v", len(c.Gateways), len(c.Nodes), n, err)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	allocated(10)
	few, many := allocated(250), allocated(1000)
	t.Logf("250 nodes: %d kB, 1000 nodes: %d kB", few>>10, many>>10)
	if many > 6*few {
		t.Errorf("4 times the nodes take %.1f times the memory", float64(many)/float64(few))
	}
}

// L5: a registry with one changed value is read like any, and gateways with unchanged texts are not parsed again.
func TestAParserKeepsWhatDidNotChange(t *testing.T) {
	keys := record(t, 250)
	first := ""
	for key := range keys {
		if strings.HasPrefix(key, names.GatewayPrefix) && (first == "" || key < first) {
			first = key
		}
	}
	other := maps.Clone(keys)
	if other[first] = strings.Replace(keys[first], `"eth1"`, `"eth2"`, 1); other[first] == keys[first] {
		t.Fatalf("%s has no interface eth1", keys[first])
	}
	p := new(Parser)
	for _, r := range []map[string]string{keys, other, keys} {
		want, err := ReadRegistry(r)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.ReadRegistry(r); err != nil || !got.Equal(want) {
			t.Errorf("%v, %v; want %v", got, err, want)
		}
	}
	parsed := testing.AllocsPerRun(1, func() { _, _ = ReadRegistry(keys) })
	kept := testing.AllocsPerRun(1, func() { _, _ = p.ReadRegistry(keys) })
	if t.Logf("%.0f allocations, %.0f if gateways are kept", parsed, kept); kept > parsed/2 {
		t.Errorf("%.0f allocations instead of %.0f", kept, parsed)
	}
}

func BenchmarkRead(b *testing.B) {
	for _, n := range []int{250, 1000} {
		keys := record(b, n)
		b.Run(fmt.Sprint("gateways=", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ReadRegistry(keys); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// L5: a Parser of several registries has the result of reading each by itself, whatever gateways change.
func TestAParserReadsLikeANewOne(t *testing.T) {
	shared := 0
	for seed := range uint64(100) {
		r, p, keys := rand.New(rand.NewPCG(seed, 6)), new(Parser), record(t, 6)
		first := names.GatewayPrefix + "node0"
		keys[first] = strings.Replace(keys[first], `"join"`, `"first":true,"join"`, 1)
		for step := range 20 {
			keys = maps.Clone(keys)
			for range r.IntN(3) {
				name := fmt.Sprint("node", r.IntN(6))
				var g Gateway
				if err := json.Unmarshal([]byte(keys[names.GatewayPrefix+name]), &g); err != nil {
					t.Fatal(err)
				}
				other := byte(2 + r.IntN(7))
				switch r.IntN(8) {
				case 0:
					g.IPs = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 0, other}), 16)}
				case 1:
					g.Join = []netip.Addr{netip.AddrFrom4([4]byte{100, 64, 0, other}), g.Join[1]}
				case 2:
					g.Chassis = fmt.Sprint("id", r.IntN(6))
				case 3:
					g.Rampout = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(4)), 0}), 22+r.IntN(3)).Masked()}
				case 4:
					g.First = r.IntN(2) == 0
				case 5:
					g.Mode = []string{Physical, Local, "none"}[r.IntN(3)]
				case 6:
					keys[names.ChassisPrefix+name] = fmt.Sprint("id", r.IntN(8))
				default:
					g.MAC = fmt.Sprintf("0a:00:00:00:00:%02x", r.IntN(100))
				}
				keys[names.GatewayPrefix+name] = g.text()
			}
			want, wantErr := ReadRegistry(keys)
			if _, ok := p.readChanged(keys); ok {
				shared++
			}
			got, err := p.ReadRegistry(keys)
			if fmt.Sprint(err) != fmt.Sprint(wantErr) || !got.Equal(want) || got.SamePlaces(want) != want.SamePlaces(want) {
				t.Fatalf("seed %d step %d: %v, %v; want %v, %v", seed, step, got, err, want, wantErr)
			}
		}
	}
	if shared < 50 {
		t.Errorf("only %d registries were read from the one before", shared)
	}
}
