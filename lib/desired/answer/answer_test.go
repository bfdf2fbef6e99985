package answer

import (
	"fmt"
	"net/netip"
	"testing"
)

// P3: addresses are spread evenly, and a gateway that goes moves no address of another one.
func TestRendezvous(t *testing.T) {
	none := func(Gateway) int { return 0 }
	best := func(a netip.Addr, all []Gateway) string {
		b := all[0]
		for _, g := range all[1:] {
			if g.Compare(b, a, none) > 0 {
				b = g
			}
		}
		return b.Name
	}
	var all []Gateway
	for i := range 4 {
		all = append(all, Gateway{Name: fmt.Sprint("minion", i)})
	}
	count, a := map[string]int{}, netip.MustParseAddr("192.0.2.1")
	for range 4000 {
		was := best(a, all)
		count[was]++
		for i, g := range all {
			others := append(append([]Gateway{}, all[:i]...), all[i+1:]...)
			if now := best(a, others); g.Name != was && now != was {
				t.Fatalf("without %s, %s moves from %s to %s", g.Name, a, was, now)
			}
		}
		a = a.Next()
	}
	for _, g := range all {
		if n := count[g.Name]; n < 900 || n > 1100 {
			t.Errorf("%s answers for %d of 4000 addresses", g.Name, n)
		}
	}
	// A watcher of the next version must choose the same.
	if got := best(netip.MustParseAddr("2001:db8::1"), all) + " " + best(netip.MustParseAddr("192.0.2.1"), all); got != "minion1 minion2" {
		t.Errorf("chose %s", got)
	}
}

func TestMay(t *testing.T) {
	g := Gateway{LANs: []netip.Prefix{netip.MustParsePrefix("192.0.2.5/24"), netip.MustParsePrefix("2001:db8::5/128")}, Hops: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	for a, want := range map[string]bool{"192.0.2.200": true, "192.0.2.1": false, "192.0.3.1": false, "2001:db8::5": false, "2001:db8::6": false} {
		if g.MayAnswer(netip.MustParseAddr(a)) != want {
			t.Errorf("%s: %v", a, !want)
		}
	}
}

func TestUnits(t *testing.T) {
	for _, text := range []string{"192.0.2.1", "2001:db8::1"} {
		a := netip.MustParseAddr(text)
		if got, ok := Of(Unit(a)); !ok || got != a {
			t.Errorf("%s: %v, %v", text, got, ok)
		}
	}
	for _, u := range []string{"answer/", "answer/x", "service/answer/1"} {
		if _, ok := Of("answer/x"); ok {
			t.Errorf("%s is a unit", u)
		}
	}
}
