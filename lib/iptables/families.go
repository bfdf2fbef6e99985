package iptables

import (
	"context"
	"errors"
	"net/netip"

	"ovn-k8s/lib/ipnet"
)

// FamilyChains are the chains that the packet filter of one family should have.
type FamilyChains struct {
	Family netip.Addr
	Chains []Chain
}

// SyncFamilies makes the chains with a prefix equal to those of want, in each family.
func SyncFamilies(ctx context.Context, prefix string, want []FamilyChains) error {
	return eachFamily(want, func(fw *Firewall, chains []Chain) error {
		_, err := fw.Sync(ctx, prefix, chains)
		return err
	})
}

// PlanFamilies lists the changes of SyncFamilies.
func PlanFamilies(ctx context.Context, prefix string, want []FamilyChains) (lines []string, err error) {
	err = eachFamily(want, func(fw *Firewall, chains []Chain) error {
		rules, err := fw.Plan(ctx, prefix, chains)
		lines = append(lines, rules...)
		return err
	})
	return lines, err
}

// eachFamily calls do for the packet filter of each family. Without its kernel module or program, a family has no
// chains of ours.
func eachFamily(want []FamilyChains, do func(*Firewall, []Chain) error) error {
	for _, family := range ipnet.Families() {
		chains := chainsOf(want, family)
		fw, err := New(family)
		absent := err != nil
		if !absent {
			err = do(fw, chains)
			absent = family.Is6() && errors.Is(err, ErrUnreadable)
		}
		if err != nil && !(absent && len(chains) == 0) {
			return err
		}
	}
	return nil
}

// chainsOf returns the chains of one family.
func chainsOf(want []FamilyChains, family netip.Addr) []Chain {
	for _, f := range want {
		if ipnet.SameFamily(f.Family, family) {
			return f.Chains
		}
	}
	return nil
}
