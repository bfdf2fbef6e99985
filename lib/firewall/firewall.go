// Package firewall keeps the rules of a host in nftables or in iptables, as the setting firewall chooses.
package firewall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"sync"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/localgateway"
	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/iptables"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/nftables"
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

// A Firewall is the packet filter of one family, as a setting chooses. It looks for the programs until they work.
type Firewall struct {
	family  netip.Addr
	setting string // see config.Config
	// tidied says when a scope of the other program was written.
	tidied map[Scope]tidied

	finding sync.Mutex // guards found
	found   programs
}

const tidiedTable = -1

// tidied is the number of reads of the table, and the chains of iptables beside it.
type tidied struct {
	reads   int // tidiedTable: none were needed, since iptables has the rules
	accepts []iptables.Chain
}

// programs are the programs of a Firewall, nil for those that do not work. That of the setting has the rules. iptables also
// has accepting rules beside those of nftables. Otherwise the other program is used only to remove what a process with
// another setting has left.
type programs struct {
	chosen   string // config.NFTables or config.IPTables; with config.AnyFirewall "" until one of them works
	iptables *iptables.Firewall
	table    *nftables.Table
	why      string // for chosen
}

func (p programs) nft() bool { return p.chosen == config.NFTables }

// New returns the packet filter of a family that a setting chooses.
func New(setting string, family netip.Addr) *Firewall {
	f := &Firewall{family: family, setting: setting, tidied: map[Scope]tidied{}}
	if setting != config.AnyFirewall {
		f.found.chosen, f.found.why = setting, "as the setting ovn-k8s-firewall says"
	}
	return f
}

// find returns the programs that work. The error is ErrMissing, with a reason and remedy, if the rules have no program.
func (f *Firewall) find() (programs, error) {
	f.finding.Lock()
	defer f.finding.Unlock()
	var err, err2 error
	if f.found.iptables == nil {
		f.found.iptables, err = iptables.New(f.family)
	}
	if f.found.table == nil {
		f.found.table, err2 = nftables.NewTable(f.family, link.PacketFilterGeneration)
	}
	switch {
	case f.setting == config.AnyFirewall && err2 == nil: // also later, such as once the kernel has loaded nf_tables
		f.found.chosen, f.found.why = config.NFTables, "since nft works here"
	case f.found.chosen == "" && err == nil:
		f.found.chosen, f.found.why = config.IPTables, "since "+err2.Error()
	}
	switch {
	case f.found.chosen == "":
		return f.found, fmt.Errorf("%w: %w; %w", ErrMissing, err2, err)
	case f.found.nft() && err2 != nil:
		return f.found, fmt.Errorf("%w: %w, or set external_ids:ovn-k8s-firewall=iptables", ErrMissing, err2)
	case !f.found.nft() && err != nil:
		return f.found, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	return f.found, nil
}

// AcceptsInIPTables reports whether iptables has the rules that accept packets of pods on this host.
func AcceptsInIPTables(setting string) bool {
	found, _ := New(setting, netip.IPv4Unspecified()).find()
	return found.iptables != nil
}

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
	return found.iptables != nil && found.iptables.HasKubeProxy()
}

// Sync makes the rules of a scope equal to wanted ones, nil for none, and returns the changes. Afterwards the other
// program has none of the scope: established connections do not depend on rules, and new ones always find some.
func (f *Firewall) Sync(ctx context.Context, s Scope, want Rules) ([]string, error) {
	found, err := f.find()
	if err != nil {
		return nil, err
	}
	if !found.nft() {
		changes, err := found.iptables.Sync(ctx, s.chains, found.chains(want))
		if err == nil {
			err = f.tidyTable(ctx, s, found.table)
		}
		return changes, err
	}
	changes, _, err := found.table.Sync(ctx, s.objects, tableOf(want))
	if err == nil {
		err = f.tidyChains(ctx, s, found, acceptsOf(want))
	}
	return changes, err
}

// tidyTable removes a scope from nftables, once. A table that nft cannot read is not ours: Sync reads before it writes.
func (f *Firewall) tidyTable(ctx context.Context, s Scope, table *nftables.Table) error {
	if table == nil || f.tidied[s].reads == tidiedTable {
		return nil
	}
	_, _, err := table.Sync(ctx, s.objects, ruleset.Table{})
	if errors.Is(err, nftables.ErrUnreadable) {
		return nil
	}
	if err == nil {
		f.tidied[s] = tidied{reads: tidiedTable}
	}
	return err
}

// tidyChains removes a scope from iptables but for the accepting chains that are needed there, again after each change
// of another program. Tables that cannot be read, as without their kernel modules, drop nothing and have no chains of
// ours.
func (f *Firewall) tidyChains(ctx context.Context, s Scope, found programs, accepts []iptables.Chain) error {
	tool, now := found.iptables, tidied{found.table.Reads(), accepts}
	if tool == nil || tool.Announces() && reflect.DeepEqual(f.tidied[s], now) {
		return nil
	}
	_, err := tool.Sync(ctx, s.chains, accepts)
	if errors.Is(err, iptables.ErrUnreadable) {
		err = nil
	}
	if err == nil {
		f.tidied[s] = now
	}
	return err
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

// spareServers makes the exceptions for servers.
func (f *Firewall) spareServers(ctx context.Context, h nodeport.Host) error {
	servers := nodeport.Servers{Host: h, Family: f.family}
	found, err := f.find()
	if err != nil {
		return err
	}
	if found.nft() {
		_, _, err := found.table.Sync(ctx, nodeport.ServersObject, servers.Table())
		return err
	}
	if servers.Have, err = found.iptables.Rules("nat", nodeport.FrontendsChain); err != nil || len(servers.Have) == 0 {
		return err
	}
	refused, err := found.iptables.Rules("filter", nodeport.RefuseChain)
	if err != nil {
		return err
	}
	servers.Have = append(servers.Have, refused...)
	if servers.Spared, err = found.iptables.Rules("nat", nodeport.OutputChain); err != nil {
		return err
	}
	_, err = found.iptables.Sync(ctx, nodeport.OutputChain, converted(servers.Chains(found.iptables.RandomFully())))
	return err
}

// Plan returns the changes that Sync would make.
func (f *Firewall) Plan(ctx context.Context, s Scope, want Rules) ([]string, error) {
	found, err := f.find()
	if err != nil {
		return nil, err
	}
	if found.nft() {
		lines, err := found.table.Plan(ctx, s.objects, tableOf(want))
		if err != nil || found.iptables == nil {
			return lines, err
		}
		more, err := found.iptables.Plan(ctx, s.chains, acceptsOf(want))
		if errors.Is(err, iptables.ErrUnreadable) {
			err = nil
		}
		return append(lines, more...), err
	}
	return found.iptables.Plan(ctx, s.chains, found.chains(want))
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
