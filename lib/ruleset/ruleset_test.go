package ruleset

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Elements and types are formatted as nft does.
func TestElementsAsText(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	full := Element{Source: netip.MustParsePrefix("10.0.0.0/8"), Destination: v4, Protocol: "tcp", Port: 80, Verdict: "goto x", Comment: "default/web"}
	for _, tt := range []struct {
		set        Set
		element    Element
		family     netip.Addr
		key, value string
		kind       string
	}{
		{Set{Key: []Field{Source, Destination, Protocol, Port}, Value: Verdict}, full, v4, "10.0.0.0/8 . 192.0.2.1 . tcp . 80", "goto x", "ipv4_addr . ipv4_addr . inet_proto . inet_service : verdict"},
		{Set{Key: []Field{Protocol, Port}, Value: AddrPort}, Element{Protocol: "udp", Port: 53, To: netip.AddrPortFrom(v6, 5353)}, v6, "udp . 53", "2001:db8::1 . 5353", "inet_proto . inet_service : ipv6_addr . inet_service"},
		{Set{Key: []Field{Source}}, Element{Source: netip.PrefixFrom(v6, 128)}, v6, "2001:db8::1", "", "ipv6_addr"},
	} {
		key, value := tt.set.KeyOf(tt.element), tt.set.ValueOf(tt.element)
		if strings.Join(key, " . ") != tt.key || strings.Join(value, " . ") != tt.value || tt.set.Type(tt.family) != tt.kind {
			t.Errorf("%+v: %q, %q, %s", tt.element, key, value, tt.set.Type(tt.family))
		}
	}
}

// Of several elements with a key, in the table and its parts, the first counts.
func TestPartsOfATable(t *testing.T) {
	at := func(port uint16, verdict string) Element {
		return Element{Protocol: "tcp", Port: port, Verdict: verdict}
	}
	own := Set{Name: "map", Value: Verdict, Elements: []Element{at(1, "goto a"), at(1, "goto b")}}
	table := Table{Sets: []Set{own}, Chains: []Chain{{Name: "base"}}, Parts: []*Table{
		{Sets: []Set{{Name: "map", Value: Verdict, Elements: []Element{at(1, "goto c"), at(2, "goto d")}}}},
		{Sets: []Set{{Name: "other"}}, Chains: []Chain{{Name: "more"}}},
	}}
	want := Table{
		Sets:   []Set{{Name: "map", Value: Verdict, Elements: []Element{at(1, "goto a"), at(2, "goto d")}}, {Name: "other"}},
		Chains: []Chain{{Name: "base"}, {Name: "more"}},
	}
	if diff := cmp.Diff(want, table.Whole(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmpopts.EquateComparable(Element{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(own.Elements) != 2 || table.Sets[0].Elements[1].Verdict != "goto b" {
		t.Error("the table has changed")
	}
}
