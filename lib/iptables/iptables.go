// Package iptables makes chains of ours equal to lists of rules.
//
// go-iptables finds the program of a family and waits for others that use it; it
// makes and takes back the jumps from built-in chains, and removes the chains
// that they lead to: there are few of these. What is in chains, it could only
// write rule by rule, with a program for each: packets would meet half of a chain,
// and 500 Services, which have thousands of chains, took seconds. So a table is
// read by one iptables-save, and what our chains contain is written by one
// iptables-restore. A jump is made after its chain is complete and taken back
// before that is gone.
package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	goiptables "github.com/coreos/go-iptables/iptables"

	"ovn-k8s/lib/ipnet"
)

// A Chain is a chain of ours.
type Chain struct {
	Table, Name string // "nat", "OVN-K8S-GATEWAY"
	// From is the built-in chain that jumps here with its first rule, for the
	// packets that Match says: all if it is empty. An empty From makes no jump.
	From, Match string
	// Rules are in order, and written as "iptables -S" prints them after
	// "-A NAME ", as in "-s 10.0.0.0/8 -p tcp -m tcp --dport 80 -j ACCEPT". A rule
	// in another spelling works, but is written anew with each Sync.
	Rules []string
}

// jump is the rule in From that leads to the chain.
func (c Chain) jump() string {
	if c.Match == "" {
		return "-j " + c.Name
	}
	return c.Match + " -j " + c.Name
}

// searched lists the tables in which Sync looks for chains that are not wanted.
var searched = []string{"filter", "mangle", "nat"}

// wait is for how many seconds the programs wait for each other.
const wait = 20

// ErrUnreadable says that a table cannot be read: perhaps the kernel does not have
// what it needs.
var ErrUnreadable = errors.New("cannot read table")

// A Firewall is iptables or ip6tables.
type Firewall struct {
	tool          *goiptables.IPTables
	save, restore string // programs that go-iptables does not know
}

// New finds the programs for the family of an address.
func New(family netip.Addr) (*Firewall, error) {
	name, protocol := "iptables", goiptables.ProtocolIPv4
	if !ipnet.SameFamily(family, netip.IPv4Unspecified()) {
		name, protocol = "ip6tables", goiptables.ProtocolIPv6
	}
	var f Firewall
	var err error
	if f.tool, err = goiptables.New(goiptables.IPFamily(protocol), goiptables.Timeout(wait)); err == nil {
		f.save, err = exec.LookPath(name + "-save")
	}
	if err == nil {
		f.restore, err = exec.LookPath(name + "-restore")
	}
	if err != nil {
		return nil, fmt.Errorf("looking for iptables: %w: install the package iptables", err)
	}
	return &f, nil
}

// RandomFully reports whether the target MASQUERADE knows --random-fully, which
// avoids that two connections choose the same source port at the same time.
func (f *Firewall) RandomFully() bool { return f.tool.HasRandomFully() }

// HasKubeProxy reports whether the chain of kube-proxy's that leads to Services has rules. A table that cannot be read
// has none.
func (f *Firewall) HasKubeProxy() bool {
	rules, err := f.tool.List("nat", "KUBE-SERVICES")
	return err == nil && len(rules) > 1 // the first declares the chain
}

// Sync makes the chains whose names start with prefix exactly the given ones. Of
// other chains it touches only jumps to them. The contents of all chains of a
// table change at once or not at all. It returns what it changed, as Plan does.
// Another program may change a table between reading and writing: it tries again.
func (f *Firewall) Sync(ctx context.Context, prefix string, chains []Chain) ([]string, error) {
	var all []string
	b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxElapsedTime(patience))
	err := backoff.Retry(func() error {
		done, err := f.sync(ctx, prefix, chains)
		all = append(all, done...)
		if errors.Is(err, ErrUnreadable) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(b, ctx))
	return all, err
}

// patience is for how long Sync tries again.
const patience = 3 * time.Second

func (f *Firewall) sync(ctx context.Context, prefix string, chains []Chain) ([]string, error) {
	plans, err := f.plan(ctx, prefix, chains)
	if err != nil {
		return nil, err
	}
	var done []string
	for _, p := range plans {
		if err := f.apply(ctx, p); err != nil {
			return done, fmt.Errorf("changing table %s: %w", p.table, err)
		}
		done = append(done, p.lines()...)
	}
	return done, nil
}

// Plan says what Sync would change, one command a line.
func (f *Firewall) Plan(ctx context.Context, prefix string, chains []Chain) ([]string, error) {
	plans, err := f.plan(ctx, prefix, chains)
	var lines []string
	for _, p := range plans {
		lines = append(lines, p.lines()...)
	}
	return lines, err
}

// A plan is what has to be done in one table, in this order.
type plan struct {
	table    string
	flush    []string // chains to be made, or emptied
	commands []string // that are done together with that
	undo     []jump   // jumps to be taken back
	jumps    []jump   // jumps to be made
	gone     []string // chains to be removed after their jumps
}

// A jump is a rule of another chain that leads to one of ours.
type jump struct {
	from string
	at   int // where it is inserted, from 1
	rule string
}

func (p plan) empty() bool {
	return len(p.flush)+len(p.commands)+len(p.undo)+len(p.jumps)+len(p.gone) == 0
}

// apply carries a plan out. What go-iptables does can be done again.
func (f *Firewall) apply(ctx context.Context, p plan) error {
	if len(p.flush)+len(p.commands) > 0 {
		if _, err := run(ctx, p.input(), f.restore, "--noflush", "--wait", fmt.Sprint(wait)); err != nil {
			return err
		}
	}
	for _, j := range p.undo {
		if err := f.tool.DeleteIfExists(p.table, j.from, words(j.rule)...); err != nil {
			return flat(err)
		}
	}
	for _, j := range p.jumps {
		if err := f.tool.InsertUnique(p.table, j.from, j.at, words(j.rule)...); err != nil {
			return flat(err)
		}
	}
	for _, name := range p.gone {
		if err := f.tool.ClearAndDeleteChain(p.table, name); err != nil {
			return flat(err)
		}
	}
	return nil
}

// flat makes go-iptables' errors one line.
func flat(err error) error { return errors.New(oneLine(err.Error())) }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// words splits a rule as iptables-save quotes it.
func words(rule string) []string {
	var out []string
	var word []rune
	started, quoted, escaped := false, false, false
	for _, r := range rule {
		switch {
		case escaped:
			word, escaped = append(word, r), false
		case r == '\\':
			escaped = true
		case r == '"':
			quoted, started = !quoted, true
		case r != ' ' || quoted:
			word, started = append(word, r), true
		case started:
			out, word, started = append(out, string(word)), nil, false
		}
	}
	if started {
		out = append(out, string(word))
	}
	return out
}

// input is the first part of the plan for iptables-restore(8).
func (p plan) input() string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", p.table)
	for _, chain := range p.flush {
		fmt.Fprintf(&b, ":%s - [0:0]\n", chain)
	}
	for _, c := range p.commands {
		b.WriteString(c + "\n")
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// lines is the plan for people.
func (p plan) lines() []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, p.table+": "+fmt.Sprintf(format, args...)) }
	for _, c := range p.commands {
		say("%s", c)
	}
	for _, j := range p.undo {
		say("-D %s %s", j.from, j.rule)
	}
	for _, j := range p.jumps {
		say("-I %s %d %s", j.from, j.at, j.rule)
	}
	for _, name := range p.gone {
		say("-X %s", name)
	}
	return out
}

// plan compares each table with what it should be.
func (f *Firewall) plan(ctx context.Context, prefix string, chains []Chain) ([]plan, error) {
	want := map[string][]Chain{}
	for _, table := range searched {
		want[table] = nil
	}
	for _, c := range chains {
		want[c.Table] = append(want[c.Table], c)
	}
	var plans []plan
	for _, table := range slices.Sorted(maps.Keys(want)) {
		have, err := f.read(ctx, table, prefix)
		if err != nil {
			return nil, fmt.Errorf("%w %s: %w", ErrUnreadable, table, err)
		}
		if p := have.compare(table, want[table]); !p.empty() {
			plans = append(plans, p)
		}
	}
	return plans, nil
}

// A state is what a table has: the chains of ours, and jumps to them.
type state struct {
	chains map[string][]string // rules by name
	jumps  map[string][]string // rules by the name of the chain that has them
}

// read reads a table.
func (f *Firewall) read(ctx context.Context, table, prefix string) (state, error) {
	s := state{chains: map[string][]string{}, jumps: map[string][]string{}}
	text, err := run(ctx, "", f.save, "-t", table)
	if err != nil {
		return s, err
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, ":"+prefix); ok {
			name, _, _ = strings.Cut(prefix+name, " ")
			s.chains[name] = nil
			continue
		}
		line, ok := strings.CutPrefix(line, "-A ")
		name, rule, ok2 := strings.Cut(line, " ")
		switch {
		case !ok || !ok2:
		case strings.HasPrefix(name, prefix):
			s.chains[name] = append(s.chains[name], rule)
		case strings.Contains(rule, "-j "+prefix) || strings.Contains(rule, "-g "+prefix):
			s.jumps[name] = append(s.jumps[name], rule)
		}
	}
	return s, nil
}

// compare plans what turns s into the wanted chains. A chain that differs is
// written anew; within one COMMIT nobody sees it empty.
func (s state) compare(table string, want []Chain) plan {
	p := plan{table: table}
	wanted, jumps := map[string]bool{}, map[string][]string{}
	for _, c := range want {
		wanted[c.Name] = true
		if c.From != "" {
			jumps[c.From] = append(jumps[c.From], c.jump())
		}
		rules, there := s.chains[c.Name]
		if there && slices.Equal(rules, c.Rules) {
			continue
		}
		p.flush = append(p.flush, c.Name)
		for _, r := range c.Rules {
			p.commands = append(p.commands, "-A "+c.Name+" "+r)
		}
	}
	p.compareJumps(s.jumps, jumps)
	p.remove(s, wanted)
	return p
}

// compareJumps plans the jumps, both by the chains that have them. Where they
// differ in anything, and be it their order, all are made anew: it is the first
// time, the last, or somebody else has changed them.
func (p *plan) compareJumps(have, want map[string][]string) {
	parents := maps.Clone(have)
	maps.Copy(parents, want)
	for _, from := range slices.Sorted(maps.Keys(parents)) {
		if slices.Equal(have[from], want[from]) {
			continue
		}
		for _, r := range have[from] {
			p.undo = append(p.undo, jump{from: from, rule: r})
		}
		for i, r := range want[from] {
			p.jumps = append(p.jumps, jump{from, i + 1, r})
		}
	}
}

// remove plans the end of chains that are not wanted. They are emptied at once, so
// that none leads to another. Those that nothing else jumps to go then too; a
// Service has many of these.
func (p *plan) remove(s state, wanted map[string]bool) {
	entries := map[string]bool{}
	for _, rules := range s.jumps {
		for _, r := range rules {
			entries[target(r)] = true
		}
	}
	var last []string
	for _, name := range slices.Sorted(maps.Keys(s.chains)) {
		if wanted[name] {
			continue
		}
		p.commands = append(p.commands, "-F "+name)
		if entries[name] {
			p.gone = append(p.gone, name)
			continue
		}
		last = append(last, "-X "+name)
	}
	p.commands = append(p.commands, last...)
}

// target is the chain that a rule jumps to.
func target(rule string) string {
	all := words(rule)
	for i := 1; i < len(all); i++ {
		if all[i-1] == "-j" || all[i-1] == "-g" {
			return all[i]
		}
	}
	return ""
}

// run runs a program with an input and returns its output.
func run(ctx context.Context, input, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, oneLine(complaint.String()))
	}
	return out.String(), nil
}
