package hostgateway

import (
	"net/netip"
	"strings"
	"testing"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
)

func prefixes(list string) (all []netip.Prefix) {
	for _, text := range strings.Fields(list) {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func addrs(list string) (all []netip.Addr) {
	for _, text := range strings.Fields(list) {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// addresses reads those of an interface: "t" at the end is a temporary one, "d" a deprecated one.
func addresses(list []string) (all []Address) {
	for _, text := range list {
		a := Address{Temporary: strings.HasSuffix(text, "t"), Deprecated: strings.HasSuffix(text, "d")}
		a.Prefix = netip.MustParsePrefix(strings.TrimRight(text, "td"))
		all = append(all, a)
	}
	return all
}

// parse reads a host from lines "NAME BRIDGE ADDRESS…", "-" for no bridge, "default VIA INTERFACE", "present IP…"
// and "node ADDRESS…".
func parse(text string) Host {
	h := Host{Interfaces: map[string]Interface{}, Pods: prefixes("10.128.0.0/23 fd01::/64")}
	for line := range strings.SplitSeq(text, ";") {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "pods":
			h.Pods = prefixes(strings.Join(words[1:], " "))
		case words[0] == "default":
			h.Routes = append(h.Routes, Route{words[2], netip.MustParseAddr(words[1])})
		case words[0] == "present":
			h.Present = prefixes(strings.Join(words[1:], " "))
		case words[0] == "node":
			h.Node = addrs(strings.Join(words[1:], " "))
		default:
			h.Interfaces[words[0]] = Interface{strings.Trim(words[1], "-"), addresses(words[2:])}
		}
	}
	return h
}

const (
	fresh   = "lo - 127.0.0.1/8; eth0 - 192.0.2.11/24 2001:db8::11/64; default 192.0.2.1 eth0; default fe80::1 eth0"
	shared  = "eth0 breth0; breth0 breth0 192.0.2.11/24 2001:db8::11/64; default 192.0.2.1 breth0; default fe80::1 breth0"
	half    = "eth0 breth0; breth0 breth0 192.0.2.11/24; default 192.0.2.1 breth0; default fe80::1 breth0"
	reboot  = "eth0 breth0 192.0.2.11/24; breth0 breth0; default 192.0.2.1 eth0"
	foreign = "eth0 br-ex; br-ex br-ex 192.0.2.11/24; default 192.0.2.1 br-ex"
	// six has addresses of two subnets, temporary (t) and deprecated (d) ones of them, and a virtual one.
	six    = "pods fd01::/64; default fe80::1 breth0; breth0 breth0 fd10::b/64d 2001:db8::d/64t fd10::5/64 2001:db8::5/64 2001:db8::e/64t 2001:db8::99/128"
	four   = "pods 10.128.0.0/23; default 192.0.2.1 breth0; breth0 breth0 192.0.2.99/32 10.0.0.5/24 192.0.2.11/24 192.0.2.12/24"
	second = fresh + "; eth1 - 10.0.0.5/24 10.9.9.9/24 fd10::5/64"
)

func TestDecide(t *testing.T) {
	for _, tt := range []struct{ what, host, mode, nic, hops, want string }{
		{"a fresh host", fresh, topology.Bridge, "", "", "move eth0 to breth0"},
		{"the NIC by name", fresh, topology.Bridge, "eth0", "", "move eth0 to breth0"},
		{"moved", shared, topology.Bridge, "", "", "breth0 192.0.2.11/24,2001:db8::11/64 via 192.0.2.1,fe80::1"},
		{"moved, the NIC by name", shared, topology.Bridge, "eth0", "", "breth0 192.0.2.11/24,2001:db8::11/64 via 192.0.2.1,fe80::1"},
		{"moved, the bridge by name", shared, topology.Bridge, "breth0", "", "breth0 192.0.2.11/24,2001:db8::11/64 via 192.0.2.1,fe80::1"},
		{"a node with IPv4 only", shared + "; pods 10.128.0.0/23", topology.Bridge, "", "", "breth0 192.0.2.11/24 via 192.0.2.1"},
		{"a node with IPv6 only", shared + "; pods fd01::/64", topology.Bridge, "", "", "breth0 2001:db8::11/64 via fe80::1"},
		{"a next hop by option, the other by route", shared, topology.Bridge, "", "192.0.2.9", "breth0 192.0.2.11/24,2001:db8::11/64 via 192.0.2.9,fe80::1"},
		{"after a reboot", reboot, topology.Bridge, "", "", "move eth0 to breth0"},
		{"after a reboot, the bridge by name", reboot, topology.Bridge, "breth0", "", "move eth0 to breth0"},
		{"an operator's bridge", foreign, topology.Bridge, "", "", "br-ex 192.0.2.11/24 via 192.0.2.1"},
		{"a NIC of an operator's bridge", foreign, topology.Physical, "eth0", "", "eth0 is a port of bridge br-ex: take it out of the bridge, or give another gateway-interface, or gateway-mode shared"},
		{"a second NIC", second, topology.Physical, "eth1", "10.9.9.1", "eth1 10.9.9.9/24 via 10.9.9.1"},
		{"a next hop outside of the subnets", second, topology.Physical, "eth1", "203.0.113.1,fd10::1", "eth1 10.0.0.5/24,fd10::5/64 via 203.0.113.1,fd10::1"},
		{"a default route of another family elsewhere", second + "; default fd10::1 eth1; pods 10.128.0.0/23", topology.Bridge, "", "", "move eth0 to breth0"},
		{"only a default route of another family", "eth0 - 192.0.2.11/24; default 192.0.2.1 eth0; pods fd01::/64", topology.Bridge, "", "", "this host has no default route"},
		{"the oldest lasting address", six, topology.Bridge, "", "", "breth0 fd10::5/64 via fe80::1"},
		{"the Node's address", six + "; node 192.0.2.1 2001:db8::5 fd10::5", topology.Bridge, "", "", "breth0 2001:db8::5/64 via fe80::1"},
		{"the Node's address, of full length", six + "; node fd10::9 2001:db8::99", topology.Bridge, "", "", "breth0 2001:db8::99/128 via fe80::1"},
		{"the present address", six + "; present 2001:db8::5/64; node fd10::5", topology.Bridge, "", "", "breth0 2001:db8::5/64 via fe80::1"},
		{"the present address, with another router", six + "; present 2001:db8::5/64", topology.Bridge, "", "fe80::2", "breth0 2001:db8::5/64 via fe80::2"},
		{"the present address, with another prefix length", six + "; present 2001:db8::5/48", topology.Bridge, "", "", "breth0 2001:db8::5/64 via fe80::1"},
		{"the present address is gone", six + "; present 2001:db8::7/64", topology.Bridge, "", "", "breth0 fd10::5/64 via fe80::1"},
		{"the next hop's subnet", six, topology.Bridge, "", "2001:db8::1", "breth0 2001:db8::5/64 via 2001:db8::1"},
		{"the next hop's subnet, not the present one", six + "; present fd10::5/64", topology.Bridge, "", "2001:db8::1", "breth0 2001:db8::5/64 via 2001:db8::1"},
		{"the present address, of full length in the next hop's subnet", six + "; present 2001:db8::99/128", topology.Bridge, "", "2001:db8::1", "breth0 2001:db8::99/128 via 2001:db8::1"},
		{"the present address, of full length elsewhere", "pods fd01::/64; breth0 breth0 fd10::99/128 2001:db8::5/64; present fd10::99/128; default 2001:db8::1 breth0", topology.Bridge, "", "", "breth0 2001:db8::5/64 via 2001:db8::1"},
		{"only a temporary one in the next hop's subnet", "pods fd01::/64; breth0 breth0 fd10::5/64 fd10::6/64 2001:db8::e/64t; present fd10::6/64; default 2001:db8::1 breth0", topology.Bridge, "", "", "breth0 fd10::6/64 via 2001:db8::1"},
		{"the present address is temporary, others last", six + "; present 2001:db8::e/64", topology.Bridge, "", "", "breth0 2001:db8::e/64 via fe80::1"},
		{"the present address is temporary, in the next hop's subnet", six + "; present 2001:db8::e/64", topology.Bridge, "", "2001:db8::1", "breth0 2001:db8::e/64 via 2001:db8::1"},
		{"of DHCPv6 only", "pods fd01::/64; breth0 breth0 2001:db8::d/64t 2001:db8::99/128; default fe80::1 breth0", topology.Bridge, "", "", "breth0 2001:db8::99/128 via fe80::1"},
		{"temporary ones only", "pods fd01::/64; breth0 breth0 2001:db8::d/64t 2001:db8::e/64t; default fe80::1 breth0", topology.Bridge, "", "", "breth0 2001:db8::d/64 via fe80::1"},
		{"IPv4: the next hop's subnet", four + "; node 192.0.2.12", topology.Bridge, "", "", "breth0 192.0.2.11/24 via 192.0.2.1"},
		{"IPv4: the first one", four, topology.Bridge, "", "203.0.113.1", "breth0 192.0.2.99/32 via 203.0.113.1"},
		{"IPv4: the present one", four + "; present 192.0.2.12/24", topology.Bridge, "", "", "breth0 192.0.2.12/24 via 192.0.2.1"},
		{"IPv4: the present one is gone", four + "; present 192.0.2.13/24", topology.Bridge, "", "", "breth0 192.0.2.11/24 via 192.0.2.1"},
		{"IPv4: the next hop was changed", four + "; present 10.0.0.5/24", topology.Bridge, "", "", "breth0 192.0.2.11/24 via 192.0.2.1"},
		{"local", "lo -", topology.Local, "", "", "br-local  via "},

		{"no route", "eth0 - 192.0.2.11/24", topology.Bridge, "", "", "this host has no default route"},
		{"no such interface", fresh, topology.Bridge, "eth9", "", "interface eth9 of the gateway not found"},
		{"no next hop", second, topology.Physical, "eth1", "", "no default route leads through eth1"},
		{"no address", "eth1 -; pods 10.128.0.0/23", topology.Physical, "eth1", "10.0.0.1", "no address of IPv4"},
		{"IPv6 without an address", half, topology.Bridge, "", "", "breth0 192.0.2.11/24 via 192.0.2.1, without IPv6"},
		{"IPv4 without an address", "breth0 breth0 2001:db8::11/64; default 192.0.2.1 breth0; default fe80::1 breth0", topology.Bridge, "", "", "breth0 2001:db8::11/64 via fe80::1, without IPv4"},
		{"IPv6 without an address, but asked for", half, topology.Bridge, "", "fe80::1", "no address of IPv6"},
		{"IPv6 without an address now", half + "; present 192.0.2.11/24 2001:db8::11/64", topology.Bridge, "", "", "no address of IPv6"},
		{"IPv6 without an address again", half + "; present 192.0.2.11/24", topology.Bridge, "", "", "breth0 192.0.2.11/24 via 192.0.2.1, without IPv6"},
		{"only IPv6, without an address", half + "; pods fd01::/64", topology.Bridge, "", "", "no address of IPv6"},
		{"a bridge without an address", "breth0 breth0", topology.Bridge, "breth0", "192.0.2.1", "bridge breth0 of the gateway has no address"},
		{"OVN's NIC", "eth1 br-int; eth0 - 192.0.2.1/24", topology.Bridge, "eth1", "192.0.2.1", "eth1 is a port of br-int"},
	} {
		var hops []netip.Addr
		for _, text := range strings.FieldsFunc(tt.hops, func(r rune) bool { return r == ',' }) {
			hops = append(hops, netip.MustParseAddr(text))
		}
		d, err := Decide(Options{Mode: tt.mode, Interface: tt.nic, NextHops: hops, VLAN: 7}, parse(tt.host))
		got := d.Interface + " " + ipnet.Join(d.IPs) + " via " + ipnet.Join(d.NextHops)
		if d.Move != "" {
			got = "move " + d.Move + " to " + d.Interface
		}
		for _, text := range d.LeftOut {
			_, text, _ = strings.Cut(text, "no address of ")
			got += ", without " + text[:len("IPv4")]
		}
		if err != nil {
			got = err.Error()
		}
		if got != tt.want && !(err != nil && strings.Contains(got, tt.want)) {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
		if err == nil && (d.VLAN != 7 || d.Mode != tt.mode) {
			t.Errorf("%s: %+v", tt.what, d)
		}
	}
}

// An address that was away for a moment is the gateway's again only if it is nearer to the next hop.
func TestAnAddressIsAwayForAMoment(t *testing.T) {
	const four, six = "pods 10.128.0.0/23; default 192.0.2.1 breth0; breth0 breth0 ", "pods fd01::/64; default fe80::1 breth0; breth0 breth0 "
	for _, tt := range []struct{ what, host, all, away, want string }{
		{"in the next hop's subnet", four, "10.0.0.5/24 192.0.2.11/24", "10.0.0.5/24", "192.0.2.11/24 10.0.0.5/24 192.0.2.11/24"},
		{"two in its subnet", four, "192.0.2.11/24 192.0.2.12/24", "192.0.2.12/24", "192.0.2.11/24 192.0.2.12/24 192.0.2.12/24"},
		{"IPv6, in its subnet", strings.Replace(six, "fe80", "2001:db8", 1), "fd10::5/64 2001:db8::5/64", "fd10::5/64", "2001:db8::5/64 fd10::5/64 2001:db8::5/64"},
		{"a link-local next hop", six, "2001:db8::5/64 fd10::5/64 fd10::99/128", "fd10::5/64 fd10::99/128", "2001:db8::5/64 fd10::5/64 fd10::5/64"},
		{"a link-local next hop, of full length", six, "2001:db8::5/64 2001:db8::99/128", "2001:db8::99/128", "2001:db8::5/64 2001:db8::99/128 2001:db8::99/128"},
	} {
		var present []netip.Prefix
		var got []string
		for _, list := range []string{tt.all, tt.away, tt.all} {
			h := parse(tt.host + list)
			h.Present = present
			d, err := Decide(Options{Mode: topology.Bridge}, h)
			if err != nil {
				t.Fatalf("%s: %v", tt.what, err)
			}
			present, got = d.IPs, append(got, ipnet.Join(d.IPs))
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
}

func TestTunnelAddress(t *testing.T) {
	for _, tt := range []struct{ candidates, want string }{
		{"", "invalid IP"}, {"198.51.100.1", "invalid IP"}, {"127.0.0.1", "invalid IP"},
		{"2001:db8::11 192.0.2.11", "192.0.2.11"}, {"198.51.100.1 2001:db8::11", "2001:db8::11"},
	} {
		var all []netip.Addr
		for _, text := range strings.Fields(tt.candidates) {
			all = append(all, netip.MustParseAddr(text))
		}
		if got, ok := TunnelAddress(all, parse(fresh)); got.String() != tt.want || ok != got.IsValid() {
			t.Errorf("%s: %v, %v", tt.candidates, got, ok)
		}
	}
}

// A NIC taken back from the gateway of another mode has the addresses and next hops of before, or those of its bridge.
func TestReleasedNIC(t *testing.T) {
	const want = "eth0 192.0.2.11/24,2001:db8::11/64 via 192.0.2.1,fe80::1"
	moved := parse(shared)
	moved.Unmove("eth0", "breth0")
	spare := parse("eth0 br-int; br-int br-int")
	spare.Release("eth0", addresses(strings.Fields("192.0.2.11/24 2001:db8::11/64")), addrs("192.0.2.1 fe80::1"))
	for _, h := range []Host{moved, spare} {
		d, err := Decide(Options{Mode: topology.Physical, Interface: "eth0"}, h)
		if got := d.Interface + " " + ipnet.Join(d.IPs) + " via " + ipnet.Join(d.NextHops); err != nil || got != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
}
