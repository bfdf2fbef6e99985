package nftables

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"sigs.k8s.io/knftables"

	"ovn-k8s/lib/ruleset"
)

// TableName is the name of our table, one of each family.
const TableName = "ovn-k8s"

// ErrUnreadable means that nft cannot list our table.
var ErrUnreadable = errors.New("cannot read table " + TableName + " of nftables")

// A Table makes objects of our table of one family equal to wanted ones. It remembers what it wrote, and reads the
// table again only if another program has changed something since. So a change costs what it changes.
//
// The comment of each rule ends with a hash of its text, by which it is recognized: nft prints a rule differently from
// version to version. A release that changes the hook of a base chain, or the type of a set, must rename it.
type Table struct {
	family     netip.Addr
	nft        knftables.Interface
	generation func() (uint32, error)

	mu    sync.Mutex
	state *state // nil: unknown
	at    uint32 // generation of state
	reads int    // see Reads
}

// A state is the contents of the table.
type state struct {
	there  bool                // the table
	chains map[string][]string // comments of rules, by chain
	sets   map[string]contents
	maps   map[string]contents
}

// contents are the elements of a set. They are raw until a wanted set tells their fields.
type contents struct {
	raw      []json.RawMessage
	elements []ruleset.Element
}

// NewTable returns our table of a family. generation returns the number of changes of the kernel's ruleset. The error
// says why nftables does not work.
func NewTable(family netip.Addr, generation func() (uint32, error)) (*Table, error) {
	f := knftables.IPv4Family
	if family.Is6() {
		f = knftables.IPv6Family
	}
	nft, err := knftables.New(f, TableName)
	if err != nil {
		return nil, fmt.Errorf("nftables does not work here: %s: install the package nftables", strings.Join(strings.Fields(err.Error()), " "))
	}
	return &Table{family: family, nft: nft, generation: generation}, nil
}

// attempts bounds the tries of Sync, since other programs may change the table at the same time.
const attempts = 3

// Sync makes the objects whose names have a prefix equal to wanted ones, all at once or not at all. It returns the
// changes, one command a line, and reports whether it had to read the table. An empty table is deleted.
func (t *Table) Sync(ctx context.Context, prefix string, want ruleset.Table) (changes []string, read bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range attempts {
		var again bool
		changes, again, err = t.sync(ctx, prefix, want)
		read = read || again
		if err == nil || ctx.Err() != nil {
			return changes, read, err
		}
		t.state = nil
	}
	return nil, read, fmt.Errorf("changing table %s of nftables: %w", TableName, err)
}

func (t *Table) sync(ctx context.Context, prefix string, want ruleset.Table) (changes []string, read bool, err error) {
	p, read, err := t.plan(ctx, prefix, want)
	if err != nil || p.empty() {
		return nil, read, err
	}
	if err := t.nft.Run(ctx, p.transaction(t)); err != nil {
		return nil, read, err
	}
	t.state = p.after
	now, err := t.generation()
	if err != nil || now != t.at+1 { // another program has changed something, too
		t.state = nil
	}
	t.at = now
	return p.lines(), read, err
}

// Plan returns the changes that Sync would make.
func (t *Table) Plan(ctx context.Context, prefix string, want ruleset.Table) ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, _, err := t.plan(ctx, prefix, want)
	if err != nil {
		return nil, err
	}
	return p.lines(), nil
}

// Reads is the number of times that the table was read: once, and again after each change of another program that was
// noticed.
func (t *Table) Reads() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reads
}

// plan compares the table with the wanted objects, and reports whether it has read the table.
func (t *Table) plan(ctx context.Context, prefix string, want ruleset.Table) (*plan, bool, error) {
	now, err := t.generation()
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	read := t.state == nil || t.at != now
	if read {
		t.reads++
		if t.state, err = t.read(ctx); err != nil {
			return nil, true, fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		t.at = now
	}
	for _, s := range want.Sets {
		if err := t.state.parse(s); err != nil {
			return nil, read, err
		}
	}
	return compare(t.state, prefix, want), read, nil
}

// of returns the sets or the maps of a state: their kind is that of a wanted set.
func (s *state) of(set ruleset.Set) map[string]contents {
	if set.IsMap() {
		return s.maps
	}
	return s.sets
}
