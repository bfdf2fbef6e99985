package nftables

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ovn-k8s/lib/nftables/usable"
	"ovn-k8s/lib/ruleset"
)

// ErrRefused means: the kernel refuses parts of a wanted table. All others are written.
var ErrRefused = errors.New("the kernel refuses")

// errLarge means: a table has more new objects than maxNew, in several parts.
var errLarge = errors.New("too many new objects for one transaction")

// maxNew bounds the new sets and chains of one transaction, unless they are of one part. The kernel finds a set by looking at
// all of them: 2 000 sets and chains for 1 000 endpoints with session affinity take it half a second (1.4 MB), and four
// seconds beside 18 000 others. All 20 000 in one transaction take half a minute, and the processor is not released meanwhile.
const maxNew = 5000

// steps write a table in several transactions: first what is not new, and then the other parts in groups of at most maxNew
// objects. A group that the kernel refuses is split in halves, until the refused part is alone. So one part, and its
// Service, does not hold back all others. A part that waits, or is refused, is in the table as it was written before, also by
// another process.
type steps struct {
	*Table
	prefix  string
	want    ruleset.Table
	former  []*ruleset.Table // what the table has of parts that wait
	done    []*ruleset.Table // of want
	refused []*ruleset.Table
	why     error // for the first of refused
	lost    error // why there is nothing in former
	changes []string
	read    bool
}

// run writes the table.
func (s *steps) run(ctx context.Context) error {
	waiting, err := s.begin(ctx)
	if err != nil {
		return err
	}
	for len(waiting) > 0 {
		n, objects := 1, size(waiting[0])
		for n < len(waiting) && objects+size(waiting[n]) <= maxNew {
			objects += size(waiting[n])
			n++
		}
		if err := s.group(ctx, waiting[:n]); err != nil {
			return err
		}
		waiting = waiting[n:]
	}
	switch {
	case len(s.refused) == 0:
		return nil
	case s.lost != nil:
		return fmt.Errorf("%w rules of %s: %w; without former rules: %v", ErrRefused, ruleset.Owners(s.refused), s.why, s.lost)
	}
	return fmt.Errorf("%w rules of %s: %w", ErrRefused, ruleset.Owners(s.refused), s.why)
}

// begin writes all but the parts with changes, which it returns: they stay as they were. If that fails, another program may have
// changed the table meanwhile, so it looks again. At last the former rules go: they would hold back all others.
func (s *steps) begin(ctx context.Context) (waiting []*ruleset.Table, err error) {
	var why error
	for n := 0; n < attempts && !isBusy(why); n++ {
		want, waiting, err := s.look()
		if err != nil {
			return nil, err
		}
		if s.former, why = s.Table.former(s.prefix, want, waiting); why != nil {
			continue
		}
		if len(s.former) == 0 {
			return waiting, s.write(ctx, nil, attempts)
		}
		if why = s.write(ctx, nil, 1); why == nil || ends(ctx, why) {
			return waiting, why
		}
	}
	s.lose(why)
	if _, waiting, err = s.look(); err != nil {
		return nil, err
	}
	return waiting, s.write(ctx, nil, attempts)
}

// look compares the table with the wanted one. It returns the wanted table's unchanged parts, as a table, and its changed ones.
func (s *steps) look() (want ruleset.Table, waiting []*ruleset.Table, err error) {
	p, read, err := s.plan(s.prefix, s.want)
	s.read = s.read || read
	if err != nil {
		return want, nil, err
	}
	want = s.want
	s.done, waiting = p.split(s.want.Parts)
	want.Parts = s.done
	return want, waiting, nil
}

// isBusy reports whether the former rules use a part to be removed.
func isBusy(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), unix.EBUSY.Error())
}

// lose goes on without former rules, and tells why.
func (s *steps) lose(why error) {
	s.former, s.lost = nil, why
	s.changes = append(s.changes, "# former rules go before new ones come: "+usable.Flat(why))
}

// ends reports whether an error is one of all parts.
func ends(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, ErrUnwritable) || errors.Is(err, ErrUnreadable)
}

// size is the number of objects in a part: all may be new.
func size(part *ruleset.Table) int { return len(part.Chains) + len(part.Sets) }

// group writes some parts, but for those refused by the kernel.
func (s *steps) group(ctx context.Context, parts []*ruleset.Table) error {
	times := 1
	if len(parts) == 1 {
		times = attempts
	}
	err := s.write(ctx, parts, times)
	switch {
	case err == nil:
		s.done = append(s.done, parts...)
		return nil
	case ends(ctx, err):
		return err
	case len(parts) > 1:
		half := len(parts) / 2
		if err := s.group(ctx, parts[:half]); err != nil {
			return err
		}
		return s.group(ctx, parts[half:])
	case len(s.former) > 0:
		if former := s.write(ctx, nil, 1); former != nil && !ends(ctx, former) { // another program has changed it
			s.lose(former)
			return s.group(ctx, parts)
		}
	}
	if s.refused = append(s.refused, parts...); s.why == nil {
		s.why = err
	}
	return nil
}

// write writes some parts beside the done and the former ones, and removes all else.
func (s *steps) write(ctx context.Context, parts []*ruleset.Table, times int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	want := s.want
	want.Parts = slices.Concat(s.done, parts)
	want.Parts = append(want.Parts, ruleset.Besides(want.Parts, s.former)...)
	changes, read, err := s.try(ctx, s.prefix, want, math.MaxInt, times)
	s.changes, s.read = append(s.changes, changes...), s.read || read
	return err
}

// split returns the parts without changes in the plan, and those with some.
func (p *plan) split(parts []*ruleset.Table) (same, changed []*ruleset.Table) {
	names, keys := map[string]bool{}, map[ruleset.Element]map[string]bool{}
	for _, c := range p.chains {
		names[c.Name] = true
	}
	for _, e := range p.edits {
		names[e.chain] = true
	}
	for _, set := range p.newSets {
		names[set.Name] = true
	}
	for _, c := range p.added {
		key := c.Bare()
		if keys[key] == nil {
			keys[key] = map[string]bool{}
		}
		keys[key][c.set.Name] = true
	}
	differs := func(part *ruleset.Table) bool {
		return slices.ContainsFunc(part.Chains, func(c ruleset.Chain) bool { return names[c.Name] }) ||
			slices.ContainsFunc(part.Sets, func(set ruleset.Set) bool {
				return names[set.Name] || slices.ContainsFunc(set.Elements, func(e ruleset.Element) bool { return keys[e.Bare()][set.Name] })
			})
	}
	for _, part := range parts {
		if differs(part) {
			changed = append(changed, part)
		} else {
			same = append(same, part)
		}
	}
	return same, changed
}
