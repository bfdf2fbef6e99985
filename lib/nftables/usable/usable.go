// Package usable asks the kernel whether it knows what our rules of nftables use.
package usable

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"sigs.k8s.io/knftables"
)

// An expression is one that our rules use, and the part of the kernel that it needs: mostly a module, which the kernel
// loads by itself if it is installed.
type expression struct {
	part             string
	kind, hook, rule string // of a base chain
	set              *knftables.Set
}

func expressions(family netip.Addr) []expression {
	ip, to := "ip", "192.0.2.1:80"
	reject := "module nft_reject_ipv4"
	fib := "module nft_fib_ipv4"
	if family.Is6() {
		ip, to = "ip6", "[2001:db8::1]:80"
		reject, fib = "module nft_reject_ipv6", "module nft_fib_ipv6"
	}
	addr := map[string]string{"ip": "ipv4_addr", "ip6": "ipv6_addr"}[ip]
	return []expression{
		{"module nft_chain_nat", "nat", "prerouting", "meta l4proto tcp return", nil},
		{"module nft_nat", "nat", "prerouting", "meta l4proto tcp dnat to " + to, nil},
		{"module nft_masq", "nat", "postrouting", "meta l4proto tcp masquerade to :32768-60999 fully-random", nil},
		{fib, "filter", "input", "fib daddr type local return", nil},
		{"module nft_socket, of Linux 5.12 or later", "filter", "input", "socket wildcard 1 return", nil},
		{"module nft_ct", "filter", "input", "ct state new return", nil},
		{"module nft_numgen", "filter", "input", "numgen random mod 2 vmap { 0 : return, 1 : continue }", nil},
		{reject, "filter", "input", "meta l4proto tcp reject with tcp reset", nil},
		{"Linux 5.6 or later", "filter", "input", ip + " saddr . ct original protocol . th dport @svc-check return",
			&knftables.Set{Name: "svc-check", Type: addr + " . inet_proto . inet_service", Flags: []knftables.SetFlag{knftables.IntervalFlag}}},
	}
}

// Check asks the kernel whether it knows all expressions of our rules. The error names the first that it does not.
func Check(ctx context.Context, nft knftables.Interface, family netip.Addr) error {
	all := expressions(family)
	if check(ctx, nft, all) == nil {
		return nil
	}
	for _, e := range all {
		err := check(ctx, nft, []expression{e})
		if ctx.Err() != nil {
			return fmt.Errorf("nftables does not work here: nft: %w", context.Cause(ctx))
		}
		if err != nil {
			return fmt.Errorf("nftables does not work here: the kernel lacks %s for %q: %s: install the kernel's modules, or a newer kernel", e.part, e.rule, Flat(err))
		}
	}
	return nil
}

// check checks rules without making them.
func check(ctx context.Context, nft knftables.Interface, expressions []expression) error {
	tx := nft.NewTransaction()
	tx.Add(&knftables.Table{})
	for _, e := range expressions {
		name := "svc-check-" + e.kind + "-" + e.hook
		tx.Add(&knftables.Chain{
			Name: name, Type: knftables.PtrTo(knftables.BaseChainType(e.kind)), Hook: knftables.PtrTo(knftables.BaseChainHook(e.hook)),
			Priority: knftables.PtrTo(knftables.BaseChainPriority("0")),
		})
		if e.set != nil {
			tx.Add(e.set)
		}
		tx.Add(&knftables.Rule{Chain: name, Rule: e.rule})
	}
	return nft.Check(ctx, tx)
}

// Flat formats an error on one line.
func Flat(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
