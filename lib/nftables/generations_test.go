package nftables

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	netfilter "github.com/google/nftables"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/ruleset"
	"ovn-k8s/test/namespace"
)

// both are the tables of both families in a new namespace, with the same Generations.
type both struct {
	generations *Generations
	four, six   *Table
	// before runs before one query of the generation: the next one if queries is 1.
	queries int
	before  func()
}

func newBoth(t *testing.T) *both {
	t.Helper()
	namespace.Load(t, "table ip other { }")
	b := &both{}
	b.generations = NewGenerations(func() (uint32, error) {
		if b.queries--; b.queries == 0 {
			b.before()
		}
		return link.PacketFilterGeneration()
	})
	b.four, b.six = b.generations.NewTable(netip.IPv4Unspecified()), b.generations.NewTable(netip.IPv6Unspecified())
	return b
}

// marks has a chain with a rule.
func marks(n uint32) ruleset.Table {
	chain := ruleset.Chain{Name: "svc-marks", Rules: []ruleset.Rule{ruleset.NewRule("", ruleset.SetMark{Bits: n})}}
	return ruleset.Table{Chains: []ruleset.Chain{chain}}
}

// sync makes a table equal to a wanted one, and checks whether it is changed, and was read before.
func (b *both) sync(t *testing.T, what string, table *Table, n uint32, changed, read bool) {
	t.Helper()
	changes, got, err := table.Sync(t.Context(), "svc-", marks(n))
	if err != nil || len(changes) > 0 != changed || got != read {
		t.Errorf("%s: read %v, changes %q, %v", what, got, changes, err)
	}
	if left, err := NewTable(table.family, link.PacketFilterGeneration).Plan("svc-", marks(n)); err != nil || len(left) > 0 {
		t.Errorf("%s: not as wanted: %v, %q", what, err, left)
	}
}

// A change of one family's table does not make the other family's be read. All other changes do.
func TestATableIsNotReadAfterChangesOfTheOtherFamily(t *testing.T) {
	b := newBoth(t)
	b.sync(t, "IPv4 is made", b.four, 1, true, true)
	b.sync(t, "IPv6 is made", b.six, 1, true, true)
	b.sync(t, "IPv4 as it was", b.four, 1, false, false)
	for n := uint32(2); n < 5; n++ {
		b.sync(t, "IPv4 changes", b.four, n, true, false)
		b.sync(t, "IPv4 changes again", b.four, n+100, true, false)
		b.sync(t, "IPv6 as it was", b.six, n-1, false, false)
		b.sync(t, "IPv6 changes", b.six, n, true, false)
	}
	if four, six := b.four.Reads(), b.six.Reads(); four != 1 || six != 1 {
		t.Errorf("read %d and %d times", four, six)
	}

	namespace.NFT(t, "flush", "chain", "ip6", "ovn-k8s", "svc-marks")
	b.sync(t, "IPv4 after another program", b.four, 200, true, true)
	b.sync(t, "IPv6 after another program and IPv4", b.six, 4, true, true)
	b.sync(t, "IPv4 as it was", b.four, 200, false, false)
	namespace.NFT(t, "add", "table", "ip", "stranger")
	b.sync(t, "IPv6 after a stranger", b.six, 4, false, true)
	b.sync(t, "IPv4 after a stranger", b.four, 200, false, true)
}

// Changes of another program are noticed wherever they come between ours.
func TestChangesOfOthersBetweenOurs(t *testing.T) {
	harm := func() { namespace.NFT(t, "flush", "chain", "ip6", "ovn-k8s", "svc-marks") }
	for _, tt := range []struct {
		what    string
		queries int
	}{
		{"before the comparison", 1},
		{"after the change, before the query of its generation", 2},
	} {
		t.Run(tt.what, func(t *testing.T) {
			b := newBoth(t)
			b.sync(t, "IPv4 is made", b.four, 1, true, true)
			b.sync(t, "IPv6 is made", b.six, 1, true, true)
			b.queries, b.before = tt.queries, harm
			b.sync(t, "IPv4 changes", b.four, 2, true, tt.queries == 1)
			b.sync(t, "IPv6 is repaired", b.six, 1, true, true)
			b.sync(t, "IPv4 as it was", b.four, 2, false, tt.queries == 2)
			b.sync(t, "IPv6 as it was", b.six, 1, false, false)
		})
	}
}

// Tables of another process, and a second one of the same family, are another program's.
func TestOtherTablesAreNoticed(t *testing.T) {
	b := newBoth(t)
	b.sync(t, "IPv4 is made", b.four, 1, true, true)
	b.sync(t, "IPv6 is made", b.six, 1, true, true)
	second := b.generations.NewTable(netip.IPv6Unspecified())
	b.sync(t, "the second IPv6 changes", second, 2, true, true)
	b.sync(t, "IPv4 as it was", b.four, 1, false, false)
	b.sync(t, "IPv6 after the second", b.six, 1, true, true)
	b.sync(t, "the second after IPv6", second, 1, false, true)

	process := NewTable(netip.IPv6Unspecified(), link.PacketFilterGeneration)
	b.sync(t, "another process changes IPv6", process, 3, true, true)
	b.sync(t, "IPv6 after another process", b.six, 1, true, true)
	b.sync(t, "IPv4 after another process", b.four, 1, false, true)
}

// Changes of others are told once, ours never.
func TestOthersAreTold(t *testing.T) {
	b := newBoth(t)
	told := 0
	look := b.generations.Others(func() { told++ })
	expect := func(what string, want int) {
		t.Helper()
		look()
		look()
		if told != want {
			t.Errorf("%s: told %d times, not %d", what, told, want)
		}
		told = 0
	}
	expect("at first", 1)
	b.sync(t, "IPv4 is made", b.four, 1, true, true)
	b.sync(t, "IPv6 is made", b.six, 1, true, true)
	expect("after ours", 0)
	namespace.NFT(t, "add", "table", "ip", "stranger")
	expect("after a stranger", 1)
	b.sync(t, "IPv4 changes", b.four, 2, true, true)
	namespace.NFT(t, "add", "table", "ip", "stranger2")
	b.sync(t, "IPv6 changes", b.six, 2, true, true)
	expect("a stranger between ours", 1)
	b.sync(t, "IPv4 changes", b.four, 3, true, true)
	expect("after ours again", 0)
	for _, queries := range []int{1, 2} {
		b.queries, b.before = queries, func() { namespace.NFT(t, "add", "chain", "ip", "stranger", fmt.Sprint("during", queries)) }
		b.sync(t, "IPv4 changes during another change", b.four, 3+uint32(queries), true, queries == 1)
		expect("after a change during ours", 1)
		b.sync(t, "IPv4 as it was", b.four, 3+uint32(queries), false, queries == 2)
	}
}

// Of random changes by both families and other programs, all that are not the other family's are noticed, and no more.
func TestRandomChangesAreNoticed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	families := []netfilter.TableFamily{netfilter.TableFamilyIPv4, netfilter.TableFamilyIPv6}
	const stranger = netfilter.TableFamily(0)
	for range 200 {
		now := uint32(math.MaxUint32 - r.IntN(40))
		g := NewGenerations(func() (uint32, error) { return now, nil })
		var since [3][]netfilter.TableFamily // changes since the last look: of each family's table, and of the function of Others
		var at [2]uint32
		told := 0
		look := g.Others(func() { told++ })
		look()
		at[0], at[1], told = now, now, 0
		change := func(who netfilter.TableFamily) {
			if now++; now == 0 { // as in the kernel
				now, who = 1, stranger
			}
			for i := range since {
				since[i] = append(since[i], who)
			}
		}
		for range 60 {
			i := r.IntN(len(families))
			switch r.IntN(4) {
			case 0:
				change(stranger)
			case 1:
				strange := slices.Contains(since[2], stranger)
				if look(); (told > 0) != strange {
					t.Fatalf("after %v: told %d times", since[2], told)
				}
				told, since[2] = 0, nil
			default:
				n, same, err := g.sameTable(families[i], at[i])
				if want := !slices.Contains(since[i], stranger) && !slices.Contains(since[i], families[i]); err != nil || n != now || same != want {
					t.Fatalf("family %v after %v: same %v, %v", families[i], since[i], same, err)
				}
				at[i], since[i] = now, nil
				strange := r.IntN(5) == 0
				alone, err := g.change(families[i], at[i], func() error {
					if strange {
						change(stranger)
						change(stranger)
						return nil
					}
					change(families[i])
					return nil
				})
				strange = strange || slices.Contains(since[i], stranger)
				if err != nil || alone == strange {
					t.Fatalf("a change: alone %v, %v", alone, err)
				}
				if alone {
					at[i], since[i] = now, nil
				}
			}
		}
	}
}
