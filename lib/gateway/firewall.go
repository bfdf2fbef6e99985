package gateway

import (
	"context"
	"errors"
	"slices"
	"strings"

	"ovn-k8s/lib/desired/localgateway"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nftables"
)

// genevePort is the UDP port of Geneve (RFC 8926).
const genevePort = 6081

// checkFirewall returns an error if a table of nftables drops packets of pods. An Event on the Node and ovn-cms-options
// report it, too.
func (e *engine) checkFirewall(ctx context.Context, p ports) error {
	rules, err := nftables.Read(ctx)
	if errors.Is(err, nftables.ErrMissing) {
		e.noNFT.Do(func() { e.log.Info(err) })
		return nil
	}
	if err != nil {
		return err
	}
	needs := nftables.Needs{}
	if p.management != "" {
		needs.Interfaces = append(needs.Interfaces, p.management)
	}
	if p.local.Name != "" {
		needs.Interfaces = append(needs.Interfaces, localgateway.Port)
	}
	// The userspace datapath gets packets of tunnels before the host's firewall.
	if datapath, err := e.sw.DatapathType(ctx, names.IntegrationBridge); err == nil && datapath != "netdev" && strings.Contains(e.config.EncapType, "geneve") {
		needs.Ports = []int{genevePort}
	}
	drops := rules.Drops(needs)
	var texts, chains []string
	for _, d := range drops {
		texts = append(texts, d.String())
		chains = append(chains, strings.ReplaceAll(d.Table, " ", "/")+"/"+d.Chain)
	}
	slices.Sort(chains)
	if _, err := e.sw.SetCMSOption(ctx, names.FirewallOption, strings.Join(chains, "+")); err != nil {
		return err
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}
