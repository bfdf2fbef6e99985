package ruleset

import (
	"net/netip"
	"strings"
	"testing"
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
