package ipnet

import (
	"net/netip"
	"testing"
)

func TestFormerSpellings(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.5": "10.0.0.5", "010.0.00.005": "10.0.0.5", "0.0.0.0": "0.0.0.0", "000.0.0.0": "0.0.0.0", "::ffff:10.0.0.5": "10.0.0.5",
		"::ffff:010.0.0.08": "10.0.0.8", "fd00::00a": "fd00::a", "::": "::", "0::0": "::", "::ffff:a00:5": "10.0.0.5",
		"10.0.0.256": "", "10.0.0": "", "0x0a.0.0.5": "", "fe80::1%eth0": "", "": "", "10.0.0.": "", "0": "",
	} {
		got, err := ParseAddr(text)
		if err != nil && want != "" || err == nil && got.String() != want {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"010.1.2.3/08": "10.0.0.0/8", "::ffff:10.1.2.3/104": "10.0.0.0/8", "0.0.0.0/0": "0.0.0.0/0", "::/0": "::/0", "00.0.0.0/00": "0.0.0.0/0",
		"::ffff:10.1.2.3/90": "::ffc0:0:0/90", "fd00:0:0::1/064": "fd00::/64", "10.0.0.0": "", "10.0.0.0/33": "", "10.0.0.0/": "", "10.0.0.0/-1": "",
	} {
		got, err := ParsePrefix(text)
		if err != nil && want != "" || err == nil && got.String() != want {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
}

func FuzzParseAddr(f *testing.F) {
	f.Add("010.0.0.5")
	f.Add("::ffff:10.0.0.5")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAddr(text)
		if strict, e := netip.ParseAddr(text); e == nil && strict.Zone() == "" && (err != nil || a != strict.Unmap()) {
			t.Errorf("%q: %v, %v", text, a, err)
		}
	})
}
