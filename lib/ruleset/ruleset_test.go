package ruleset

import (
	"net/netip"
	"strings"
	"testing"
)

// What nft prints for an element is parsed into the same element.
func TestParseIsTheInverse(t *testing.T) {
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
		if got, err := tt.set.Parse(key, value, tt.element.Comment); err != nil || got != tt.element {
			t.Errorf("%q, %q: %+v, %v", key, value, got, err)
		}
	}
	s := Set{Key: []Field{Destination, Port}, Value: AddrPort}
	for _, bad := range [][2]string{{"192.0.2.1", "192.0.2.2 . 80"}, {"192.0.2 . 80", "192.0.2.2 . 80"}, {"192.0.2.1 . 70000", "192.0.2.2 . 80"}, {"192.0.2.1 . 80", "drop"}, {"192.0.2.1 . 80", "a . 80"}} {
		if e, err := s.Parse(strings.Split(bad[0], " . "), strings.Split(bad[1], " . "), ""); err == nil {
			t.Errorf("%q is %+v", bad, e)
		}
	}
}
