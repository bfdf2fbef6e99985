// Package firewall keeps the rules of a host in nftables or in iptables, as the setting firewall chooses.
package firewall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/localgateway"
	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/iptables"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/link/notify"
	"ovn-k8s/lib/nftables"
	"ovn-k8s/lib/nftables/hold"
	"ovn-k8s/lib/ruleset"
)

// Rules are rules of one family that can be rendered.
type Rules interface {
	// Chains renders for iptables, and Table for nftables.
	Chains(randomFully bool) []nodeport.Chain
	Table() ruleset.Table
	// Accepts are the chains of iptables needed beside Table: an accept of nftables does not overrule another firewall's
	// chain of iptables that drops.
	Accepts() []nodeport.Chain
}

// A Scope is a part of our rules, by prefixes of names. Only names of a scope are changed.
type Scope struct{ chains, objects string }

// The scopes. Services includes all but Local.
var (
	Services = Scope{nodeport.ChainPrefix, nodeport.ObjectPrefix}
	Claimed  = Scope{nodeport.ClaimedChain, nodeport.ClaimedObject}
	stray    = Scope{nodeport.StrayChain, nodeport.StrayObject}
	Local    = Scope{localgateway.ChainPrefix, localgateway.ObjectPrefix}
)

// ErrMissing means that the program of the setting does not work.
var ErrMissing = errors.New("no packet filter for the rules of this host")

// ErrRefused means: the kernel refuses rules of some Services, named by the error. All others are written.
var ErrRefused = nftables.ErrRefused

// A Firewall is the packet filter of one family, as a setting chooses. It looks for the programs until they work, and
// whether they still do.
type Firewall struct {
	family  netip.Addr
	setting string // see config.Config
	once    bool   // for one command, which does not wait for a slow program
	changes *nftables.Generations
	// tidied says when a scope of a program without our rules was written.
	tidied map[tidyKey]tidied

	finding sync.Mutex // guards found
	found   programs
}

// A tidyKey is a scope in iptables, or without one in nftables.
type tidyKey struct {
	Scope
	tool *iptables.Firewall
}

// tidied has the chains of iptables beside rules in nftables, and the number of changes of other programs by then.
type tidied struct {
	done    bool
	changes int
	accepts []iptables.Chain
}

// programs are the programs of a Firewall, nil for those that do not work. That of the setting has the rules. iptables also
// has accepting rules beside those of nftables. Otherwise the other program is used only to remove what a process with
// another setting has left.
type programs struct {
	chosen   string // config.NFTables or config.IPTables; with config.AnyFirewall "" until one of them works
	iptables *iptables.Firewall
	other    *iptables.Firewall // of the other variant
	table    *nftables.Table
	why      string // for chosen
}

func (p programs) nft() bool { return p.chosen == config.NFTables }

// all are the variants of iptables.
func (p programs) all() (tools []*iptables.Firewall) {
	for _, tool := range []*iptables.Firewall{p.iptables, p.other} {
		if tool != nil {
			tools = append(tools, tool)
		}
	}
	return tools
}

// beside are the variants of iptables without our rules: they have accepting ones at most.
func (p programs) beside() []*iptables.Firewall {
	return slices.DeleteFunc(p.all(), func(tool *iptables.Firewall) bool { return !p.nft() && tool == p.iptables })
}

// noticed counts changes of other programs that were noticed.
func (p programs) noticed() int {
	if p.nft() {
		return p.table.Reads()
	}
	generation, _ := link.PacketFilterGeneration() // only iptables-legacy works without nf_tables
	return int(generation)
}

// New returns the packet filter of a family that a setting chooses.
func New(setting string, family netip.Addr) *Firewall { return NewFamilies(setting, family)[0] }

// NewFamilies returns the packet filters of some families, which do not take each other's changes of nftables for those of
// other programs.
func NewFamilies(setting string, families ...netip.Addr) (all []*Firewall) {
	changes := nftables.NewGenerations(link.PacketFilterGeneration)
	for _, family := range families {
		f := &Firewall{family: family, setting: setting, changes: changes, tidied: map[tidyKey]tidied{}}
		f.found.table = changes.NewTable(family)
		if setting != config.AnyFirewall {
			f.found.chosen, f.found.why = setting, "as the setting ovn-k8s-firewall says"
		}
		all = append(all, f)
	}
	return all
}

// FollowOthers calls changed once it follows, and after each change of nftables by other programs, including iptables-nft,
// until ctx ends. Those of packet filters made by one call of NewFamilies are ours. iptables-legacy sends no notifications.
func (f *Firewall) FollowOthers(ctx context.Context, changed func()) error {
	return notify.PacketFilter(ctx, f.changes.Others(changed))
}

// find returns the programs that work. The error is ErrMissing, with a reason and remedy, if the rules have no program.
func (f *Firewall) find() (programs, error) {
	f.finding.Lock()
	defer f.finding.Unlock()
	err, err2 := f.findIPTables(), f.found.table.Works()
	switch {
	case f.setting == config.AnyFirewall && err2 == nil: // also later, such as once the kernel has loaded nf_tables
		f.found.chosen, f.found.why = config.NFTables, "since nft works here"
	case f.setting == config.AnyFirewall && errors.Is(err2, nftables.ErrSlow) && f.found.table.There():
		if f.found.chosen == "" {
			f.found.chosen, f.found.why = config.NFTables, "since they are there"
		}
	case f.setting == config.AnyFirewall && errors.Is(err2, nftables.ErrSlow) && !f.once: // a loaded host, as after a boot: no other choice yet
	case f.setting == config.AnyFirewall && err == nil: // also if nft is removed
		f.found.chosen, f.found.why = config.IPTables, "since "+err2.Error()
	}
	switch {
	case f.found.chosen == "" && err == nil:
		return f.found, fmt.Errorf("%w: %w: trying again", ErrMissing, err2)
	case f.found.chosen == "":
		return f.found, fmt.Errorf("%w: %w; %w", ErrMissing, err2, err)
	case f.found.nft() && err2 != nil:
		return f.found, fmt.Errorf("%w: %w, or set external_ids:ovn-k8s-firewall=iptables", ErrMissing, err2)
	case !f.found.nft() && err != nil:
		return f.found, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	return f.found, nil
}

// findIPTables finds both variants of iptables. The error is about the one that this host prefers.
func (f *Firewall) findIPTables() (err error) {
	p := &f.found
	if p.iptables != nil && p.iptables.Gone() {
		p.iptables, p.other = nil, nil
	}
	if p.iptables == nil {
		if p.iptables, err = iptables.New(f.family); err != nil {
			p.iptables = nil
			return err
		}
	}
	if p.other != nil && p.other.Gone() {
		p.other = nil
	}
	if p.other == nil {
		if other, err := p.iptables.Other(); err == nil { // many hosts have one variant only
			p.other = other
		}
	}
	return nil
}

// AcceptsInIPTables reports whether the tables that iptables has in nftables get the rules that accept packets of pods.
func (f *Firewall) AcceptsInIPTables(ctx context.Context) bool {
	found, _ := f.find()
	beside := found.beside()
	return slices.ContainsFunc(found.all(), func(tool *iptables.Firewall) bool {
		return tool.Announces() && !(slices.Contains(beside, tool) && tool.Incompatible(ctx, "filter"))
	})
}

// HoldNAT keeps connections through flushes of all rules, until release. See hold.NAT.
func (f *Firewall) HoldNAT() (release func(), err error) { return hold.NAT(f.family) }

// Choice says which program has the rules, and why: "" before one works.
func (f *Firewall) Choice() string {
	found, err := f.find()
	if err != nil {
		return ""
	}
	return fmt.Sprintf("rules of this host are those of %s, %s", found.chosen, found.why)
}

// Family is an address of the family, unspecified.
func (f *Firewall) Family() netip.Addr { return f.family }

// String is the name of the program and family.
func (f *Firewall) String() string {
	found, _ := f.find()
	return fmt.Sprintf("%s, IPv%d", cmp.Or(found.chosen, f.setting), 4+2*(f.family.BitLen()/128))
}

// HasKubeProxy reports whether kube-proxy has rules in iptables.
func (f *Firewall) HasKubeProxy() bool {
	found, _ := f.find()
	return slices.ContainsFunc(found.all(), (*iptables.Firewall).HasKubeProxy)
}

// Sync makes the rules of a scope equal to wanted ones, nil for none, and returns the changes. Afterwards the other
// program has none of the scope: established connections do not depend on rules, and new ones always find some.
func (f *Firewall) Sync(ctx context.Context, s Scope, want Rules) ([]string, error) {
	found, err := f.find()
	switch {
	case err != nil:
		return f.syncWithout(ctx, s, want, found, err)
	case found.nft():
		changes, _, err := found.table.Sync(ctx, s.objects, tableOf(want))
		if err == nil || errors.Is(err, ErrRefused) {
			err = worse(err, f.tidyChains(ctx, s, found, acceptsOf(want)))
		}
		return changes, err
	}
	changes, err := found.iptables.Sync(ctx, s.chains, found.chains(want))
	if err == nil {
		err = f.tidyTable(ctx, s, found.table)
	}
	if err == nil {
		err = f.tidyChains(ctx, s, found, acceptsOf(want))
	}
	return changes, err
}

// worse adds an error to ErrRefused or nil. The result is not ErrRefused then: not all other rules are written.
func worse(refused, err error) error {
	switch {
	case err == nil:
		return refused
	case refused == nil:
		return err
	}
	return fmt.Errorf("%w; %v", err, refused)
}

// syncWithout does what needs no program: elements of our table of nftables are changed and objects deleted without nft. It
// returns the error about the missing program if that is not all.
func (f *Firewall) syncWithout(ctx context.Context, s Scope, want Rules, found programs, missing error) ([]string, error) {
	if found.chosen == config.IPTables && want != nil {
		return nil, missing
	}
	changes, _, err := found.table.Sync(ctx, s.objects, tableOf(want))
	if err != nil || found.chosen == config.IPTables {
		return changes, missing
	}
	return changes, nil
}

// tidyTable removes a scope from nftables, once. A kernel without nf_tables has none.
func (f *Firewall) tidyTable(ctx context.Context, s Scope, table *nftables.Table) error {
	key := tidyKey{Scope: s}
	if f.tidied[key].done {
		return nil
	}
	_, _, err := table.Sync(ctx, s.objects, ruleset.Table{})
	if errors.Is(err, nftables.ErrUnreadable) {
		return nil
	}
	f.tidied[key] = tidied{done: err == nil}
	return err
}

// tidyChains removes a scope from the variants of iptables without our rules, but for the accepting chains that are needed
// there, again after each change of another program. Tables that cannot be read, as without their kernel modules, drop
// nothing and have no chains of ours.
func (f *Firewall) tidyChains(ctx context.Context, s Scope, found programs, accepts []iptables.Chain) error {
	if found.nft() {
		delete(f.tidied, tidyKey{Scope: s})
	}
	for _, tool := range found.beside() {
		key, now := tidyKey{s, tool}, tidied{true, found.noticed(), accepts}
		if tool.Announces() && reflect.DeepEqual(f.tidied[key], now) {
			continue
		}
		_, err := tool.Sync(ctx, s.chains, accepts)
		if err != nil && !errors.Is(err, iptables.ErrUnreadable) {
			return err
		}
		f.tidied[key] = now
	}
	return nil
}

// SyncEarly reconciles the rules that do not depend on Services, of a host that does not know them yet: the guard of
// pods, the exceptions for servers, and the rules for a shared NIC, which are deleted on a host without one.
func (f *Firewall) SyncEarly(ctx context.Context, h nodeport.Host) error {
	if err := f.Guard(ctx, h); err != nil {
		return err
	}
	if err := f.spareServers(ctx, h); err != nil || h.Shared != "" {
		return err
	}
	_, err := f.Sync(ctx, stray, nil)
	return err
}

// Guard makes the guard of pods, once the management port is known.
func (f *Firewall) Guard(ctx context.Context, h nodeport.Host) error {
	guards := nodeport.Guards{Host: h, Family: f.family}
	if len(guards.Chains(false)) == 0 {
		return nil
	}
	_, err := f.Sync(ctx, Claimed, guards)
	return err
}

// spareServers makes the exceptions for servers: for the chosen program, and for rules that a process with another setting,
// or of another release, has left in another one. Those rules stay until the Services are known.
func (f *Firewall) spareServers(ctx context.Context, h nodeport.Host) error {
	found, err := f.find()
	if err != nil {
		return err
	}
	servers := nodeport.Servers{Host: h, Family: f.family}
	if found.nft() || found.table.Has(nodeport.ServersObject) {
		if _, _, err := found.table.Sync(ctx, nodeport.ServersObject, servers.Table()); err != nil {
			return err
		}
	}
	for _, tool := range found.all() {
		servers.Have, err = tool.Rules("nat", nodeport.FrontendsChain)
		if err != nil && (found.nft() || tool != found.iptables) {
			continue // without its kernel module, this table cannot be read, and is empty
		}
		if err == nil && len(servers.Have) > 0 {
			err = spareIn(ctx, tool, servers)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// spareIn makes the exceptions for servers in iptables with rules of Services.
func spareIn(ctx context.Context, tool *iptables.Firewall, servers nodeport.Servers) error {
	refused, err := tool.Rules("filter", nodeport.RefuseChain)
	if err != nil {
		return err
	}
	servers.Have = append(servers.Have, refused...)
	if servers.Spared, err = tool.Rules("nat", nodeport.OutputChain); err != nil {
		return err
	}
	chains := converted(servers.Chains(tool.RandomFully()))
	if !tool.HasChain("filter", nodeport.RefuseChain) { // removed by a move to nftables that was not finished
		chains = slices.DeleteFunc(chains, func(c iptables.Chain) bool { return c.Table == "filter" })
	}
	_, err = tool.Sync(ctx, nodeport.OutputChain, chains)
	return err
}

// Plan returns the changes that Sync would make, as far as its programs are there. A missing program for no changes is no error.
func (f *Firewall) Plan(ctx context.Context, s Scope, want Rules) (lines []string, err error) {
	found, missing := f.find()
	switch {
	case found.chosen != config.IPTables:
		lines, err = found.table.Plan(s.objects, tableOf(want))
	case missing == nil:
		lines, err = found.iptables.Plan(ctx, s.chains, found.chains(want))
	}
	if err != nil {
		return lines, err
	}
	for _, tool := range found.beside() {
		more, err := tool.Plan(ctx, s.chains, acceptsOf(want))
		if err != nil && !errors.Is(err, iptables.ErrUnreadable) {
			return lines, err
		}
		lines = append(lines, more...)
	}
	if len(lines) == 0 && (want == nil || found.nft()) {
		return nil, nil
	}
	return lines, missing
}

// Describe formats wanted rules for people, none without a program for them.
func (f *Firewall) Describe(want Rules) (lines []string) {
	found, err := f.find()
	if err != nil {
		return nil
	}
	if found.nft() {
		return nftables.Describe(tableOf(want))
	}
	for _, c := range found.chains(want) {
		if c.From != "" {
			lines = append(lines, fmt.Sprintf("%s: -A %s -j %s", c.Table, c.From, c.Name))
		}
		for _, r := range c.Rules {
			lines = append(lines, fmt.Sprintf("%s: -A %s %s", c.Table, c.Name, r))
		}
	}
	return lines
}

func (p programs) chains(want Rules) (out []iptables.Chain) {
	if want == nil {
		return nil
	}
	return converted(want.Chains(p.iptables.RandomFully()))
}

func acceptsOf(want Rules) []iptables.Chain {
	if want == nil {
		return nil
	}
	return converted(want.Accepts())
}

func converted(chains []nodeport.Chain) (out []iptables.Chain) {
	for _, c := range chains {
		out = append(out, iptables.Chain(c))
	}
	return out
}

func tableOf(want Rules) ruleset.Table {
	if want == nil {
		return ruleset.Table{}
	}
	return want.Table()
}
