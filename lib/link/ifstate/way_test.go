package ifstate_test

import (
	"net/netip"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/test/namespace"
)

// Routes of ip-route(8) become Ways with all of their attributes, or such that are not whole; those that are not the
// interface's become none.
func TestWays(t *testing.T) {
	a := netip.MustParseAddr
	gateway, gateway6 := []netip.Addr{a("192.0.2.1")}, []netip.Addr{a("2001:db8:1::1")}
	for args, want := range map[string]*ifstate.Way{
		"default via 192.0.2.1 dev eth0 onlink":                                    {Via: gateway, OnLink: true, Whole: true},
		"default via 198.51.100.9 dev eth0 metric 7 table 77":                      {Via: []netip.Addr{a("198.51.100.9")}, Metric: 7, Table: 77, Whole: true},
		"10.9.0.0/16 via 192.0.2.1 dev eth0 onlink src 198.51.100.5 mtu 1400":      {Via: gateway, OnLink: true, Source: a("198.51.100.5"), MTU: 1400, Whole: true},
		"10.9.0.0/16 dev eth0 scope link":                                          {Whole: true},
		"10.9.0.0/16 via inet6 fe80::1 dev eth0":                                   {Via: []netip.Addr{a("fe80::1")}},
		"10.9.0.0/16 via 192.0.2.1 dev eth0 onlink advmss 1360":                    {Via: gateway, OnLink: true},
		"10.9.0.0/16 tos 0x20 dev eth0":                                            {},
		"10.9.0.0/16 nexthop via 192.0.2.1 dev eth0 onlink nexthop dev eth0":       {Via: gateway, OnLink: true, Whole: true},
		"10.9.0.0/16 nexthop dev eth0 weight 2 nexthop dev peer weight 1":          {},
		"10.9.0.0/16 dev peer src 198.51.100.5":                                    nil,
		"blackhole 10.9.0.0/16":                                                    nil,
		"10.9.0.0/16 dev eth0 proto dhcp":                                          nil,
		"::/0 via 2001:db8:1::1 dev eth0 onlink metric 1024 src 2001:db8::5":       {Via: gateway6, OnLink: true, Metric: 1024, Source: a("2001:db8::5"), Whole: true},
		"2001:db8:9::/64 dev eth0 metric 1024 mtu 1400":                            {Metric: 1024, MTU: 1400, Whole: true},
		"2001:db8:9::/64 from 2001:db8:8::/64 dev eth0 metric 1024":                {Metric: 1024},
		"2001:db8:9::/64 via 2001:db8:1::1 dev eth0 onlink metric 1024 pref high":  {Via: gateway6, OnLink: true, Metric: 1024},
		"2001:db8:9::/64 via 2001:db8:1::1 dev eth0 onlink metric 1024 expires 60": {Via: gateway6, OnLink: true, Metric: 1024, Whole: true},
	} {
		t.Run(args, func(t *testing.T) {
			namespace.Enter(t)
			ip(t, "link add eth0 type veth peer name peer; ip link set eth0 up; ip link set peer up; ip address add 198.51.100.5/29 dev eth0; ip address add 198.51.100.8/29 dev eth0; ip address add 2001:db8::5/128 dev eth0 nodad")
			i, err := ifstate.Find("eth0")
			if err != nil {
				t.Fatal(err)
			}
			before, err := ifstate.Of(i)
			if err != nil {
				t.Fatal(err)
			}
			ip(t, "route add "+args)
			records, err := ifstate.Of(i)
			if err != nil {
				t.Fatal(err)
			}
			var got *ifstate.Way
			for _, r := range records {
				if w, ok := r.Way(); ok && !contains(before, r) {
					got = &w
				}
			}
			if want != nil && want.Table == 0 {
				want.Table = ifstate.Main
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(ifstate.Way{}, "To"), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// ip runs ip(8).
func ip(t *testing.T, args string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", "ip "+args).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

func contains(records []ifstate.Record, r ifstate.Record) bool {
	for _, o := range records {
		if o.Kind == r.Kind && o.Key() == r.Key() {
			return true
		}
	}
	return false
}
