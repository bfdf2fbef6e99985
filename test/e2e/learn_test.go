package e2e

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/gopacket/layers"

	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// A gateway's router receives the ARP requests of all hosts of its subnet. It
// learns only hosts that ask for or answer the router itself: each learned
// neighbour is a row on all nodes.
func TestGatewaysLearnWhomTheyHaveToDoWith(t *testing.T) {
	surround(t)
	node := cluster.Node("minion1")
	router := addGateway(t, node, world.Dedicated)
	mac := routerMAC(t, "rtoe-GR_minion1")
	w := wire{t, []byte("learn")}
	host := func(last byte) neighbour { // of the router's subnets
		var ips []netip.Addr
		for _, a := range router {
			b := a.AsSlice()
			b[len(b)-1] = last
			a, _ = netip.AddrFromSlice(b)
			ips = append(ips, a)
		}
		return newNeighbour("host", net.HardwareAddr{2, 0, 0, 0, 0, last}, ips...)
	}
	busy, friend := host(0xe1), host(0xe2)
	everybody := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	solicit := func(from neighbour, target net.IP) []byte {
		group := slices.Concat(net.ParseIP("ff02::1:ff00:0")[:13], target[13:])
		return w.icmp6(from.mac, from.ips[1], net.HardwareAddr{0x33, 0x33, 0xff, target[13], target[14], target[15]}, group,
			layers.ICMPv6TypeNeighborSolicitation, &layers.ICMPv6NeighborSolicitation{
				TargetAddress: target, Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: from.mac}},
			})
	}
	other := host(0xe3)
	frames := [][]byte{
		w.arp(busy, busy.ips[0], everybody, layers.ARPRequest, other.ips[0]), solicit(busy, other.ips[1]),
		w.arp(friend, friend.ips[0], everybody, layers.ARPRequest, router[0].AsSlice()),
		w.neighbourIs(friend, friend.ips[1], newNeighbour("router", mac, router...)),
	}
	var learned []string
	eventually(t, "the router has learned its friend", func() bool {
		if err := probe.Send(cluster.Fabric.Netns(), "br1", frames...); err != nil {
			t.Fatal(err)
		}
		text, err := cluster.Central.SBCtl("--bare", "--columns=ip", "list", "MAC_Binding")
		if err != nil {
			t.Fatal(err)
		}
		learned = strings.Fields(text)
		return slices.Contains(learned, friend.ips[0].String()) && slices.Contains(learned, friend.ips[1].String())
	})
	for _, ip := range busy.ips {
		if slices.Contains(learned, ip.String()) {
			t.Errorf("the router has learned %v, which asked for %v only", ip, other.ips)
		}
	}
}
