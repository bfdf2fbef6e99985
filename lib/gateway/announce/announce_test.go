package announce

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// P3: a new address is announced at once and twice more, a removed one no more; thousands are sent in batches.
func TestAnnouncements(t *testing.T) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	var n announcements
	next := func(want string, pause time.Duration) {
		t.Helper()
		batch, got := n.next()
		if ipnet.Join(batch) != want || got != pause {
			t.Errorf("announced %v, then waits for %v; want %s, %v", batch, got, want, pause)
		}
	}
	next("", 0)
	if fresh := n.update([]netip.Addr{a}); len(fresh) != 1 {
		t.Errorf("new are %v", fresh)
	}
	next("192.0.2.1", announceEvery)
	if fresh := n.update([]netip.Addr{a, b}); len(fresh) != 1 || fresh[0] != b {
		t.Errorf("new are %v", fresh)
	}
	next("2001:db8::1", announceEvery)
	next("192.0.2.1,2001:db8::1", announceEvery)
	n.update([]netip.Addr{b})
	next("2001:db8::1", 0)
	next("", 0)
	if fresh := n.update([]netip.Addr{a, b}); len(fresh) != 1 || fresh[0] != a {
		t.Errorf("new are %v: %s is back", fresh, a)
	}
	var many []netip.Addr
	for x := a; len(many) < 3*announceBatch; x = x.Next() {
		many = append(many, x)
	}
	n = announcements{}
	n.update(many)
	for i := range 3 * announceTimes {
		batch, pause := n.next()
		want := []time.Duration{announcePause, announcePause, announceEvery}[i%3]
		if i == 3*announceTimes-1 {
			want = 0
		}
		if len(batch) != announceBatch || pause != want {
			t.Errorf("batch %d has %d addresses, then waits for %v", i, len(batch), pause)
		}
	}
}

// P3: a NIC of its own, or a shared one, is where a gateway announces; a local gateway does not.
func TestUplinks(t *testing.T) {
	port := func(name, kind string) vswitch.Interface {
		return vswitch.Interface{Name: name, Type: kind, Bridge: names.IntegrationBridge, ExternalIDs: map[string]string{names.GatewayTag: "gw", names.IfaceID: name + "_gw"}}
	}
	all := []vswitch.Interface{port("eth1", ""), port("k8s-patch-br-int-breth0", "patch"), port("k8s-patch-br-int-br-local", "patch"), {Name: "eth0", Bridge: "breth0"}}
	var s Shared
	if got := s.Uplinks(all); len(got) != 1 || !got[Uplink{"gw", "eth1", "eth1_gw", ""}] {
		t.Errorf("without a shared bridge: %v", got)
	}
	s.Bridge, s.NIC = "breth0", "eth0"
	if got := s.Uplinks(all); len(got) != 2 || !got[Uplink{"gw", "eth0", "k8s-patch-br-int-breth0_gw", ""}] {
		t.Errorf("with a shared bridge: %v", got)
	}
}

// H8: next hops are asked with the router's own addresses, in each of its families.
func TestQuestions(t *testing.T) {
	own := []netip.Prefix{netip.MustParsePrefix("192.0.2.5/24"), netip.MustParsePrefix("2001:db8::5/64")}
	for hops, want := range map[string]string{
		"":                           "[]",
		"192.0.2.1":                  "[{192.0.2.5 192.0.2.1}]",
		"192.0.2.1,2001:db8::1":      "[{192.0.2.5 192.0.2.1} {2001:db8::5 2001:db8::1}]",
		"fe80::1,nonsense,192.0.2.1": "[{2001:db8::5 fe80::1} {192.0.2.5 192.0.2.1}]",
	} {
		if got := fmt.Sprint(Uplink{hops: hops}.questions(own)); got != want {
			t.Errorf("%s: %s, want %s", hops, got, want)
		}
	}
	if got := (Uplink{hops: "2001:db8::1"}).questions(own[:1]); len(got) != 0 {
		t.Errorf("a router without IPv6 asks %v", got)
	}
}
