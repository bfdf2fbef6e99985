package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netns"

	"ovn-k8s/test/hanging"
	"ovn-k8s/test/require"
)

// inFreshNamespace moves the test into a new network namespace for good. The thread, and with it the namespace, ends
// with the test's goroutine.
func inFreshNamespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		require.Nothing(t, require.Node, "root")
	}
	for _, tool := range []string{"iptables", "ip6tables", "iptables-restore", "ip6tables-restore"} {
		if _, err := exec.LookPath(tool); err != nil {
			require.Nothing(t, require.Node, tool)
		}
	}
	runtime.LockOSThread()
	h, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
}

// family is the test data of one address family.
type family struct {
	tool           string
	any            netip.Addr
	prefix, target string
}

var families = []family{
	{"iptables", netip.IPv4Unspecified(), "10.0.0.0/8", "192.168.1.3:8080"},
	{"ip6tables", netip.IPv6Unspecified(), "fd00::/8", "[fd01::3]:8080"},
}

// chains returns chains of every kind.
func (f family) chains() []Chain {
	return []Chain{
		{Table: "nat", Name: "OVN-K8S-IN", From: "PREROUTING", Match: "-m addrtype --dst-type LOCAL", Rules: []string{
			"-p tcp -m tcp --dport 30080 -m comment --comment \"default/web: http\" -j OVN-K8S-WEB",
		}},
		{Table: "nat", Name: "OVN-K8S-WEB", Rules: []string{"-p tcp -j DNAT --to-destination " + f.target}},
		{Table: "nat", Name: "OVN-K8S-OUT", From: "POSTROUTING", Rules: []string{"-s " + f.prefix + " -j MASQUERADE"}},
		{Table: "filter", Name: "OVN-K8S-FWD", From: "FORWARD", Rules: []string{"-i br-local -j ACCEPT", "-o br-local -j ACCEPT"}},
	}
}

func output(t *testing.T, tool string, args ...string) string {
	t.Helper()
	out, err := exec.Command(tool, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", tool, args, err, out)
	}
	return string(out)
}

// tables returns all rules of a family.
func (f family) tables(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, table := range searched {
		all.WriteString(output(t, f.tool, "-t", table, "-S"))
	}
	return all.String()
}

func TestSync(t *testing.T) {
	inFreshNamespace(t)
	for _, f := range families {
		t.Run(f.tool, func(t *testing.T) {
			runtime.LockOSThread() // a subtest has a thread of its own
			h, err := netns.New()
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			f.testSync(t)
		})
	}
}

func (f family) testSync(t *testing.T) {
	fw, err := New(f.any)
	if err != nil {
		t.Fatal(err)
	}
	sync := func(chains []Chain) []string {
		t.Helper()
		changes, err := fw.Sync(t.Context(), "OVN-K8S-", chains)
		if err != nil {
			t.Fatal(err)
		}
		return changes
	}
	output(t, f.tool, "-t", "nat", "-N", "FOREIGN")
	output(t, f.tool, "-t", "nat", "-A", "PREROUTING", "-j", "FOREIGN")
	before := f.tables(t)
	plan, err := fw.Plan(t.Context(), "OVN-K8S-", f.chains())
	if err != nil {
		t.Fatal(err)
	}
	if got := f.tables(t); got != before {
		t.Errorf("a plan changed something:\n%s", got)
	}
	if diff := cmp.Diff(plan, sync(f.chains())); diff != "" {
		t.Errorf("other changes than planned: %s", diff)
	}
	if got := output(t, f.tool, "-t", "nat", "-S", "PREROUTING"); got != "-P PREROUTING ACCEPT\n-A PREROUTING -m addrtype --dst-type LOCAL -j OVN-K8S-IN\n-A PREROUTING -j FOREIGN\n" {
		t.Errorf("the jump: %s", got)
	}
	want := f.tables(t)
	if got := sync(f.chains()); got != nil {
		t.Errorf("a second time: %q", got)
	}

	// Changes of others to our chains are undone.
	output(t, f.tool, "-t", "nat", "-F", "OVN-K8S-WEB")
	output(t, f.tool, "-t", "nat", "-A", "OVN-K8S-OUT", "-j", "ACCEPT")
	output(t, f.tool, "-I", "FORWARD", "-j", "OVN-K8S-FWD") // twice now
	output(t, f.tool, "-t", "nat", "-N", "OVN-K8S-STALE")
	output(t, f.tool, "-t", "nat", "-A", "OUTPUT", "-m", "comment", "--comment", `somebody's "own" jump`, "-j", "OVN-K8S-STALE")
	output(t, f.tool, "-t", "nat", "-N", "OVN-K8S-STALER")
	output(t, f.tool, "-t", "nat", "-A", "OVN-K8S-STALE", "-j", "OVN-K8S-STALER")
	sync(f.chains())
	if diff := cmp.Diff(want, f.tables(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// One rule less, one chain less.
	fewer := f.chains()[1:]
	fewer[2].Rules = fewer[2].Rules[1:]
	sync(fewer)
	if got := f.tables(t); strings.Contains(got, "OVN-K8S-IN") || strings.Contains(got, "-i br-local") || !strings.Contains(got, "-o br-local") {
		t.Errorf("fewer: %s", got)
	}
	sync(nil)
	if diff := cmp.Diff(before, f.tables(t)); diff != "" {
		t.Errorf("after the end (-want +got):\n%s", diff)
	}
	if got := sync(nil); got != nil {
		t.Errorf("again: %q", got)
	}
}

// A rule refused by the kernel changes nothing in its table.
func TestABadRuleChangesNothing(t *testing.T) {
	inFreshNamespace(t)
	f := families[0]
	fw, err := New(f.any)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fw.Sync(t.Context(), "OVN-K8S-", f.chains()); err != nil {
		t.Fatal(err)
	}
	before := f.tables(t)
	bad := f.chains()
	bad[1].Rules = append(bad[1].Rules, "-p tcp -j NO-SUCH-CHAIN")
	bad[2].Rules = nil
	if _, err := fw.Sync(t.Context(), "OVN-K8S-", bad); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(before, f.tables(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Thousands of rules go in at once.
func TestManyRules(t *testing.T) {
	inFreshNamespace(t)
	fw, err := New(families[0].any)
	if err != nil {
		t.Fatal(err)
	}
	c := Chain{Table: "nat", Name: "OVN-K8S-MANY", From: "PREROUTING"}
	for i := range 3000 {
		c.Rules = append(c.Rules, fmt.Sprintf("-d 10.1.%d.%d/32 -p udp -m udp --dport 53 -j DNAT --to-destination 10.2.0.1:53", i/250, i%250))
	}
	if changes, err := fw.Sync(t.Context(), "OVN-K8S-", []Chain{c}); err != nil || len(changes) != 3001 {
		t.Fatalf("%d changes, %v", len(changes), err)
	}
	c.Rules = slices.Delete(c.Rules, 7, 8)
	if _, err := fw.Sync(t.Context(), "OVN-K8S-", []Chain{c}); err != nil {
		t.Fatal(err)
	}
	if changes, err := fw.Sync(t.Context(), "OVN-K8S-", []Chain{c}); err != nil || changes != nil {
		t.Errorf("%v, %v", changes, err)
	}
}

// A hanging program ends with its context, and so do its children, which keep its output open.
func TestProgramsAreBounded(t *testing.T) {
	ctx, late := hanging.Program(t, "iptables")
	if _, err := find(ctx, netip.IPv4Unspecified(), ""); !errors.Is(err, late) || !strings.Contains(err.Error(), "iptables") {
		t.Error(err)
	}
}
