package annotation

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	single := Addresses{"0a:00:00:00:00:01", []netip.Prefix{netip.MustParsePrefix("192.168.2.3/24")}, []netip.Addr{netip.MustParseAddr("192.168.2.1")}}
	dual := Addresses{
		"0a:58:c0:a8:02:03",
		[]netip.Prefix{netip.MustParsePrefix("192.168.2.3/24"), netip.MustParsePrefix("fd01::3/64")},
		[]netip.Addr{netip.MustParseAddr("192.168.2.1"), netip.MustParseAddr("fd01::1")},
	}
	for _, tt := range []struct {
		name, in string
		want     Addresses
		err      string
	}{
		{name: "JSON", in: `{"ip_address": "192.168.2.3/24", "mac_address": "0a:00:00:00:00:01", "gateway_ip": "192.168.2.1"}`, want: single},
		{name: "Python", in: `{'gateway_ip': '192.168.2.1', 'ip_address': u'192.168.2.3/24', 'mac_address': '0a:00:00:00:00:01'}`, want: single},
		{name: "dual stack", in: dual.Annotation(), want: dual},
		{name: "empty", in: "", err: "is not a JSON object"},
		{name: "huge", in: `{"ip_address": "` + strings.Repeat(",", 200_000) + `"}`, err: "has 200018 bytes: it is not of this suite"},
		{name: "a list", in: "[]", err: "is not a JSON object"},
		{name: "nothing in it", in: "{}", err: `mac_address "" is not a unicast MAC`},
		{name: "multicast MAC", in: strings.Replace(single.Annotation(), "0a:", "0b:", 1), err: "unicast"},
		{name: "no prefix length", in: strings.Replace(single.Annotation(), "/24", "", 1), err: `ip_address "192.168.2.3" is not an address with a prefix length`},
		{name: "gateway elsewhere", in: strings.Replace(single.Annotation(), "192.168.2.1", "192.168.3.1", 1), err: "does not match"},
		{name: "one gateway for two", in: strings.Replace(dual.Annotation(), ",fd01::1", "", 1), err: "does not match"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.in)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || got.Annotation() != tt.want.Annotation() {
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"ip_address": "192.168.2.3/24", "mac_address": "0a:00:00:00:00:01", "gateway_ip": "192.168.2.1"}`)
	f.Add(`{'ip_address': u'1.2.3.4/24,fd01::3/64'}`)
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Parse(s)
		if err != nil {
			return
		}
		if again, err := Parse(a.Annotation()); err != nil || again.Annotation() != a.Annotation() {
			t.Errorf("%q: %s does not parse as itself: %v", s, a.Annotation(), err)
		}
	})
}
