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
	for _, tool := range []string{"iptables", "iptables-save", "iptables-restore", "iptables-legacy", "iptables-legacy-save", "iptables-legacy-restore", "nft"} {
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
		{config.NFTables, "nft", "", "install the package nftables (1.0.1 or later), or set external_ids:ovn-k8s-firewall=iptables"},
		{config.NFTables, "nft", "echo broken >&2; echo now >&2; exit 4", "broken now: install the package nftables (1.0.1 or later), or set"},
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

// Issue 16: rules in iptables do not depend on nft, and what a process with another setting left in nftables goes without
// it, too.
func TestRulesInIPTablesGoWithoutNFT(t *testing.T) {
	nft := filepath.Join(inFreshNamespace(t), "nft")
	for _, script := range []string{"", "exit 4"} {
		if _, err := New(config.NFTables, netip.IPv4Unspecified()).Sync(t.Context(), Local, gateway); err != nil {
			t.Fatal(err)
		}
		repair := breaks(t, nft, script)
		f := New(config.IPTables, netip.IPv4Unspecified())
		if _, err := f.Sync(t.Context(), Local, gateway); err != nil {
			t.Errorf("%s: %v", script, err)
		}
		if changes, err := f.Plan(t.Context(), Local, gateway); err != nil || len(changes) > 0 {
			t.Errorf("%s: not as wanted: %q, %v", script, changes, err)
		}
		repair()
		if left := tables(t); strings.Contains(left, "ovn-k8s") {
			t.Errorf("%s: left: %s", script, left)
		}
	}
}

// tables lists the tables of nftables.
func tables(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nft", "list", "tables").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// Issue 16: nft is removed after use. With auto, the rules move to iptables. With nftables, they stay and are no error as
// long as they are as wanted; a change of rules is one, and their removal none.
func TestNFTIsRemovedAfterUse(t *testing.T) {
	nft := filepath.Join(inFreshNamespace(t), "nft")
	other := gateway
	other.Router = netip.MustParsePrefix("169.254.33.3/24")
	for _, setting := range []string{config.AnyFirewall, config.NFTables} {
		running := New(setting, netip.IPv4Unspecified())
		if _, err := running.Sync(t.Context(), Local, gateway); err != nil {
			t.Fatal(err)
		}
		repair := breaks(t, nft, "")
		for who, f := range map[string]*Firewall{"running": running, "restarted": New(setting, netip.IPv4Unspecified())} {
			if _, err := f.Sync(t.Context(), Local, gateway); err != nil {
				t.Errorf("%s, %s: as wanted: %v", setting, who, err)
			}
			_, err := f.Sync(t.Context(), Local, other)
			if setting == config.AnyFirewall && err != nil || setting == config.NFTables && (!errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "install the package nftables")) {
				t.Errorf("%s, %s: a change: %v", setting, who, err)
			}
		}
		if text := running.Choice(); setting == config.AnyFirewall && !strings.HasPrefix(text, "rules of this host are those of iptables, since nftables does not work here: ") {
			t.Errorf("no word about the move: %s", text)
		}
		if err := SyncFamilies(t.Context(), setting, Local, nil); err != nil {
			t.Errorf("%s: removal: %v", setting, err)
		}
		repair()
		if left := tables(t); strings.Contains(left, "ovn-k8s") {
			t.Errorf("%s: left: %s", setting, left)
		}
		if out, err := exec.Command("iptables-save").CombinedOutput(); err != nil || strings.Contains(string(out), "OVN-K8S") {
			t.Errorf("%s: left: %v: %s", setting, err, out)
		}
	}
}

// Issue 16: nftables is chosen only if the kernel knows every expression of our rules. Otherwise one line names the missing
// module.
func TestTheKernelKnowsOurExpressions(t *testing.T) {
	nft := filepath.Join(inFreshNamespace(t), "nft")
	for word, module := range map[string]string{"fib": "module nft_fib_ipv4", "socket": "module nft_socket", "masquerade": "module nft_masq", "numgen": "module nft_numgen", "interval": "Linux 5.6"} {
		repair := breaks(t, nft, `case "$*" in *-f*) in=$(/bin/cat); case $in in *`+word+`*) echo 'Error: Could not process rule: No such file or directory' >&2; exit 1; esac; printf '%s\n' "$in" | exec `+nft+`-works "$@"; esac; exec `+nft+`-works "$@"`)
		if got := New(config.AnyFirewall, netip.IPv4Unspecified()).Choice(); !strings.HasPrefix(got, "rules of this host are those of iptables, since nftables does not work here: the kernel lacks "+module) || strings.Contains(got, "\n") {
			t.Errorf("no %s: %s", word, got)
		}
		_, err := New(config.NFTables, netip.IPv4Unspecified()).Sync(t.Context(), Local, gateway)
		if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), module) || !strings.HasSuffix(err.Error(), "or set external_ids:ovn-k8s-firewall=iptables") {
			t.Errorf("no %s: %v", word, err)
		}
		repair()
	}
	if left := tables(t); left != "" {
		t.Errorf("the check left %s", left)
	}
}

// Issue 16: whether iptables has our accepting rules follows its programs as they come and go.
func TestAcceptsInIPTablesAreFollowed(t *testing.T) {
	dir := inFreshNamespace(t)
	f := New(config.AnyFirewall, netip.IPv4Unspecified())
	hide := func() func() {
		var repairs []func()
		for _, tool := range []string{"iptables", "iptables-save", "iptables-restore", "iptables-legacy", "iptables-legacy-save", "iptables-legacy-restore"} {
			repairs = append(repairs, breaks(t, filepath.Join(dir, tool), ""))
		}
		return func() {
			for _, repair := range repairs {
				repair()
			}
		}
	}
	for range 2 {
		repair := hide()
		if f.AcceptsInIPTables(t.Context()) {
			t.Error("without iptables")
		}
		if _, err := f.Sync(t.Context(), Local, gateway); err != nil {
			t.Error(err)
		}
		repair()
		if !f.AcceptsInIPTables(t.Context()) {
			t.Error("with iptables")
		}
	}
}

// Issue 16: rules of another program in iptables-legacy that drop are noticed beside iptables-nft. Nothing creates a table
// of iptables-legacy.
func TestAcceptsInTheOtherVariant(t *testing.T) {
	inFreshNamespace(t)
	sh := func(script string) string {
		out, err := exec.Command("/bin/sh", "-ec", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return string(out)
	}
	names := func() string {
		out, err := os.ReadFile("/proc/thread-self/net/ip_tables_names")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, setting := range []string{config.NFTables, config.IPTables} {
		f := New(setting, netip.IPv4Unspecified())
		sync := func(want Rules) {
			if _, err := f.Sync(t.Context(), Local, want); err != nil {
				t.Errorf("%s: %v", setting, err)
			}
			if left, err := f.Plan(t.Context(), Local, want); err != nil || len(left) > 0 {
				t.Errorf("%s: not as wanted: %q, %v", setting, left, err)
			}
		}
		before := names()
		sync(gateway)
		if names() != before {
			t.Errorf("%s: tables of iptables-legacy: %q, before %q", setting, names(), before)
		}
		const accept = "-A OVN-K8S-GATEWAY-FORWARD -s 169.254.33.2/32 -i br-nexthop -j ACCEPT"
		sh("iptables-legacy -P FORWARD DROP")
		sync(gateway)
		if got := sh("iptables-legacy-save"); !strings.Contains(got, accept) {
			t.Errorf("%s: not accepted: %s", setting, got)
		}
		if !strings.HasPrefix(names(), "filter") || strings.Contains(names(), "nat") {
			t.Errorf("%s: tables of iptables-legacy: %q", setting, names())
		}
		sh("iptables-legacy -P FORWARD ACCEPT")
		sync(gateway)
		if got := sh("iptables-legacy-save"); strings.Contains(got, "OVN-") {
			t.Errorf("%s: an open policy: %s", setting, got)
		}
		sh("iptables-legacy -P FORWARD DROP")
		sync(gateway)
		sync(nil)
		if got := sh("iptables-legacy-save; iptables-save; nft list tables"); strings.Contains(strings.ToLower(got), "ovn-") {
			t.Errorf("%s: left: %s", setting, got)
		}
		sh("iptables-legacy -P FORWARD ACCEPT")
	}
}

// The program of the setting auto is nftables where it works, else iptables.
func TestAnyProgram(t *testing.T) {
	dir := inFreshNamespace(t)
	choice := func() string { return New(config.AnyFirewall, netip.IPv4Unspecified()).Choice() }
	if got := choice(); got != "rules of this host are those of nftables, since nft works here" {
		t.Errorf("nft works: %s", got)
	}
	nft := filepath.Join(dir, "nft")
	for script, reason := range map[string]string{
		"":       "not found",
		"exit 4": "could not run",
		"echo nftables v1.0.0 '(Fearless Fosdick)'": "must be v1.0.1 or later",
		`case $1 in --version) exec ` + nft + `-works --version; esac; echo 'Error: Could not process rule: Operation not supported' >&2; exit 1`: "Operation not supported",
	} {
		repair := breaks(t, nft, script)
		if got := choice(); !strings.HasPrefix(got, "rules of this host are those of iptables, since nftables does not work here: ") || !strings.Contains(got, reason) {
			t.Errorf("nft is broken by %q: %s", script, got)
		}
		repair()
	}
	breaks(t, nft, "exit 4")
	breaks(t, filepath.Join(dir, "iptables"), "")
	_, err := New(config.AnyFirewall, netip.IPv4Unspecified()).Plan(t.Context(), Local, gateway)
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "package nftables") || !strings.Contains(err.Error(), "package iptables") {
		t.Errorf("neither: %v", err)
	}
}

// With the setting auto, rules move to nftables once it works, such as when its kernel module is there late.
func TestAnyProgramMovesToNFTables(t *testing.T) {
	repair := breaks(t, filepath.Join(inFreshNamespace(t), "nft"), "exit 4")
	f := New(config.AnyFirewall, netip.IPv4Unspecified())
	for _, place := range []struct{ in, notIn []string }{
		{[]string{"iptables-save"}, []string{"nft-works", "list", "tables"}},
		{[]string{"nft", "list", "tables"}, []string{"iptables-save"}},
	} {
		if _, err := f.Sync(t.Context(), Local, gateway); err != nil {
			t.Fatal(err)
		}
		for want, command := range map[bool][]string{true: place.in, false: place.notIn} {
			out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
			if got := strings.Contains(strings.ToLower(string(out)), "ovn-k8s"); err != nil || got != want {
				t.Errorf("%v has our rules: %v, %v: %s", command, got, err, out)
			}
		}
		if place.in[0] != "nft" {
			repair()
		}
	}
}

// Issue 16: rules in nftables do not overrule a chain FORWARD of iptables that drops, as docker, ufw and firewalld make it.
// Our accepting rules are in that chain as long as it drops, and nowhere else.
func TestAcceptsBesideAFirewallThatDrops(t *testing.T) {
	inFreshNamespace(t)
	f := New(config.AnyFirewall, netip.IPv4Unspecified())
	rules := func() string {
		out, err := exec.Command("iptables-save").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	const accept = "-A OVN-K8S-GATEWAY-FORWARD -s 169.254.33.2/32 -i br-nexthop -j ACCEPT"
	for _, tt := range []struct {
		what, script string
		needed       bool
	}{
		{"nothing of iptables", ":", false},
		{"docker", "iptables -P FORWARD DROP; iptables -N DOCKER-USER; iptables -A DOCKER-USER -j RETURN; iptables -A FORWARD -j DOCKER-USER", true},
		{"iptables -F", "iptables -F", true},
		{"docker inserts a jump before ours", "iptables -I FORWARD -j DOCKER-USER", true},
		{"an open firewall", "iptables -F; iptables -P FORWARD ACCEPT; iptables -A FORWARD -s 192.0.2.0/24 -j DROP", false},
		{"a last rule", "iptables -A FORWARD -j REJECT --reject-with icmp-host-prohibited", true},
		{"no rule", "iptables -F FORWARD", false},
		{"ufw", "iptables -N ufw-reject-forward; iptables -A ufw-reject-forward -j REJECT; iptables -A FORWARD -p icmp -j ACCEPT; iptables -A FORWARD -j ufw-reject-forward", true},
		{"all accepted before", "iptables -I FORWARD -j ACCEPT", false},
		{"a rule with a comment", "iptables -F; iptables -A FORWARD -m comment --comment 'drop all the rest' -j DROP", true},
		{"no rule any more", "iptables -F", false},
		{"a return to the policy", "iptables -P FORWARD DROP; iptables -A FORWARD -j RETURN", true},
		{"a chain that accepts", "iptables -F; iptables -N all; iptables -A all -j ACCEPT; iptables -A FORWARD -j all", false},
		{"a chain that returns", "iptables -F all; iptables -A all -j RETURN", true},
		{"an open policy", "iptables -P FORWARD ACCEPT", false},
	} {
		if out, err := exec.Command("/bin/sh", "-ec", tt.script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", tt.what, err, out)
		}
		// rules/show notices the change first, and must not hide it.
		if _, err := f.Plan(t.Context(), Local, gateway); err != nil {
			t.Errorf("%s: %v", tt.what, err)
		}
		if _, err := f.Sync(t.Context(), Local, gateway); err != nil {
			t.Errorf("%s: %v", tt.what, err)
		}
		text := rules()
		if got := strings.Contains(text, accept); got != tt.needed {
			t.Errorf("%s: accepting rules: %v, in %s", tt.what, got, text)
		}
		if !tt.needed && strings.Contains(text, "OVN-K8S") {
			t.Errorf("%s: left: %s", tt.what, text)
		}
		if changes, err := f.Plan(t.Context(), Local, gateway); err != nil || len(changes) > 0 {
			t.Errorf("%s: not as wanted: %q, %v", tt.what, changes, err)
		}
	}
	if out, err := exec.Command("iptables", "-P", "FORWARD", "DROP").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []Rules{gateway, nil} {
		if _, err := f.Sync(t.Context(), Local, want); err != nil {
			t.Error(err)
		}
	}
	if text := rules(); strings.Contains(text, "OVN-K8S") {
		t.Errorf("left after the gateway: %s", text)
	}
}

// Beside our rules in nftables, a table of iptables with rules of nft that iptables cannot read gets none that accept, so it has
// to be named.
func TestATableThatIPTablesCannotRead(t *testing.T) {
	inFreshNamespace(t)
	f := New(config.NFTables, netip.IPv4Unspecified())
	for _, tt := range []struct {
		script  string
		accepts bool
	}{
		{"nft 'table ip filter { chain FORWARD { type filter hook forward priority filter; policy drop; ct state established,related accept; }; }'", false},
		{"nft delete table ip filter; iptables -P FORWARD DROP", true},
	} {
		if out, err := exec.Command("/bin/sh", "-ec", tt.script).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", tt.script, err, out)
		}
		if _, err := f.Sync(t.Context(), Local, gateway); err != nil {
			t.Error(err)
		}
		out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
		if accepts := strings.Contains(string(out), "jump OVN-K8S-GATEWAY-FORWARD\n"); err != nil || accepts != tt.accepts || f.AcceptsInIPTables(t.Context()) != accepts {
			t.Errorf("%s: accepts %t, %v, in %s", tt.script, accepts, err, out)
		}
	}
}
