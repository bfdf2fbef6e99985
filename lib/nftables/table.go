package nftables

import (
	"context"
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
}

// A state is the contents of the table.
type state struct {
	there  bool                // the table
	chains map[string][]string // comments of rules, by chain
	sets   map[string]contents
	maps   map[string]contents
}

// contents are the elements of a set, unless they have not been read.
type contents struct {
	read     bool
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

// plan compares the table with the wanted objects, and reports whether it has read the table.
func (t *Table) plan(ctx context.Context, prefix string, want ruleset.Table) (*plan, bool, error) {
	now, err := t.generation()
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	read := t.state == nil || t.at != now
	if read {
		if t.state, err = t.read(ctx); err != nil {
			return nil, true, fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
		t.at = now
	}
	for _, s := range want.Sets {
		if err := t.readElements(ctx, s); err != nil {
			return nil, true, err
		}
	}
	return compare(t.state, prefix, want), read, nil
}

// read reads the names of all objects, and the rules.
func (t *Table) read(ctx context.Context) (*state, error) {
	s := &state{chains: map[string][]string{}, sets: map[string]contents{}, maps: map[string]contents{}}
	names, err := t.nft.ListAll(ctx)
	if knftables.IsNotFound(err) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	s.there = true
	for _, name := range names["chain"] {
		s.chains[name] = nil
	}
	for _, name := range names["set"] {
		s.sets[name] = contents{}
	}
	for _, name := range names["map"] {
		s.maps[name] = contents{}
	}
	if len(s.chains) == 0 {
		return s, nil
	}
	rules, err := t.nft.ListRules(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, r := range rules {
		comment := ""
		if r.Comment != nil {
			comment = *r.Comment
		}
		s.chains[r.Chain] = append(s.chains[r.Chain], comment)
	}
	return s, nil
}

// of returns the sets or the maps of a state: their kind is that of a wanted set.
func (s *state) of(set ruleset.Set) map[string]contents {
	if set.IsMap() {
		return s.maps
	}
	return s.sets
}

// readElements reads the elements of a set that exists, unless they are known. Those of a set with a timeout belong to
// the kernel.
func (t *Table) readElements(ctx context.Context, s ruleset.Set) error {
	have := t.state.of(s)
	c, there := have[s.Name]
	if !there || c.read || s.Timeout > 0 {
		return nil
	}
	kind := "set"
	if s.IsMap() {
		kind = "map"
	}
	found, err := t.nft.ListElements(ctx, kind, s.Name)
	if err != nil {
		return err
	}
	c.read = true
	for _, f := range found {
		comment := ""
		if f.Comment != nil {
			comment = *f.Comment
		}
		e, err := s.Parse(f.Key, f.Value, comment)
		if err != nil {
			return fmt.Errorf("reading %s: %w", s.Name, err)
		}
		c.elements = append(c.elements, e)
	}
	have[s.Name] = c
	return nil
}
