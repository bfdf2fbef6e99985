package ipnet

import (
	"net/netip"
	"strings"
	"testing"
)

func TestNthAndOffset(t *testing.T) {
	for _, tt := range []struct {
		subnet string
		n      uint64
		want   string // "" if there is none
	}{
		{"192.168.1.0/24", 0, "192.168.1.0"},
		{"192.168.1.0/24", 1, "192.168.1.1"},
		{"192.168.1.0/24", 255, "192.168.1.255"},
		{"192.168.1.0/24", 256, ""},
		{"255.255.255.0/24", 256, ""},
		{"10.0.0.0/8", 65536 + 3, "10.1.0.3"},
		{"fd00::/64", 1 << 33, "fd00::2:0:0"},
		{"fd00::/112", 1 << 16, ""},
		{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:0/112", 1 << 16, ""},
	} {
		p := netip.MustParsePrefix(tt.subnet)
		got, ok := Nth(p, tt.n)
		if ok != (tt.want != "") || ok && got.String() != tt.want {
			t.Errorf("Nth(%s, %d) = %s, %t; want %q", p, tt.n, got, ok, tt.want)
		}
		if back, ok := Offset(p, got); tt.want != "" && (!ok || back != tt.n) {
			t.Errorf("Offset(%s, %s) = %d, %t; want %d", p, got, back, ok, tt.n)
		}
	}
	if _, ok := Offset(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParseAddr("11.0.0.0")); ok {
		t.Error("an address outside of the subnet has an offset")
	}
}

func TestHosts(t *testing.T) {
	for subnet, want := range map[string]uint64{
		"10.0.0.0/24": 254, "10.0.0.0/29": 6, "10.0.0.0/30": 2, "10.0.0.0/31": 0, "10.0.0.0/32": 0, "10.0.0.0/8": 1<<24 - 2, "10.0.0.0/7": 1 << 24,
		"fd00::/64": 1 << 24, "fd00::/120": 255, "fd00::/128": 0,
	} {
		if got := Hosts(netip.MustParsePrefix(subnet)); got != want {
			t.Errorf("Hosts(%s) = %d, want %d", subnet, got, want)
		}
	}
}

func TestMACs(t *testing.T) {
	for addr, want := range map[string]string{"192.168.2.3": "0a:58:c0:a8:02:03", "fd00::1:2": "0a:58:00:01:00:02"} {
		if got := PodMAC(netip.MustParseAddr(addr)); got != want {
			t.Errorf("PodMAC(%s) = %s, want %s", addr, got, want)
		}
	}
	first := RouterMAC("rtos-node1")
	if first != RouterMAC("rtos-node1") || first == RouterMAC("rtos-node2") || !strings.HasPrefix(first, "00:00:00:") || first != strings.ToUpper(first) {
		t.Errorf("RouterMAC gives %s", first)
	}
}

func TestParseSubnets(t *testing.T) {
	for _, tt := range []struct{ in, want, err string }{
		{in: "192.168.1.0/24", want: "192.168.1.0/24"},
		{in: "fd01::/64, 192.168.1.0/24", want: "192.168.1.0/24,fd01::/64"},
		{in: "", err: `"" is not a subnet: write it like 192.168.1.0/24 or fd01::/64`},
		{in: "192.168.1.0", err: `"192.168.1.0" is not a subnet`},
		{in: "192.168.1.7/24", err: `"192.168.1.7/24" has bits set beyond its prefix length: did you mean 192.168.1.0/24?`},
		{in: "10.0.0.0/31", err: `"10.0.0.0/31" is too small: it has 0 usable addresses, and 3 are needed`},
		{in: "10.0.0.0/24,10.0.1.0/24", err: "has two subnets of one family"},
		{in: "::ffff:10.0.0.0/120", err: "IPv4-mapped"},
		{in: "x,y", err: `"y" is not a subnet`},
	} {
		got, err := ParseSubnets(tt.in, 3)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q: error %v, want %q", tt.in, err, tt.err)
			}
			continue
		}
		if err != nil || Join(got) != tt.want {
			t.Errorf("%q: %s, %v; want %s", tt.in, Join(got), err, tt.want)
		}
	}
}

func TestParseDisjoint(t *testing.T) {
	got, err := ParseDisjoint("10.1.0.0/16,fd01::/48,10.0.0.0/16,fd00::/48", 3)
	if want := "10.1.0.0/16,10.0.0.0/16,fd01::/48,fd00::/48"; err != nil || Join(got) != want || OnePerFamily(got) {
		t.Errorf("%s, %v; want %s", Join(got), err, want)
	}
	_, err = ParseDisjoint("10.0.0.0/8,fd00::/48,10.1.0.0/16,x", 3)
	for _, want := range []string{"subnets 10.0.0.0/8 and 10.1.0.0/16 overlap: give each address once", `"x" is not a subnet`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func FuzzParseSubnets(f *testing.F) {
	f.Add("192.168.1.0/24,fd01::/64")
	f.Add("1.2.3.4/0,::/0")
	f.Fuzz(func(t *testing.T, s string) {
		subnets, err := ParseSubnets(s, 3)
		if err != nil {
			return
		}
		if again, err := ParseSubnets(Join(subnets), 3); err != nil || Join(again) != Join(subnets) {
			t.Errorf("%q: %s does not parse as itself: %v", s, Join(subnets), err)
		}
		for _, p := range subnets {
			if _, ok := Nth(p, Hosts(p)); !ok {
				t.Errorf("%s has no host %d", p, Hosts(p))
			}
		}
	})
}
