package firewall

import (
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"ovn-k8s/lib/config"
)

// A slow nft, as on a loaded host after a boot, does not move rules to iptables and back.
func TestASlowProgramChangesNoChoice(t *testing.T) {
	dir := inFreshNamespace(t)
	f := New(config.AnyFirewall, netip.IPv4Unspecified())
	repair := breaks(t, filepath.Join(dir, "nft"), "exec /bin/sleep 60")
	if _, err := f.Sync(t.Context(), Local, gateway); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "trying again") || f.Choice() != "" {
		t.Fatalf("no choice yet: %v, %q", err, f.Choice())
	}
	repair()
	if _, err := f.Sync(t.Context(), Local, gateway); err != nil || !strings.Contains(f.Choice(), config.NFTables) {
		t.Fatalf("nft works: %v, %q", err, f.Choice())
	}
	f = New(config.AnyFirewall, netip.IPv4Unspecified())
	breaks(t, filepath.Join(dir, "nft"), "exec /bin/sleep 60")
	if changes, err := f.Sync(t.Context(), Local, gateway); err != nil || len(changes) > 0 {
		t.Fatalf("the rules of nftables are there: %v, %q", err, changes)
	}
}

// A command does not wait until nft is fast again: it makes its rules in iptables, but for those that are there.
func TestACommandBesideASlowProgram(t *testing.T) {
	dir := inFreshNamespace(t)
	want := []FamilyRules{{netip.IPv4Unspecified(), gateway}}
	repair := breaks(t, filepath.Join(dir, "nft"), "exec /bin/sleep 60")
	if lines, err := PlanFamilies(t.Context(), config.AnyFirewall, Local, want); err != nil || len(lines) == 0 {
		t.Fatalf("planned: %q, %v", lines, err)
	}
	if err := SyncFamilies(t.Context(), config.AnyFirewall, Local, want); err != nil {
		t.Fatal(err)
	}
	if lines, err := PlanFamilies(t.Context(), config.AnyFirewall, Local, want); err != nil || len(lines) > 0 {
		t.Fatalf("planned after that: %q, %v", lines, err)
	}
	repair()
	if err := SyncFamilies(t.Context(), config.AnyFirewall, Local, want); err != nil {
		t.Fatal(err)
	}
	breaks(t, filepath.Join(dir, "nft"), "exec /bin/sleep 60")
	if lines, err := PlanFamilies(t.Context(), config.AnyFirewall, Local, want); err != nil || len(lines) > 0 {
		t.Fatalf("the rules of nftables are there, but planned: %q, %v", lines, err)
	}
}
