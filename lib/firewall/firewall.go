// Package firewall keeps the rules of a host in nftables or in iptables, as the setting firewall chooses.
package firewall

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

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

// A Firewall is the packet filter of one family. The other program is nil where it does not work; it is used only to
// remove what a process with another setting has left.
type Firewall struct {
	family   netip.Addr
	nft      bool // nftables has the rules, and not iptables
	iptables *iptables.Firewall
	table    *nftables.Table
	reads    int           // of the table
	tidied   map[Scope]int // reads when a scope of the other program was emptied
}

// New returns the packet filter that a setting chooses: see config.Config.
func New(setting string, family netip.Addr) (*Firewall, error) {
	f := &Firewall{family: family, tidied: map[Scope]int{}}
	var err, err2 error
	if f.iptables, err = iptables.New(family); err != nil {
		f.iptables = nil
	}
	if f.table, err2 = nftables.NewTable(family, link.PacketFilterGeneration); err2 != nil {
		f.table = nil
	}
	f.nft = setting == config.NFTables || setting == config.AnyFirewall && f.table != nil
	switch {
	case f.nft && f.table == nil:
		return nil, fmt.Errorf("%w, or set external_ids:ovn-k8s-firewall=iptables", err2)
	case !f.nft && f.iptables == nil:
		return nil, err
	}
	return f, nil
}

// InIPTables reports whether a setting chooses iptables on this host.
func InIPTables(setting string) bool {
	f, err := New(setting, netip.IPv4Unspecified())
	return err != nil || !f.nft
}

// Family is an address of the family, unspecified.
func (f *Firewall) Family() netip.Addr { return f.family }

// String is the name of the program and family.
func (f *Firewall) String() string {
	program := "iptables"
	if f.nft {
		program = "nftables"
	}
	return fmt.Sprintf("%s, IPv%d", program, 4+2*(f.family.BitLen()/128))
}

// HasKubeProxy reports whether kube-proxy has rules in iptables.
func (f *Firewall) HasKubeProxy() bool { return f.iptables != nil && f.iptables.HasKubeProxy() }

// Sync makes the rules of a scope equal to wanted ones, nil for none, and returns the changes. Afterwards the other
// program has none of the scope: established connections do not depend on rules, and new ones always find some.
func (f *Firewall) Sync(ctx context.Context, s Scope, want Rules) ([]string, error) {
	if !f.nft {
		changes, err := f.iptables.Sync(ctx, s.chains, f.chains(want))
		if err == nil && f.table != nil && f.tidied[s] == 0 {
			_, _, err = f.table.Sync(ctx, s.objects, ruleset.Table{})
			f.tidied[s] = 1
		}
		return changes, err
	}
	changes, read, err := f.table.Sync(ctx, s.objects, tableOf(want))
	if read {
		f.reads++
	}
	if err != nil || f.iptables == nil || f.tidied[s] == f.reads {
		return changes, err
	}
	f.tidied[s] = f.reads
	if _, err = f.iptables.Sync(ctx, s.chains, nil); errors.Is(err, iptables.ErrUnreadable) { // as without its kernel modules
		err = nil
	}
	return changes, err
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
	if f.nft {
		_, _, err := f.table.Sync(ctx, nodeport.ServersObject, servers.Table())
		return err
	}
	var err error
	if servers.Have, err = f.iptables.Rules("nat", nodeport.FrontendsChain); err != nil || len(servers.Have) == 0 {
		return err
	}
	if servers.Spared, err = f.iptables.Rules("nat", nodeport.OutputChain); err != nil {
		return err
	}
	_, err = f.iptables.Sync(ctx, nodeport.OutputChain, f.chains(servers))
	return err
}

// Plan returns the changes that Sync would make.
func (f *Firewall) Plan(ctx context.Context, s Scope, want Rules) ([]string, error) {
	if f.nft {
		return f.table.Plan(ctx, s.objects, tableOf(want))
	}
	return f.iptables.Plan(ctx, s.chains, f.chains(want))
}

// Describe formats wanted rules for people.
func (f *Firewall) Describe(want Rules) (lines []string) {
	if f.nft {
		return nftables.Describe(tableOf(want))
	}
	for _, c := range f.chains(want) {
		if c.From != "" {
			lines = append(lines, fmt.Sprintf("%s: -A %s -j %s", c.Table, c.From, c.Name))
		}
		for _, r := range c.Rules {
			lines = append(lines, fmt.Sprintf("%s: -A %s %s", c.Table, c.Name, r))
		}
	}
	return lines
}

func (f *Firewall) chains(want Rules) (out []iptables.Chain) {
	if want == nil {
		return nil
	}
	for _, c := range want.Chains(f.iptables.RandomFully()) {
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
