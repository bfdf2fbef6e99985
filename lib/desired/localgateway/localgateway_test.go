package localgateway

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// A host has one link of each family, with rules for each subnet of pods.
func TestLinksOfSeveralSubnets(t *testing.T) {
	between := prefixes("169.254.33.0/24", "fd99::/64")
	links, err := Links(between, prefixes("10.128.0.0/14", "10.0.0.0/16", "fd01::/48"))
	if err != nil || len(links) != 2 {
		t.Fatalf("%v, %v; want a link of each family", links, err)
	}
	if got := fmt.Sprint(links[0].Host, links[0].Router, links[1].Host, links[1].Router); got != "169.254.33.1/24 169.254.33.2/24 fd99::1/64 fd99::2/64" {
		t.Errorf("addresses %s", got)
	}
	chains, table := fmt.Sprint(links[0].Chains(true)), fmt.Sprint(links[0].Table())
	for _, s := range []string{"10.128.0.0/14", "10.0.0.0/16"} {
		for _, want := range []string{"-s " + s + " -i br-nexthop -m conntrack", "-d " + s + " -j MARK --set-xmark"} {
			if !strings.Contains(chains, want) {
				t.Errorf("no %q in %s", want, chains)
			}
		}
		if want := "ip daddr " + s + " meta mark set"; !strings.Contains(table, want) {
			t.Errorf("no %q in %s", want, table)
		}
	}
	if _, err := Links(between[:1], prefixes("10.0.0.0/16", "fd01::/48", "fd02::/48")); err == nil ||
		!strings.Contains(err.Error(), "local gateway subnets 169.254.33.0/24 lack one for fd01::/48") {
		t.Errorf("no subnet of IPv6: %v", err)
	}
}
