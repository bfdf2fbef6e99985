// Package iptables makes our chains equal to lists of rules.
//
// Tables are read with iptables-save and the contents of our chains written with one iptables-restore. go-iptables
// would write them rule by rule, with a process each: seconds for the thousands of chains of 500 Services, and
// packets would meet incomplete chains. It is used for the rest: finding the program for a family, locking, the few
// jumps from built-in chains, and deleting the chains they lead to. A jump is added after its chain is complete and
// deleted before its chain.
package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	goiptables "github.com/coreos/go-iptables/iptables"
)

// A Chain is one of our chains.
type Chain struct {
	Table, Name string // "nat", "OVN-K8S-GATEWAY"
	// From is the built-in chain with a jump to this chain as its first rule; empty: no jump. Match restricts the
	// jump to some packets; empty: all packets.
	From, Match string
	// Rules in order, as "iptables -S" prints them after "-A NAME ", as in "-s 10.0.0.0/8 -p tcp -m tcp --dport 80 -j
	// ACCEPT". A rule spelled differently works, but is rewritten by every Sync.
	Rules []string
	// IfDrops: the chain is wanted only while From drops packets by default.
	IfDrops bool
}

// jump is the rule in From that leads to the chain.
func (c Chain) jump() string {
	if c.Match == "" {
		return "-j " + c.Name
	}
	return c.Match + " -j " + c.Name
}

// searched lists the tables in which Sync looks for obsolete chains.
var searched = []string{"filter", "mangle", "nat"}

// wait is the timeout for the xtables lock, in seconds.
const wait = 20

// timeout bounds a run of a program: it includes wait, and reading or writing the rules of 10 000 Services.
const timeout = time.Minute

// ErrUnreadable means that a table cannot be read, perhaps for lack of a kernel module.
var ErrUnreadable = errors.New("cannot read table")

// A Firewall is iptables or ip6tables.
type Firewall struct {
	tool          *goiptables.IPTables
	save, restore string // programs unknown to go-iptables
	announces     bool
}

// Announces reports whether the kernel announces changes of the rules: not those of iptables-legacy.
func (f *Firewall) Announces() bool { return f.announces }

// RandomFully reports whether the target MASQUERADE supports --random-fully. Without it, two connections may choose
// the same source port at the same time.
func (f *Firewall) RandomFully() bool { return f.tool.HasRandomFully() }

// HasKubeProxy reports whether kube-proxy's chain KUBE-SERVICES has rules. It is false if the table cannot be read.
func (f *Firewall) HasKubeProxy() bool {
	if !f.has("nat") {
		return false
	}
	rules, err := f.tool.List("nat", "KUBE-SERVICES")
	return err == nil && len(rules) > 1 // the first declares the chain
}

// Rules returns the rules of a chain, none if it does not exist.
func (f *Firewall) Rules(table, chain string) (rules []string, err error) {
	if !f.has(table) {
		return nil, nil
	}
	there, err := f.tool.ChainExists(table, chain)
	if err != nil || !there {
		return nil, flat(err)
	}
	lines, err := f.tool.List(table, chain)
	for _, line := range lines {
		if rule, ok := strings.CutPrefix(line, "-A "+chain+" "); ok {
			rules = append(rules, rule)
		}
	}
	return rules, flat(err)
}

// HasChain reports whether a chain exists. It is false if the table cannot be read.
func (f *Firewall) HasChain(table, chain string) bool {
	if !f.has(table) {
		return false
	}
	there, err := f.tool.ChainExists(table, chain)
	return err == nil && there
}

// Sync makes the chains with this name prefix equal to the given ones. In other chains it changes only jumps to them.
// The contents of all chains of a table change at once or not at all. It returns the changes, formatted as by Plan.
// It retries for up to 3 s, since other programs may change a table between reading and writing.
func (f *Firewall) Sync(ctx context.Context, prefix string, chains []Chain) ([]string, error) {
	var all []string
	b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(20*time.Millisecond), backoff.WithMaxElapsedTime(retryTime))
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

// retryTime bounds the retries of Sync.
const retryTime = 3 * time.Second

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

// Plan returns the changes that Sync would make, one command a line.
func (f *Firewall) Plan(ctx context.Context, prefix string, chains []Chain) ([]string, error) {
	plans, err := f.plan(ctx, prefix, chains)
	var lines []string
	for _, p := range plans {
		lines = append(lines, p.lines()...)
	}
	return lines, err
}

// A plan is the list of changes to one table, in this order.
type plan struct {
	table    string
	flush    []string // chains to be created or emptied
	commands []string // rules, restored together with flush
	undo     []jump   // jumps to be deleted
	jumps    []jump   // jumps to be added
	gone     []string // chains to be deleted after their jumps
}

// A jump is a rule of another chain that leads to one of ours.
type jump struct {
	from string
	at   int // index for insertion, from 1
	rule string
}

func (p plan) empty() bool {
	return len(p.flush)+len(p.commands)+len(p.undo)+len(p.jumps)+len(p.gone) == 0
}

// apply carries a plan out. The commands of go-iptables are idempotent.
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

// flat formats an error of go-iptables on one line.
func flat(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(oneLine(err.Error()))
}

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

// input formats flush and commands for iptables-restore(8).
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

// lines formats the plan for people.
func (p plan) lines() []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, p.table+": "+fmt.Sprintf(format, args...)) }
	for _, c := range p.commands {
		add("%s", c)
	}
	for _, j := range p.undo {
		add("-D %s %s", j.from, j.rule)
	}
	for _, j := range p.jumps {
		add("-I %s %d %s", j.from, j.at, j.rule)
	}
	for _, name := range p.gone {
		add("-X %s", name)
	}
	return out
}

// plan compares each table with its desired chains.
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
		if !f.has(table) && !slices.ContainsFunc(want[table], func(c Chain) bool { return !c.IfDrops }) {
			continue
		}
		have, err := f.read(ctx, table, prefix, want[table])
		if err != nil {
			return nil, fmt.Errorf("%w %s: %w", ErrUnreadable, table, err)
		}
		needed := slices.DeleteFunc(want[table], func(c Chain) bool { return c.IfDrops && !have.drops(c.From) })
		if p := have.compare(table, needed); !p.empty() {
			plans = append(plans, p)
		}
	}
	return plans, nil
}

// A state is the actual state of a table: our chains, and the jumps to them.
type state struct {
	chains map[string][]string // rules by name
	jumps  map[string][]string // rules by the name of the chain they are in
	// always has the targets of rules without a match, by chain, and the policies of built-in chains at last.
	always map[string][]string
}

// drops reports whether a chain drops packets that no rule with a match has accepted.
func (s state) drops(chain string) bool { return s.verdict(chain) == "DROP" }

// verdict is DROP or ACCEPT for packets that match no rule with a match, "" if a chain returns.
func (s state) verdict(chain string) string {
	targets := s.always[chain]
	for _, target := range targets {
		if target == "RETURN" { // a built-in chain applies its policy
			target = targets[len(targets)-1]
		}
		switch target {
		case "DROP", "REJECT":
			return "DROP"
		case "ACCEPT":
			return target
		case "-", "RETURN":
			return ""
		}
		if v := s.verdict(target); v != "" { // the kernel refuses loops
			return v
		}
	}
	return ""
}

func (f *Firewall) read(ctx context.Context, table, prefix string, want []Chain) (state, error) {
	s := state{chains: map[string][]string{}, jumps: map[string][]string{}, always: map[string][]string{}}
	policies := map[string]string{}
	text, err := run(ctx, "", f.save, "-t", table)
	if err == nil && incompatible(text, table) {
		text, err = f.saveEach(table, want)
	}
	if err != nil {
		return s, err
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if chain, ok := strings.CutPrefix(line, ":"); ok {
			name, policy, _ := strings.Cut(chain, " ")
			policies[name], _, _ = strings.Cut(policy, " ")
		}
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
		default:
			s.followed(name, rule)
		}
	}
	for name, policy := range policies {
		s.always[name] = append(s.always[name], policy)
	}
	return s, nil
}

// followed records a rule of another program, if all packets match it. A comment is no match.
func (s state) followed(chain, rule string) {
	w := words(rule)
	for len(w) > 4 && w[0] == "-m" && w[1] == "comment" && w[2] == "--comment" {
		w = w[4:]
	}
	if len(w) > 1 && (w[0] == "-j" || w[0] == "-g") {
		s.always[chain] = append(s.always[chain], w[1])
	}
}

// compare plans the changes from s to the wanted chains. A chain that differs is rewritten as a whole; nothing is
// visible before COMMIT.
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

// compareJumps plans the jumps. have and want are keyed by the chain containing the jump. If the jumps of a chain
// differ, even in order, all of them are replaced.
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

// remove plans the deletion of obsolete chains. All are emptied first, since they may refer to each other. Chains
// without a jump from elsewhere are deleted in the same transaction; a Service has many of them.
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

// target is the chain a rule jumps to.
func target(rule string) string {
	all := words(rule)
	for i := 1; i < len(all); i++ {
		if all[i-1] == "-j" || all[i-1] == "-g" {
			return all[i]
		}
	}
	return ""
}

// run runs a program with input on stdin, for a bounded time, and returns its output.
func run(ctx context.Context, input, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("killed, because it was not done within %v", timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second // for children of the program, which keep its output open
	cmd.Stdin = strings.NewReader(input)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	switch said := oneLine(stderr.String()); {
	case err == nil:
		return out.String(), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w", name, context.Cause(ctx))
	case said == "":
		return "", fmt.Errorf("%s: %w", name, err)
	default:
		return "", fmt.Errorf("%s: %w: %s", name, err, said)
	}
}
