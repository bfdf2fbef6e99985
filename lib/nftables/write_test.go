package nftables

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/ruleset"
	"ovn-k8s/test/namespace"
)

// balanced has a chain for many endpoints, with every kind of statement.
func balanced(family netip.Addr, endpoints int) ruleset.Table {
	base := ruleset.Chain{Name: "svc-base", Type: "nat", Hook: "prerouting", Priority: "-110", Rules: []ruleset.Rule{{Text: "jump svc-all"}}}
	all := ruleset.Chain{Name: "svc-all"}
	out := ruleset.Table{Chains: []ruleset.Chain{base}}
	add := func(c *ruleset.Chain, statements ...ruleset.Statement) {
		c.Rules = append(c.Rules, ruleset.NewRule("default/web", statements...))
	}
	var ends []string
	for i := range endpoints {
		clients := ruleset.Set{Name: fmt.Sprint("svc-clients-", i), Key: []ruleset.Field{ruleset.Source}, Timeout: 60 + i}
		end := ruleset.Chain{Name: fmt.Sprint("svc-end-", i)}
		to := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		if family.Is6() {
			to = netip.MustParseAddr(fmt.Sprintf("fd00::%x", i+1))
		}
		add(&end, ruleset.SetMark{Bits: 0x1000})
		add(&end, ruleset.Remember{Set: clients.Name, Family: family})
		add(&end, ruleset.Translate{Protocol: []string{"tcp", "udp", "sctp"}[i%3], To: netip.AddrPortFrom(to, uint16(i)+80)})
		add(&all, ruleset.FromOneOf{Set: clients.Name, Family: family}, ruleset.GoTo{Chain: end.Name})
		out.Chains, out.Sets, ends = append(out.Chains, end), append(out.Sets, clients), append(ends, end.Name)
	}
	add(&all, ruleset.FromInterface{Name: "k8s-node1"}, ruleset.GoTo{Chain: ends[0]})
	add(&all, ruleset.FromHere{}, ruleset.GoTo{Chain: ends[0]})
	add(&all, ruleset.GoToAny{Chains: ends})
	out.Chains = append(out.Chains, all)
	return out
}

// Issue 16: rules of statements are written without nft, as nft writes them: at once, more of them, and fewer.
func TestStatementsAreWrittenAsByNFT(t *testing.T) {
	for family, kind := range map[netip.Addr]string{netip.IPv4Unspecified(): "ip", netip.IPv6Unspecified(): "ip6"} {
		for _, endpoints := range []int{1, 2, 3, 1000} {
			t.Run(fmt.Sprint(kind, " ", endpoints), func(t *testing.T) { writeAsNFT(t, family, endpoints) })
		}
	}
}

func writeAsNFT(t *testing.T, family netip.Addr, endpoints int) {
	namespace.Load(t, "")
	table := NewTable(family, link.PacketFilterGeneration)
	sync := func(want ruleset.Table) {
		t.Helper()
		if _, _, err := table.Sync(t.Context(), "svc-", want); err != nil {
			t.Fatal(err)
		}
		if n := table.Reads(); n != 1 { // as after answers of the kernel that were lost
			t.Errorf("the table was read %d times", n)
		}
	}
	want := balanced(family, endpoints)
	sync(want) // makes the table, so by nft
	program := hideNFT(t)
	byNFT := namespace.Listing(t, program)
	few := balanced(family, 1)
	few.Chains[1].Rules = few.Chains[1].Rules[1:] // of the endpoint
	for _, other := range []ruleset.Table{few, balanced(family, endpoints+1), balanced(family, max(endpoints-1, 1))} {
		sync(other)
		sync(want)
		if diff := cmp.Diff(byNFT, namespace.Listing(t, program)); diff != "" {
			t.Errorf("by nft (-) and without (+):\n%s", diff)
		}
	}
	if left, err := NewTable(family, link.PacketFilterGeneration).Plan("svc-", want); err != nil || len(left) > 0 {
		t.Errorf("read again: %v, %q", err, left)
	}
}

// A set of clients is made without a size: for one, the kernel allocates as much memory at once. It gets the usual one with the
// rule that adds clients.
func TestSetsOfClientsBeginSmall(t *testing.T) {
	namespace.Load(t, "")
	table := NewTable(netip.IPv4Unspecified(), link.PacketFilterGeneration)
	synced(t, table, balanced(netip.IPv4Unspecified(), 1))
	want := balanced(netip.IPv4Unspecified(), 1)
	want.Sets = append(want.Sets, ruleset.Set{Name: "svc-clients-later", Key: []ruleset.Field{ruleset.Source}, Timeout: 60})
	synced(t, table, want)
	if text := namespace.NFT(t, "list", "set", "ip", "ovn-k8s", "svc-clients-later"); strings.Contains(text, "size") {
		t.Errorf("it has a size:\n%s", text)
	}
	want.Chains = append(want.Chains, ruleset.Chain{Name: "svc-later", Rules: []ruleset.Rule{ruleset.NewRule("", ruleset.Remember{Set: "svc-clients-later", Family: netip.IPv4Unspecified()})}})
	synced(t, table, want)
	if text := namespace.NFT(t, "list", "set", "ip", "ovn-k8s", "svc-clients-later"); !strings.Contains(text, "size 65535") {
		t.Errorf("with a rule:\n%s", text)
	}
}
