// Package nftables keeps a table of our own. It changes no table of others.
package nftables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"ovn-k8s/lib/nftables/usable"
	"ovn-k8s/lib/platform"
	"ovn-k8s/lib/ruleset"
)

// TableName is the name of our table, one of each family.
const TableName = "ovn-k8s"

// ErrUnreadable means that our table cannot be read, ErrUnwritable that nft does not work and is needed.
var (
	ErrUnreadable = errors.New("cannot read table " + TableName + " of nftables")
	ErrUnwritable = errors.New("cannot write rules of nftables")
)

// ErrSlow means that nft did not answer in time: it may work later, on a host with less load.
var ErrSlow = fmt.Errorf("killed, because it was not done within %v", trialTimeout)

// A Table makes objects of our table of one family equal to wanted ones. It remembers what it wrote, and reads the
// table again only if another program has changed something since, see Generations. So a change costs what it changes: parts
// of the wanted table that were written before are not compared again.
//
// The comment of each rule ends with a hash of its text, by which it is recognized: nft prints a rule differently from
// version to version. A release that changes the hook of a base chain, or the type of a set, must rename it.
//
// The text of rules is the work of nft. Rules of statements and elements are changed, and objects deleted, without it.
type Table struct {
	kernel
	generations *Generations

	finding sync.Mutex // guards nft, program, failed and slow
	nft     knftables.Interface
	program program // of nft, or of failed
	failed  failure
	slow    int // tries in a row with ErrSlow

	mu    sync.Mutex
	state *state // nil: unknown
	at    uint32 // generation of state
	reads int    // see Reads
}

// A program is a file of a time.
type program struct {
	path     string
	modified time.Time
}

// A failure is why a program did not work.
type failure struct {
	err error
	at  time.Time
}

// trialTimeout bounds the time to find out whether nft works.
const trialTimeout = 10 * time.Second

// maxSlow is the number of tries after which a slow nft counts as one that does not work: it hangs.
const maxSlow = 6

// syncTimeout bounds a call of Sync. nft takes seconds for the rules of 10 000 Services.
const syncTimeout = time.Minute

// retryInterval is the time until a program that failed is tried again, unless it is another file by then. A try takes
// several processes, and each change of rules asks.
const retryInterval = 10 * time.Second

// NewTable returns our table of a family. generation returns the number of changes of the kernel's ruleset.
func NewTable(family netip.Addr, generation func() (uint32, error)) *Table {
	return NewGenerations(generation).NewTable(family)
}

// Works returns nil if nft can write our rules, and otherwise an error that says what is missing. Until it works, it is
// tried again and again; later calls look only whether the program is still there.
func (t *Table) Works() error {
	_, err := t.find()
	return err
}

func (t *Table) find() (knftables.Interface, error) {
	t.finding.Lock()
	defer t.finding.Unlock()
	var now program
	if path, err := exec.LookPath("nft"); err == nil {
		now.path = path
		if info, err := os.Stat(path); err == nil {
			now.modified = info.ModTime()
		}
	}
	switch {
	case now == t.program && t.nft != nil:
		return t.nft, nil
	case now == t.program && t.failed.err != nil && time.Since(t.failed.at) < retryInterval:
		return nil, t.failed.err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), trialTimeout, ErrSlow)
	defer cancel()
	nft, err := open(ctx, t.family)
	switch {
	case !errors.Is(err, ErrSlow):
		t.slow = 0
	case t.slow < maxSlow:
		t.slow++
	default:
		err = errors.New(err.Error())
	}
	t.nft, t.program, t.failed = nft, now, failure{err, time.Now()}
	return nft, err
}

// open finds nft and checks that it works.
func open(ctx context.Context, family netip.Addr) (knftables.Interface, error) {
	f := knftables.IPv4Family
	if family.Is6() {
		f = knftables.IPv6Family
	}
	err := answers(ctx, f)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("nftables does not work here: nft: %w", context.Cause(ctx))
	}
	var nft knftables.Interface
	if err == nil {
		nft, err = knftables.New(f, TableName)
	}
	if err != nil {
		return nil, fmt.Errorf("nftables does not work here: %s: %s (1.0.1 or later)", usable.Flat(err), platform.Host(os.ReadFile).Remedy(platform.NFTables))
	}
	if err := usable.Check(ctx, nft, family); err != nil {
		return nil, err
	}
	return nft, nil
}

// answers runs what knftables.New runs without a timeout: nft may hang.
func answers(ctx context.Context, family knftables.Family) error {
	cmd := exec.CommandContext(ctx, "nft", "--check", fmt.Sprintf("add table %s %s", family, TableName))
	cmd.WaitDelay = time.Second // for children of a script, which keep its output open
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("could not run nft (%w) %s", err, out)
	}
	return nil
}

// attempts bounds the tries of Sync, since other programs may change the table at the same time.
const attempts = 3

// Sync makes the objects whose names have a prefix equal to wanted ones, all at once or not at all, unless there are too many
// new ones, or the kernel refuses them: see inSteps. It returns the changes, one command a line, and reports whether it had to
// read the table. An empty table is deleted.
func (t *Table) Sync(ctx context.Context, prefix string, want ruleset.Table) (changes []string, read bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, syncTimeout, fmt.Errorf("nft was killed, because it was not done within %v", syncTimeout))
	defer cancel()
	changes, read, err = t.try(ctx, prefix, want, maxNew, attempts)
	if err == nil || ctx.Err() != nil || len(want.Parts) == 0 || errors.Is(err, ErrUnwritable) || errors.Is(err, ErrUnreadable) {
		return changes, read, err
	}
	s := steps{Table: t, prefix: prefix, want: want, read: read}
	err = s.run(ctx)
	return s.changes, s.read, err
}

// try is Sync in one transaction of at most so many new objects, tried up to so many times.
func (t *Table) try(ctx context.Context, prefix string, want ruleset.Table, most, times int) (changes []string, read bool, err error) {
	for range times {
		var again bool
		changes, again, err = t.sync(ctx, prefix, want, most)
		read = read || again
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrUnwritable) || errors.Is(err, errLarge) || errors.Is(err, unix.EMSGSIZE) {
			return changes, read, err
		}
		t.state = nil
	}
	return nil, read, fmt.Errorf("changing table %s of nftables: %w", TableName, err)
}

func (t *Table) sync(ctx context.Context, prefix string, want ruleset.Table, most int) (changes []string, read bool, err error) {
	p, read, err := t.plan(prefix, want)
	switch {
	case err != nil:
		return nil, read, err
	case len(p.newSets)+len(p.newChains) > most && len(want.Parts) > 1:
		return nil, read, errLarge
	case p.empty():
		t.state = p.after
		return nil, read, nil
	}
	alone, err := t.generations.change(t.table().Family, t.at, func() error { return t.write(ctx, p) })
	if err != nil {
		return nil, read, err
	}
	t.state = nil
	if alone {
		t.state, t.at = p.after, t.at+1
	}
	return p.lines(), read, nil
}

// write carries out a plan, in one transaction.
func (t *Table) write(ctx context.Context, p *plan) error {
	if !p.needsNFT() {
		return t.apply(p)
	}
	nft, err := t.find()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	tx, err := p.transaction(nft, t.kernel)
	if err != nil {
		return err
	}
	if err := nft.Run(ctx, tx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

// Plan returns the changes that Sync would make.
func (t *Table) Plan(prefix string, want ruleset.Table) ([]string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, _, err := t.plan(prefix, want)
	if err != nil {
		return nil, err
	}
	return p.lines(), nil
}

// Has reports whether the table has a set or map.
func (t *Table) Has(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.refresh(); err != nil {
		return false
	}
	t.state.absorb("")
	_, set := t.state.sets[name]
	_, isMap := t.state.maps[name]
	return set || isMap
}

// There reports whether the table exists.
func (t *Table) There() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.refresh()
	return err == nil && t.state.there
}

// Reads is the number of times that the table was read: once, and again after each change of another program that was
// noticed.
func (t *Table) Reads() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reads
}

// plan compares the table with the wanted objects, and reports whether it has read the table.
func (t *Table) plan(prefix string, want ruleset.Table) (*plan, bool, error) {
	read, err := t.refresh()
	if err != nil {
		return nil, read, err
	}
	t.state.absorb(prefix)
	have, rest := t.state.against(prefix, want)
	for _, s := range rest.Sets {
		have.parse(s, t.family)
	}
	p := compare(have, prefix, rest)
	p.after = t.state.written(prefix, want)
	p.first, p.last = !have.there, have.there && !p.after.there
	return p, read, nil
}

// refresh reads the table again if another program has changed something, and reports whether it did.
func (t *Table) refresh() (read bool, err error) {
	now, same, err := t.generations.sameTable(t.table().Family, t.at)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if t.state != nil && same {
		t.at = now
		return false, nil
	}
	t.reads++
	if err := t.readWhole(now); err != nil {
		return true, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return true, nil
}

// readWhole reads the table as it was at one moment, if other programs leave such a moment.
func (t *Table) readWhole(now uint32) (err error) {
	t.state = nil
	for range attempts {
		state, err := t.read()
		if err != nil {
			return err
		}
		t.state, t.at = state, now
		if now, err = t.generations.read(); err != nil || now == t.at {
			return err
		}
	}
	return nil
}
