package link

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"ovn-k8s/test/namespace"
)

// container creates a second namespace and returns it, open.
func container(t *testing.T) *Namespace {
	t.Helper()
	here, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = here.Close() }()
	h, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	if err := netns.Set(here); err != nil {
		t.Fatal(err)
	}
	ns := &Namespace{"test", h}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// device creates an interface for a test.
func device(t *testing.T, name string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	pair := netlink.NewVeth(attrs)
	pair.PeerName = name + "p"
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	if err := SetUp(name + "p"); err != nil { // for a carrier
		t.Fatal(err)
	}
}

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func route(to, via string) Route { return Route{netip.MustParsePrefix(to), netip.MustParseAddr(via)} }

// is returns the state of an interface without kernel routes and link-local addresses.
func is(t *testing.T, name string) []string {
	t.Helper()
	var all []string
	addrs, err := addresses(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if p := prefix(a.IPNet); !p.Addr().IsLinkLocalUnicast() {
			all = append(all, p.String())
		}
	}
	rs, err := routes(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if r.Gw != nil {
			all = append(all, fmt.Sprintf("%s via %s proto %d", prefix(r.Dst), r.Gw, r.Protocol))
		}
	}
	slices.Sort(all)
	return all
}

func TestCheck15_ManagementInterface(t *testing.T) {
	namespace.Enter(t)
	device(t, "k8s-node")
	s := State{
		Interface: "k8s-node",
		Addresses: prefixes("192.168.1.2/24", "fd01::2/64"),
		Routes:    []Route{route("192.168.0.0/16", "192.168.1.1"), route("fd00::/8", "fd01::1")},
	}
	want := []string{"192.168.0.0/16 via 192.168.1.1 proto 46", "192.168.1.2/24", "fd00::/8 via fd01::1 proto 46", "fd01::2/64"}
	if err := Ensure(s); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, is(t, "k8s-node")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	plan, err := Plan(s)
	if err != nil || len(plan) != 0 {
		t.Errorf("a second run would change %v, %v", plan, err)
	}
	for file, want := range map[string]string{"accept_ra": "0\n", "disable_ipv6": "0\n"} {
		if got, err := os.ReadFile("/proc/sys/net/ipv6/conf/k8s-node/" + file); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v, want %q", file, got, err, want)
		}
	}
	l, _ := find("k8s-node")
	if l.Attrs().Flags&net.FlagUp == 0 {
		t.Error("it is not up")
	}
}

func TestPlanWithoutInterface(t *testing.T) {
	namespace.Enter(t)
	plan, err := Plan(State{Interface: "k8s-node", MTU: 1400, Addresses: prefixes("192.168.1.2/24"), Routes: []Route{route("192.168.0.0/16", "192.168.1.1")}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"set the MTU of k8s-node to 1400", "set k8s-node up", "add address 192.168.1.2/24 to k8s-node", "add route 192.168.0.0/16 via 192.168.1.1 dev k8s-node"}
	var got []string
	for _, c := range plan {
		got = append(got, c.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := Ensure(State{Interface: "k8s-node"}); err == nil || !strings.Contains(err.Error(), "interface k8s-node not found") {
		t.Errorf("Ensure without the interface: %v", err)
	}
}

// Foreign configuration stays, except addresses, and routes to a wanted subnet.
func TestEnsureConverges(t *testing.T) {
	namespace.Enter(t)
	device(t, "dev0")
	l, err := find("dev0")
	if err != nil {
		t.Fatal(err)
	}
	if err := SetUp("dev0"); err != nil {
		t.Fatal(err)
	}
	for _, p := range prefixes("192.168.1.9/24", "192.168.1.2/24", "10.9.9.9/32") {
		if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: ipNet(p)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []struct {
		route Route
		proto netlink.RouteProtocol
	}{{route("192.168.0.0/16", "192.168.1.7"), 3}, {route("172.16.0.0/16", "192.168.1.7"), 4}, {route("10.0.0.0/8", "192.168.1.7"), Protocol}} {
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(r.route.To), Gw: r.route.Via.AsSlice(), Protocol: r.proto}); err != nil {
			t.Fatal(err)
		}
	}
	s := State{Interface: "dev0", Addresses: prefixes("192.168.1.2/24"), Routes: []Route{route("192.168.0.0/16", "192.168.1.1")}}
	plan, err := Plan(s)
	if err != nil {
		t.Fatal(err)
	}
	removes := 0
	for _, c := range plan {
		if c.Removes() {
			removes++
		}
	}
	if removes != 3 {
		t.Errorf("Plan removes %d things, want 3: %v", removes, plan)
	}
	if err := Ensure(s); err != nil {
		t.Fatal(err)
	}
	// 192.168.1.2 was a secondary of 192.168.1.9: it was deleted with that and added again. The foreign route
	// disappeared with the last address, as with ip(8).
	got := slices.DeleteFunc(is(t, "dev0"), func(s string) bool { return strings.HasPrefix(s, "172.16.") })
	if diff := cmp.Diff([]string{"192.168.0.0/16 via 192.168.1.1 proto 46", "192.168.1.2/24"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(netip.MustParsePrefix("172.16.0.0/16")), Gw: net.IPv4(192, 168, 1, 7), Protocol: 4}); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	s.Routes = []Route{DefaultRoute(netip.MustParseAddr("192.168.1.1"))}
	if err := Ensure(s); err != nil {
		t.Fatal(err)
	}
	want := []string{"0.0.0.0/0 via 192.168.1.1 proto 46", "172.16.0.0/16 via 192.168.1.7 proto 4", "192.168.1.2/24"}
	if diff := cmp.Diff(want, is(t, "dev0")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// After any sequence of other states, the interface has the last one.
func TestEnsurePathIndependent(t *testing.T) {
	namespace.Enter(t)
	device(t, "dev0")
	random := rand.New(rand.NewPCG(1, 2))
	some := func(list []string) []string {
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return list[:1+random.IntN(len(list)-1)]
	}
	for step := range 60 {
		s := State{Interface: "dev0", MTU: 1300 + random.IntN(100)}
		var want []string
		for _, a := range some([]string{"10.0.0.2/24", "10.0.0.3/24", "10.0.0.2/16", "10.0.1.2/24", "fd01::2/64", "fd01::3/64", "fd02::2/64"}) {
			p := netip.MustParsePrefix(a)
			s.Addresses = append(s.Addresses, p)
			want = append(want, a)
		}
		for _, p := range s.Addresses[:1] {
			r := Route{netip.MustParsePrefix("172.16.0.0/12"), p.Masked().Addr().Next()}
			if p.Addr().Is6() {
				r.To = netip.MustParsePrefix("fd80::/16")
			}
			s.Routes = append(s.Routes, r)
			want = append(want, r.String()+" proto 46")
		}
		slices.Sort(want)
		if err := Ensure(s); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if diff := cmp.Diff(want, is(t, "dev0")); diff != "" {
			t.Fatalf("step %d (-want +got)\n%s", step, diff)
		}
		if plan, err := Plan(s); err != nil || len(plan) != 0 {
			t.Fatalf("step %d: a second run would change %v, %v", step, plan, err)
		}
	}
}

func TestOpenNamespace(t *testing.T) {
	namespace.Enter(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenNamespace(file); err == nil || !strings.Contains(err.Error(), "is not a network namespace") {
		t.Errorf("a file: %v", err)
	}
	if _, err := OpenNamespace("/proc/self/ns/mnt"); err == nil || !strings.Contains(err.Error(), "is not a network namespace") {
		t.Errorf("a mount namespace: %v", err)
	}
	if _, err := OpenNamespace(file + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing: %v", err)
	}
	here, err := OpenNamespace("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = here.Close() }()
	if same, err := here.IsCurrent(); !same || err != nil {
		t.Errorf("IsCurrent: %v, %v", same, err)
	}
	if same, err := container(t).IsCurrent(); same || err != nil {
		t.Errorf("IsCurrent of another: %v, %v", same, err)
	}
}

// twins creates two interfaces, eth0 here and eth0 in another namespace, joined; the other has an address.
func twins(t *testing.T, address string) {
	t.Helper()
	other := container(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "eth0"
	pair := netlink.NewVeth(attrs)
	pair.PeerName, pair.PeerNamespace = "eth0", netlink.NsFd(other.handle)
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	err := other.Do(func() error {
		return Ensure(State{Interface: "eth0", Addresses: prefixes(address)})
	})
	if err == nil {
		err = SetUp("eth0")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A duplicate of another host's address does not count as this host's.
func TestAddressesOfOtherHosts(t *testing.T) {
	namespace.Enter(t)
	twins(t, "fd00::9/64")
	l, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range prefixes("10.0.0.5/24", "fd00::5/64", "fd00::9/64") {
		if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: ipNet(p)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := AwaitDAD(t.Context(), "eth0"); err != nil {
		t.Fatal(err)
	}
	nic, err := Inspect("eth0")
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(nic.Addresses, netip.Prefix.Compare)
	if diff := cmp.Diff([][]netip.Prefix{prefixes("10.0.0.5/24", "fd00::5/64"), prefixes("fd00::9/64")}, [][]netip.Prefix{nic.Addresses, nic.Doubtful}, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	all, err := Addresses()
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(all["eth0"], netip.MustParsePrefix("fd00::9/64")) || !slices.Contains(all["eth0"], netip.MustParsePrefix("fd00::5/64")) {
		t.Errorf("eth0 has %v", all["eth0"])
	}
}

// A route with several next hops belongs to the interface of each next hop.
func TestRoutesWithSeveralNextHops(t *testing.T) {
	namespace.Enter(t)
	var hops4, hops6 []*netlink.NexthopInfo
	for i, name := range []string{"eth0", "eth1"} {
		device(t, name)
		s := State{Interface: name, Addresses: prefixes(fmt.Sprintf("10.0.%d.5/24", i), fmt.Sprintf("fd0%d::5/64", i))}
		if err := Ensure(s); err != nil {
			t.Fatal(err)
		}
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		hops4 = append(hops4, &netlink.NexthopInfo{LinkIndex: l.Attrs().Index, Gw: net.ParseIP(fmt.Sprintf("10.0.%d.1", i))})
		hops6 = append(hops6, &netlink.NexthopInfo{LinkIndex: l.Attrs().Index, Gw: net.ParseIP(fmt.Sprintf("fd0%d::1", i))})
	}
	for _, r := range []netlink.Route{
		{Dst: ipNet(netip.MustParsePrefix("0.0.0.0/0")), MultiPath: hops4},
		{Dst: ipNet(netip.MustParsePrefix("10.128.0.0/16")), MultiPath: hops4},
		{Dst: ipNet(netip.MustParsePrefix("::/0")), MultiPath: hops6, Protocol: unix.RTPROT_RA},
	} {
		if err := netlink.RouteAdd(&r); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"eth0", "eth1"} {
		if nic, err := Inspect(name); err != nil || !nic.Default {
			t.Errorf("%s has no default route: %+v, %v", name, nic, err)
		}
	}
	if taken, err := Overlapping(prefixes("10.128.0.0/14"), "k8s-"); err != nil || len(taken) != 1 || taken[0].To.String() != "10.128.0.0/16" {
		t.Errorf("taken are %v, %v", taken, err)
	}
	to, hops, err := Routing("eth1")
	if err != nil || !slices.Contains(to, netip.MustParsePrefix("10.128.0.0/16")) || slices.Contains(to, netip.MustParsePrefix("10.0.0.0/24")) || slices.ContainsFunc(to, func(p netip.Prefix) bool { return p.Bits() == 0 }) {
		t.Errorf("eth1 leads to %v, %v", to, err)
	}
	if diff := cmp.Diff([]string{"10.0.0.1", "10.0.1.1", "fd00::1", "fd01::1"}, strings.Fields(strings.Trim(fmt.Sprint(hops), "[]"))); diff != "" {
		t.Errorf("default routes (-want +got)\n%s", diff)
	}
	for _, name := range []string{"eth0", "eth1"} { // as if forwarding was enabled before the first advertisement
		for file, value := range map[string]string{"accept_ra": "1", "forwarding": "1"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/"+file, []byte(value), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := EnsureForwarding(netip.IPv6Unspecified()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"eth0", "eth1"} {
		if text, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + name + "/accept_ra"); err != nil || strings.TrimSpace(string(text)) != "2" {
			t.Errorf("accept_ra of %s is %s, %v", name, text, err)
		}
	}
}

// L9: the kernel omits connections.
func TestListenersWithoutConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 100 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	const listening, established = 10, 1
	own := netip.MustParseAddrPort(l.Addr().String())
	count := func(state int) (n int) {
		ends, err := sockets(socketQuery{Family: unix.AF_INET, Protocol: unix.IPPROTO_TCP, States: 1 << state})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range ends {
			if e == own {
				n++
			}
		}
		return n
	}
	if n, m := count(listening), count(established); n != 1 || m != 100 {
		t.Errorf("%d sockets listen, %d are connected", n, m)
	}
	everywhere, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer everywhere.Close()
	datagrams, err := net.ListenPacket("udp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	all, err := Listeners()
	port := func(a net.Addr) uint16 { return netip.MustParseAddrPort(a.String()).Port() }
	if err != nil || !all[Listener{"tcp", port(everywhere.Addr())}] || !all[Listener{"udp", port(datagrams.LocalAddr())}] || all[Listener{"tcp", own.Port()}] {
		t.Errorf("listeners: %v, %v", all, err)
	}
}
