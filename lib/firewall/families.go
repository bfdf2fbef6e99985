package firewall

import (
	"context"
	"errors"
	"net/netip"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/iptables"
)

// FamilyRules are the rules that the packet filter of one family should have.
type FamilyRules struct {
	Family netip.Addr
	Rules  Rules
}

// SyncFamilies makes the rules of a scope equal to those of want, in each family.
func SyncFamilies(ctx context.Context, setting string, s Scope, want []FamilyRules) error {
	return eachFamily(setting, want, func(f *Firewall, rules Rules) error {
		_, err := f.Sync(ctx, s, rules)
		return err
	})
}

// PlanFamilies lists the changes of SyncFamilies.
func PlanFamilies(ctx context.Context, setting string, s Scope, want []FamilyRules) (lines []string, err error) {
	err = eachFamily(setting, want, func(f *Firewall, rules Rules) error {
		changes, err := f.Plan(ctx, s, rules)
		lines = append(lines, changes...)
		return err
	})
	return lines, err
}

// eachFamily calls do for the packet filter of each family. An absent one is an error if it should have rules.
func eachFamily(setting string, want []FamilyRules, do func(*Firewall, Rules) error) error {
	for _, family := range ipnet.Families() {
		f, rules := New(setting, family), rulesOf(want, family)
		f.once = true
		if err := do(f, rules); err != nil && !(rules == nil && f.Absent(err)) {
			return err
		}
	}
	return nil
}

// AcceptsInIPTables returns the families of those packet filters with (*Firewall).AcceptsInIPTables.
func AcceptsInIPTables(ctx context.Context, all []*Firewall) (families []netip.Addr) {
	for _, f := range all {
		if f.AcceptsInIPTables(ctx) {
			families = append(families, f.family)
		}
	}
	return families
}

// Absent reports whether an error says that this family has no kernel module or program, and so no rules of ours.
func (f *Firewall) Absent(err error) bool {
	return errors.Is(err, ErrMissing) || f.family.Is6() && errors.Is(err, iptables.ErrUnreadable)
}

// rulesOf returns the rules of one family, nil for none.
func rulesOf(want []FamilyRules, family netip.Addr) Rules {
	for _, f := range want {
		if ipnet.SameFamily(f.Family, family) {
			return f.Rules
		}
	}
	return nil
}
