package iptables

import (
	"context"
	"fmt"
	"strings"
)

// Incompatible reports whether iptables cannot print a table because of rules of nft. For Sync, no chain drops there.
func (f *Firewall) Incompatible(ctx context.Context, table string) bool {
	text, err := run(ctx, "", f.save, "-t", table)
	return err == nil && incompatible(text, table)
}

func incompatible(saved, table string) bool {
	return strings.HasPrefix(saved, "# Table `"+table+"' is incompatible, use 'nft' tool.\n")
}

// saveEach prints wanted chains and the chains with jumps to them, as iptables-save prints a table. It is for a table with
// rules of nft in other chains. Obsolete chains of ours are not found there.
func (f *Firewall) saveEach(table string, want []Chain) (string, error) {
	var all strings.Builder
	seen := map[string]bool{"": true}
	for _, c := range want {
		if c.IfDrops { // not needed: whether From drops is unknown
			continue
		}
		for _, name := range []string{c.From, c.Name} {
			if seen[name] {
				continue
			}
			seen[name] = true
			lines, err := f.tool.List(table, name)
			if err != nil && name == c.From {
				return "", fmt.Errorf("nft wrote rules there (%w): set external_ids:ovn-k8s-firewall=nftables", flat(err))
			}
			if err != nil || len(lines) == 0 {
				continue // not there: iptables says incompatible, too
			}
			lines[0] = strings.Replace(lines[0], "-N ", ":", 1)
			all.WriteString(strings.Join(lines, "\n") + "\n")
		}
	}
	return all.String(), nil
}
