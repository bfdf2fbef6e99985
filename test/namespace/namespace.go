// Package namespace gives tests a network namespace of their own.
package namespace

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netns"

	"ovn-k8s/test/require"
)

// Enter moves the test into a new network namespace for good: the thread, and with it the namespace, ends with the
// test's goroutine. It skips or fails a test without root, see require.Nothing.
func Enter(t testing.TB) netns.NsHandle {
	t.Helper()
	if os.Geteuid() != 0 {
		require.Nothing(t, require.Node, "root")
	}
	runtime.LockOSThread()
	h, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// Load is Enter, for a test with this ruleset, of nft(8), in the namespace.
func Load(t testing.TB, rules string) {
	t.Helper()
	nft, err := exec.LookPath("nft")
	if err != nil {
		require.Nothing(t, require.Node, "nft")
	}
	Enter(t)
	cmd := exec.Command(nft, "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
}

// NFT runs nft with arguments in the namespace, and returns its output.
func NFT(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %q: %v: %s", args, err, out)
	}
	return string(out)
}

// Listing is the ruleset of the namespace as nft, a program, prints it, in the order of names and without counters.
func Listing(t testing.TB, nft string) string {
	t.Helper()
	out, err := exec.Command(nft, "-s", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	blocks := strings.SplitAfter(string(out), "\n\t}\n")
	slices.Sort(blocks)
	return strings.Join(blocks, "")
}
