package nftables

import (
	"net/netip"
	"sync"

	netfilter "github.com/google/nftables"
)

// Generations tell the changes of our tables of one network namespace from those of other programs: the kernel counts all
// of them together. Each change makes the next generation of the ruleset. It is ours if it is the only one since the table was
// compared. Tables of other Generations, as of another process, are another program's.
type Generations struct {
	read func() (uint32, error)

	mu sync.Mutex // guards the fields below; a writing table has it, so that nobody takes its change for another program's
	// All changes after the generation first, up to last, are ours. own is the last of each family among them.
	first, last uint32
	own         map[netfilter.TableFamily]uint32
}

// NewGenerations returns Generations that know no change yet. read returns the kernel's number of the present one.
func NewGenerations(read func() (uint32, error)) *Generations { return &Generations{read: read} }

// NewTable returns our table of a family.
func (g *Generations) NewTable(family netip.Addr) *Table {
	return &Table{kernel: kernel{family}, generations: g}
}

// change calls write, which changes the table of a family once, for a ruleset of the generation at. It reports whether this
// is the only change since.
func (g *Generations) change(family netfilter.TableFamily, at uint32, write func() error) (alone bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := write(); err != nil {
		return false, err
	}
	now, err := g.read()
	if err != nil || now != at+1 {
		return false, err
	}
	if g.last != at || g.own == nil {
		g.first, g.own = at, map[netfilter.TableFamily]uint32{}
	}
	g.last, g.own[family] = now, now
	return true, nil
}

// sameTable returns the present generation, and reports whether the table of a family is that of a former one: nothing has
// changed since but our tables of other families.
func (g *Generations) sameTable(family netfilter.TableFamily, at uint32) (now uint32, same bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, err = g.read()
	if err != nil {
		return 0, false, err
	}
	own, changed := g.own[family]
	return now, now == at || g.ours(at, now) && (!changed || now-at <= now-own), nil
}

// ours reports whether all changes between two generations, the second of them the present one, are ours. Differences of numbers
// hold beyond the highest one, too.
func (g *Generations) ours(at, now uint32) bool {
	return now == at || g.own != nil && now == g.last && now-at <= now-g.first
}

// Others returns a function that calls changed if another program has changed something since its last call, and at its first
// call. It waits for writing tables. One goroutine calls it.
func (g *Generations) Others(changed func()) (look func()) {
	var at uint32
	known := false
	return func() {
		g.mu.Lock()
		now, err := g.read()
		ours := err == nil && known && g.ours(at, now)
		g.mu.Unlock()
		at, known = now, err == nil
		if !ours {
			changed()
		}
	}
}
