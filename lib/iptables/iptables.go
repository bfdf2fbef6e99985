// Package iptables makes chains of ours equal to lists of rules, with one
// iptables-restore per table, so that no packet meets half of them. A table is
// read by one iptables-save: a node of many Services has thousands of chains,
// and go-iptables, which runs a program for each, took seconds for 500 of them.
package iptables

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

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

// A Firewall is iptables or ip6tables.
type Firewall struct{ save, restore string }

// New finds the programs for the family of an address.
func New(family netip.Addr) (*Firewall, error) {
	name := "iptables"
	if !ipnet.SameFamily(family, netip.IPv4Unspecified()) {
		name = "ip6tables"
	}
	save, err := exec.LookPath(name + "-save")
	if err != nil {
		return nil, fmt.Errorf("looking for iptables: %w: install the package iptables", err)
	}
	restore, err := exec.LookPath(name + "-restore")
	if err != nil {
		return nil, fmt.Errorf("looking for iptables: %w: install the package iptables", err)
	}
	return &Firewall{save, restore}, nil
}

// Sync makes the chains whose names start with prefix exactly the given ones. Of
// other chains it touches only jumps to them. It is done for each table at once
// or not at all. It returns what it changed, as Plan does.
func (f *Firewall) Sync(ctx context.Context, prefix string, chains []Chain) ([]string, error) {
	plans, err := f.plan(ctx, prefix, chains)
	if err != nil {
		return nil, err
	}
	var done []string
	for _, p := range plans {
		if _, err := run(ctx, p.input(), f.restore, "--noflush", "--wait", fmt.Sprint(wait)); err != nil {
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

// A plan is what has to be done in one table.
type plan struct {
	table    string
	flush    []string // chains to be made, or emptied
	commands []string
}

// input is the plan for iptables-restore(8).
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
	for _, c := range p.commands {
		out = append(out, p.table+": "+c)
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
			return nil, fmt.Errorf("reading table %s: %w", table, err)
		}
		if p := have.compare(table, want[table]); len(p.flush)+len(p.commands) > 0 {
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
	parents := maps.Clone(s.jumps)
	maps.Copy(parents, jumps)
	for _, from := range slices.Sorted(maps.Keys(parents)) {
		if slices.Equal(s.jumps[from], jumps[from]) {
			continue
		}
		for _, r := range s.jumps[from] {
			p.commands = append(p.commands, "-D "+from+" "+r)
		}
		for i, r := range jumps[from] {
			p.commands = append(p.commands, fmt.Sprintf("-I %s %d %s", from, i+1, r))
		}
	}
	var gone []string
	for _, name := range slices.Sorted(maps.Keys(s.chains)) {
		if !wanted[name] {
			p.commands = append(p.commands, "-F "+name)
			gone = append(gone, "-X "+name) // once nothing refers to it
		}
	}
	p.commands = append(p.commands, gone...)
	return p
}

// run runs a program with an input and returns its output.
func run(ctx context.Context, input, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.Join(strings.Fields(complaint.String()), " "))
	}
	return out.String(), nil
}
