package firewall

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netns"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/localgateway"
	"ovn-k8s/test/require"
)

// inFreshNamespace moves the test into a new network namespace for good. Its programs are those of the directory that it
// returns, and broken ones.
func inFreshNamespace(t *testing.T) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		require.Nothing(t, require.Node, "root")
	}
	for _, tool := range []string{"iptables", "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			require.Nothing(t, require.Node, tool)
		}
	}
	runtime.LockOSThread()
	n, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	dir = t.TempDir()
	for _, tool := range []string{"iptables", "iptables-save", "iptables-restore", "nft"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, tool)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	return dir
}

// breaks replaces a program by a shell script.
func breaks(t *testing.T, path, script string) (repair func()) {
	t.Helper()
	if err := os.Rename(path, path+"-works"); err != nil {
		t.Fatal(err)
	}
	if script != "" {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Rename(path+"-works", path); err != nil {
			t.Fatal(err)
		}
	}
}

var gateway = localgateway.Link{Router: netip.MustParsePrefix("169.254.33.2/24"), Pods: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/14")}}

// Issue 16: a program that is missing or broken is an error of the rules that says what to install, and is used once it
// works.
func TestABrokenProgramIsTriedAgain(t *testing.T) {
	dir := inFreshNamespace(t)
	for _, tt := range []struct{ setting, tool, script, want string }{
		{config.NFTables, "nft", "", "install the package nftables, or set external_ids:ovn-k8s-firewall=iptables"},
		{config.NFTables, "nft", "echo broken >&2; echo now >&2; exit 4", "broken now: install the package nftables, or set"},
		{config.IPTables, "iptables", "", "install the package iptables"},
	} {
		repair := breaks(t, filepath.Join(dir, tt.tool), tt.script)
		f := New(tt.setting, netip.IPv4Unspecified())
		for range 2 {
			_, err := f.Sync(t.Context(), Local, gateway)
			if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%+v: %v", tt, err)
			}
		}
		if err := SyncFamilies(t.Context(), tt.setting, Local, nil); err != nil {
			t.Errorf("%+v: nothing to remove: %v", tt, err)
		}
		repair()
		if changes, err := f.Sync(t.Context(), Local, gateway); err != nil || len(changes) == 0 {
			t.Errorf("%+v: repaired: %q, %v", tt, changes, err)
		}
		if _, err := f.Sync(t.Context(), Local, nil); err != nil {
			t.Error(err)
		}
	}
}

// Rules in iptables do not depend on nft: one that cannot list tables, or breaks later, makes no part fail. What a
// process with another setting left goes once nft works.
func TestRulesInIPTablesGoWithoutNFT(t *testing.T) {
	nft := filepath.Join(inFreshNamespace(t), "nft")
	if _, err := New(config.NFTables, netip.IPv4Unspecified()).Sync(t.Context(), Local, gateway); err != nil {
		t.Fatal(err)
	}
	f := New(config.IPTables, netip.IPv4Unspecified())
	for _, script := range []string{"exit 4", `case "$*" in *json*|*-j*) echo JSON support not compiled-in >&2; exit 1; esac; exec ` + nft + `-works "$@"`} {
		repair := breaks(t, nft, script)
		if _, err := f.Sync(t.Context(), Local, gateway); err != nil {
			t.Errorf("%s: %v", script, err)
		}
		repair()
	}
	if _, err := f.Sync(t.Context(), Local, gateway); err != nil {
		t.Fatal(err)
	}
	if left, err := exec.Command("nft", "list", "tables").CombinedOutput(); err != nil || strings.Contains(string(left), "ovn-k8s") {
		t.Errorf("left: %v, %s", err, left)
	}
	if changes, err := f.Plan(t.Context(), Local, gateway); err != nil || len(changes) > 0 {
		t.Errorf("not as wanted: %q, %v", changes, err)
	}
}

// The program of the setting auto is nftables where it works, else iptables.
func TestAnyProgram(t *testing.T) {
	dir := inFreshNamespace(t)
	if InIPTables(config.AnyFirewall) {
		t.Error("nft works")
	}
	breaks(t, filepath.Join(dir, "nft"), "exit 4")
	if !InIPTables(config.AnyFirewall) {
		t.Error("nft is broken")
	}
	breaks(t, filepath.Join(dir, "iptables"), "")
	_, err := New(config.AnyFirewall, netip.IPv4Unspecified()).Plan(t.Context(), Local, gateway)
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "package nftables") || !strings.Contains(err.Error(), "package iptables") {
		t.Errorf("neither: %v", err)
	}
}
