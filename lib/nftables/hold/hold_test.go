package hold

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"ovn-k8s/test/namespace"
)

// Issue 16: the table of NAT survives a flush of everything, and goes with its holder.
func TestNATSurvivesAFlush(t *testing.T) {
	namespace.Load(t, "table ip other { }")
	for _, family := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		release, err := NAT(family)
		if err != nil {
			t.Fatal(err)
		}
		namespace.NFT(t, "flush", "ruleset")
		if got := namespace.NFT(t, "list", "ruleset"); strings.Contains(got, "table ip other") || !strings.Contains(got, "type nat hook postrouting") || !strings.Contains(got, "flags owner") {
			t.Errorf("%v: after a flush: %s", family, got)
		}
		if out, err := exec.Command("nft", "add", "chain", map[bool]string{false: "ip", true: "ip6"}[family.Is6()], TableName, "other").CombinedOutput(); err == nil {
			t.Errorf("another program may change it: %s", out)
		}
		release()
		if got := namespace.NFT(t, "list", "ruleset"); got != "" {
			t.Errorf("%v: left: %s", family, got)
		}
	}
}
