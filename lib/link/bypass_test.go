package link

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/test/namespace"
)

// routing is the output of ip(8) for rules and for the table of a bypass.
func routing(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "for f in -4 -6; do ip $f rule; ip $f route show table 77 2>/dev/null; done; true").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

func TestBypass(t *testing.T) {
	namespace.Enter(t)
	device(t, "local0")
	if err := Ensure(State{Interface: "local0", Addresses: prefixes("192.168.1.2/24", "fd01::2/64"), LooseReversePath: true}); err != nil {
		t.Fatal(err)
	}
	foreign := exec.Command("sh", "-ec", "ip rule add pref 50 fwmark 9 lookup 77; ip route add 10.0.0.0/8 via 192.168.1.9 table 77")
	if out, err := foreign.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	before := routing(t)
	both := []Bypass{
		{Interface: "local0", Via: netip.MustParseAddr("192.168.1.1"), Mark: 0x800, To: prefixes("10.1.0.0/16", "10.2.0.0/16"), Table: 77},
		{Interface: "local0", Via: netip.MustParseAddr("fd01::1"), Mark: 0x800, To: prefixes("fd02::/48"), Table: 77},
	}
	formerly := func() { // by the release before, or with other subnets
		if out, err := exec.Command("sh", "-ec", `for f in -4 -6; do ip $f rule add pref 77 fwmark 0x800/0x800 lookup 77 proto 46; done
			ip rule add pref 78 to 10.9.0.0/16 fwmark 0x800/0x800 lookup 77 proto 46`).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for range 2 {
		formerly()
		for _, b := range both {
			if _, err := EnsureBypass(b); err != nil {
				t.Fatal(err)
			}
			if left, err := PlanBypass(b); err != nil || len(left) > 0 {
				t.Errorf("a second run would change %v, %v", left, err)
			}
		}
		text := routing(t)
		for _, want := range []string{
			"78: from all to 10.1.0.0/16 fwmark 0x800/0x800 lookup 77 proto 46 78: from all to 10.2.0.0/16 fwmark 0x800/0x800 lookup 77 proto 46",
			"78: from all to fd02::/48 fwmark 0x800/0x800 lookup 77 proto 46", "default via 192.168.1.1 dev local0 proto 46", "default via fd01::1 dev local0 proto 46",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in %s", want, text)
			}
		}
		if n := strings.Count(text, "proto 46"); n != 5 {
			t.Errorf("%d rules and routes, want 3 and 2: %s", n, text)
		}
	}
	formerly()
	for range 2 {
		for _, b := range both {
			if err := RemoveBypass(b.Via, b.Table); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(before, routing(t)); diff != "" { // foreign routes are kept
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}
