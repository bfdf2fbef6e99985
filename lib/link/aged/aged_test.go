package aged

import (
	"net"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ovn-k8s/lib/link"
	"ovn-k8s/test/namespace"
)

func ipNet(t *testing.T, text string) *net.IPNet {
	t.Helper()
	n, err := netlink.ParseIPNet(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The kernel lists addresses of IPv6 from the newest one. It makes a temporary address itself, for one with that flag.
func TestAddresses(t *testing.T) {
	namespace.Enter(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "eth0"
	pair := netlink.NewVeth(attrs)
	pair.PeerName = "peer"
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	if err := link.SetUp("peer"); err != nil { // for a carrier
		t.Fatal(err)
	}
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/eth0/use_tempaddr", []byte("2"), 0); err != nil {
		t.Fatal(err)
	}
	if err := link.SetUp("eth0"); err != nil {
		t.Fatal(err)
	}
	l, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []netlink.Addr{
		{IPNet: ipNet(t, "10.0.0.5/24")},
		{IPNet: ipNet(t, "10.0.0.6/24")}, // the kernel's flag of a second one is that of temporary ones of IPv6
		{IPNet: ipNet(t, "fd00::5/64")},
		{IPNet: ipNet(t, "fd01::5/64"), Flags: unix.IFA_F_MANAGETEMPADDR, ValidLft: 86400, PreferedLft: 43200},
		{IPNet: ipNet(t, "fd02::5/64"), ValidLft: 86400, PreferedLft: 0},
		{IPNet: ipNet(t, "fd00::99/128")},
	} {
		a.Flags |= unix.IFA_F_NODAD
		if err := netlink.AddrAdd(l, &a); err != nil {
			t.Fatal(a, err)
		}
	}
	if err := link.AwaitDAD(t.Context(), "eth0"); err != nil {
		t.Fatal(err)
	}
	all, err := Addresses()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range all["eth0"] {
		text := a.String()
		if a.Temporary {
			text = a.Masked().String() + " temporary"
		}
		if a.Deprecated {
			text += " deprecated"
		}
		got = append(got, text)
	}
	want := []string{"10.0.0.5/24", "10.0.0.6/24", "fd00::5/64", "fd01::5/64", "fd01::/64 temporary", "fd02::5/64 deprecated", "fd00::99/128"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
