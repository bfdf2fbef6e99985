package checks

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/localgateway"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nftables/foreign"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// genevePort is the UDP port of Geneve (RFC 8926).
const genevePort = 6081

// Firewall checks the tables of nftables.
type Firewall struct {
	Config config.Config
	Switch *vswitch.Switch
	Log    *logrus.Entry
	// AcceptsInIPTables returns the families with rules of iptables to accept packets of pods. Its programs, and rules of
	// nft in its tables, may come and go.
	AcceptsInIPTables func(context.Context) []netip.Addr

	missing sync.Once // the log tells once that nft is missing
}

// Check returns a Problem if a table of nftables drops packets of pods, with these subnets, by one of the interfaces.
// ovn-cms-options report it, too.
func (f *Firewall) Check(ctx context.Context, interfaces []string, pods []netip.Prefix) error {
	rules, err := foreign.Read(ctx)
	if errors.Is(err, foreign.ErrMissing) {
		f.missing.Do(func() { f.Log.Info(err) })
		return nil
	}
	if err != nil {
		return err
	}
	needs := foreign.Needs{Interfaces: interfaces, IPTables: f.AcceptsInIPTables(ctx), Families: foreign.Families(pods)}
	if slices.Contains(interfaces, localgateway.Port) {
		needs.Answers = localgateway.Port
	}
	ctx, cancel := ofDatabase(ctx) // nft takes longer for many rules
	defer cancel()
	// The userspace datapath gets packets of tunnels before the host's firewall.
	if datapath, err := f.Switch.DatapathType(ctx, names.IntegrationBridge); err == nil && datapath != names.UserspaceDatapath && strings.Contains(f.Config.EncapType, "geneve") {
		needs.Ports = []int{genevePort}
	}
	drops := rules.Drops(needs)
	var texts, chains []string
	for _, d := range drops {
		texts = append(texts, d.String())
		chains = append(chains, strings.ReplaceAll(d.Table, " ", "/")+"/"+d.Chain)
	}
	slices.Sort(chains)
	chains = slices.Compact(chains)
	if _, err := f.Switch.Controller().SetCMSOption(ctx, names.FirewallOption, strings.Join(chains, "+")); err != nil {
		return err
	}
	if len(texts) == 0 {
		return nil
	}
	return Problem{"FirewallDrops", errors.New(strings.Join(texts, "; "))}
}
