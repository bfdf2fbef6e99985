package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/host"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// A neighbour is the MAC and the addresses of an interface.
type neighbour struct {
	mac  net.HardwareAddr
	ips  []net.IP // IPv4, IPv6
	name string
}

// local returns the link-local address derived from the MAC (RFC 4291, appendix A).
func (n neighbour) local() net.IP {
	m := n.mac
	return net.IP{0xfe, 0x80, 0, 0, 0, 0, 0, 0, m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}
}

func neighbourOf(t *testing.T, e world.Endpoint) neighbour {
	t.Helper()
	mac, err := net.ParseMAC(strings.TrimSpace(output(t, e, "cat /sys/class/net/eth0/address")))
	if err != nil {
		t.Fatal(err)
	}
	return newNeighbour(e.Name, mac, e.Addresses...)
}

func newNeighbour(name string, mac net.HardwareAddr, addresses ...netip.Addr) neighbour {
	n := neighbour{mac: mac, name: name}
	for _, a := range addresses {
		n.ips = append(n.ips, a.AsSlice())
	}
	return n
}

// routerOf returns the router of a pod's subnet, from the pod's neighbour table.
func routerOf(t *testing.T, e world.Endpoint) neighbour {
	t.Helper()
	var addresses []netip.Addr
	var mac net.HardwareAddr
	for _, a := range e.Addresses {
		p, err := a.Prefix(bits(a))
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, p.Addr().Next())
	}
	eventually(t, "the router's MAC is known", func() bool {
		text := output(t, e, "ping -c 1 -W 1 "+addresses[0].String()+" >/dev/null; ip neigh show "+addresses[0].String())
		for _, word := range strings.Fields(text) {
			if m, err := net.ParseMAC(word); err == nil {
				mac = m
			}
		}
		return mac != nil
	})
	return newNeighbour("router", mac, addresses...)
}

// frame serializes layers to a frame. An IP layer is used for the checksums of the layers above it.
func frame(t *testing.T, all ...gopacket.SerializableLayer) []byte {
	t.Helper()
	var ip gopacket.NetworkLayer
	for _, l := range all {
		var err error
		switch l := l.(type) {
		case *layers.IPv4:
			l.Version, l.TTL, ip = 4, 64, l
		case *layers.IPv6:
			l.Version, ip = 6, l
			if l.HopLimit = 64; l.NextHeader == layers.IPProtocolICMPv6 {
				l.HopLimit = 255
			}
		case *layers.UDP:
			err = l.SetNetworkLayerForChecksum(ip)
		case *layers.ICMPv6:
			err = l.SetNetworkLayerForChecksum(ip)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(buf.Bytes())
}

// A wire builds frames with a marker that identifies them at the receiver.
type wire struct {
	*testing.T
	marker []byte
}

var everybody = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func (w wire) payload() gopacket.Payload { return append(gopacket.Payload{}, w.marker...) }

// option returns the marker as an option of neighbour discovery (RFC 4727).
func (w wire) option() layers.ICMPv6Option {
	data := append(bytes.Clone(w.marker), make([]byte, 30)...)
	return layers.ICMPv6Option{Type: 253, Data: data[:30]}
}

// udp returns a frame with a UDP datagram.
func (w wire) udp(mac net.HardwareAddr, from net.IP, fromPort int, to net.HardwareAddr, ip net.IP, port int, between ...gopacket.SerializableLayer) []byte {
	w.Helper()
	kind, network := layers.EthernetTypeIPv6, gopacket.SerializableLayer(&layers.IPv6{NextHeader: layers.IPProtocolUDP, SrcIP: from, DstIP: ip})
	if len(ip) == net.IPv4len {
		kind, network = layers.EthernetTypeIPv4, &layers.IPv4{Protocol: layers.IPProtocolUDP, SrcIP: from, DstIP: ip}
	}
	eth := &layers.Ethernet{SrcMAC: mac, DstMAC: to, EthernetType: kind}
	all := []gopacket.SerializableLayer{eth}
	if len(between) > 0 {
		eth.EthernetType = layers.EthernetTypeDot1Q
		between[len(between)-1].(*layers.Dot1Q).Type = kind
	}
	all = append(append(all, between...), network, &layers.UDP{SrcPort: layers.UDPPort(fromPort), DstPort: layers.UDPPort(port)}, w.payload())
	return frame(w.T, all...)
}

// icmp6 returns a frame with an ICMPv6 message.
func (w wire) icmp6(mac net.HardwareAddr, from net.IP, to net.HardwareAddr, ip net.IP, kind uint8, body gopacket.SerializableLayer) []byte {
	w.Helper()
	return frame(w.T, &layers.Ethernet{SrcMAC: mac, DstMAC: to, EthernetType: layers.EthernetTypeIPv6},
		&layers.IPv6{NextHeader: layers.IPProtocolICMPv6, SrcIP: from, DstIP: ip},
		&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(kind, 0)}, body)
}

// arp returns an ARP frame with the marker as padding.
func (w wire) arp(from neighbour, ip net.IP, to net.HardwareAddr, operation uint16, target net.IP) []byte {
	w.Helper()
	return frame(w.T, &layers.Ethernet{SrcMAC: from.mac, DstMAC: to, EthernetType: layers.EthernetTypeARP}, &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: operation,
		SourceHwAddress: from.mac, SourceProtAddress: ip, DstHwAddress: to, DstProtAddress: target,
	}, w.payload())
}

// advertisement returns a router advertisement.
func (w wire) advertisement(from neighbour, to net.HardwareAddr, ip net.IP) []byte {
	w.Helper()
	return w.icmp6(from.mac, from.local(), to, ip, layers.ICMPv6TypeRouterAdvertisement,
		&layers.ICMPv6RouterAdvertisement{HopLimit: 64, RouterLifetime: 1800, Options: layers.ICMPv6Options{prefix(), w.option()}})
}

// prefix returns the option for address autoconfiguration.
func prefix() layers.ICMPv6Option {
	data := []byte{64, 0xc0, 0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0, 0, 0}
	return layers.ICMPv6Option{Type: layers.ICMPv6OptPrefixInfo, Data: append(data, net.ParseIP("2001:db8:bad::")...)}
}

func (w wire) neighbourIs(from neighbour, target net.IP, to neighbour) []byte {
	w.Helper()
	return w.icmp6(from.mac, from.ips[1], to.mac, to.ips[1], layers.ICMPv6TypeNeighborAdvertisement, &layers.ICMPv6NeighborAdvertisement{
		Flags: 0x20, TargetAddress: target,
		Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptTargetAddress, Data: from.mac}, w.option()},
	})
}

// geneve encapsulates a frame like OVN: the VNI is the datapath's number, and an
// option has the ports (ovn-architecture(7), "Tunnel Encapsulations").
func geneve(inner []byte, datapath, from, to int) gopacket.Payload {
	head := []byte{2, 0x40, 0x65, 0x58}
	head = binary.BigEndian.AppendUint32(head, uint32(datapath)<<8)
	head = append(head, 0x01, 0x02, 0x80, 1)
	head = binary.BigEndian.AppendUint32(head, uint32(from)<<16|uint32(to))
	return append(head, inner...)
}

// southbound reads a number from the Southbound database.
func southbound(t *testing.T, table, column, condition string) int {
	t.Helper()
	text := sh(t, cluster.Master(), fmt.Sprintf("ovn-sbctl --bare --columns=%s find %s %s", column, table, condition))
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatalf("%s of %s with %s: %q", column, table, condition, text)
	}
	return n
}

// An attack is a list of frames sent by a pod. They must not reach any tapped
// interface except the allowed ones.
type attack struct {
	name   string
	frames [][]byte
	may    []string
}

// attacks returns all attacks of the pod thief on near, a pod on the same node, and
// on far, a pod on another node. Each has its own marker.
func attacks(t *testing.T, thief, near, far, router neighbour, node net.HardwareAddr, inner func(net.HardwareAddr) func(wire) [][]byte) (list []attack) {
	t.Helper()
	add := func(name string, frames func(wire) [][]byte, may ...string) {
		w := wire{t, fmt.Appendf(nil, "<attack %02d>", len(list))}
		list = append(list, attack{name, frames(w), may})
	}
	allNodes, toAllNodes := net.ParseIP("ff02::1"), net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
	// These do arrive, but are ignored. See the end of the test.
	add("router advertisements", func(w wire) [][]byte {
		return [][]byte{w.advertisement(thief, toAllNodes, allNodes), w.advertisement(thief, near.mac, near.local()), w.advertisement(thief, near.mac, near.ips[1])}
	}, near.name, "minion1")
	add("redirects", func(w wire) [][]byte {
		body := &layers.ICMPv6Redirect{TargetAddress: thief.ips[1], DestinationAddress: far.ips[1], Options: layers.ICMPv6Options{w.option()}}
		return [][]byte{
			w.icmp6(thief.mac, thief.local(), near.mac, near.ips[1], layers.ICMPv6TypeRedirect, body),
			w.icmp6(thief.mac, thief.ips[1], near.mac, near.ips[1], layers.ICMPv6TypeRedirect, body),
			frame(t, &layers.Ethernet{SrcMAC: thief.mac, DstMAC: near.mac, EthernetType: layers.EthernetTypeIPv4},
				&layers.IPv4{Protocol: layers.IPProtocolICMPv4, SrcIP: thief.ips[0], DstIP: near.ips[0]},
				&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeRedirect, 1), Id: 1, Seq: 1}, w.payload()),
		}
	})
	add("answers of DHCP servers", func(w wire) [][]byte {
		return [][]byte{
			w.udp(thief.mac, thief.ips[0], 67, everybody, net.IP{255, 255, 255, 255}, 68),
			w.udp(thief.mac, thief.ips[0], 67, near.mac, near.ips[0], 68),
			w.udp(thief.mac, thief.ips[0], 4000, near.mac, near.ips[0], 68),
			w.udp(thief.mac, net.IP{0, 0, 0, 0}, 67, everybody, net.IP{255, 255, 255, 255}, 68),
			w.udp(thief.mac, thief.local(), 547, near.mac, near.local(), 546),
			w.udp(thief.mac, thief.ips[1], 547, near.mac, near.ips[1], 546),
			w.udp(thief.mac, thief.ips[0], 67, router.mac, far.ips[0], 68),
		}
	})
	add("ARP for the router and for others", func(w wire) [][]byte {
		return [][]byte{
			w.arp(thief, router.ips[0], everybody, layers.ARPRequest, router.ips[0]),
			w.arp(thief, router.ips[0], near.mac, layers.ARPReply, near.ips[0]),
			w.arp(thief, near.ips[0], router.mac, layers.ARPReply, router.ips[0]),
			w.arp(neighbour{mac: router.mac}, router.ips[0], everybody, layers.ARPRequest, near.ips[0]),
		}
	})
	add("neighbour advertisements for the router and for others", func(w wire) [][]byte {
		return [][]byte{
			w.neighbourIs(thief, router.ips[1], near), w.neighbourIs(thief, router.local(), near), w.neighbourIs(thief, near.ips[1], router), w.neighbourIs(thief, far.ips[1], near),
			w.icmp6(thief.mac, router.ips[1], near.mac, near.ips[1], layers.ICMPv6TypeNeighborSolicitation, &layers.ICMPv6NeighborSolicitation{
				TargetAddress: near.ips[1], Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: thief.mac}, w.option()},
			}),
		}
	})
	add("others' addresses and MACs", func(w wire) [][]byte {
		var out [][]byte
		for i := range thief.ips {
			out = append(out,
				w.udp(thief.mac, router.ips[i], 4000, near.mac, near.ips[i], 4000),
				w.udp(thief.mac, far.ips[i], 4000, near.mac, near.ips[i], 4000),
				w.udp(router.mac, thief.ips[i], 4000, near.mac, near.ips[i], 4000),
				w.udp(thief.mac, near.ips[i], 4000, router.mac, far.ips[i], 4000))
		}
		return append(out, w.udp(thief.mac, near.local(), 4000, near.mac, near.local(), 4000))
	})
	add("tagged frames", func(w wire) (out [][]byte) {
		for i := range thief.ips {
			for _, id := range []uint16{0, 1, 100} {
				out = append(out, w.udp(thief.mac, thief.ips[i], 4000, near.mac, near.ips[i], 4000, &layers.Dot1Q{VLANIdentifier: id}))
			}
			out = append(out, w.udp(thief.mac, thief.ips[i], 4000, near.mac, near.ips[i], 4000, &layers.Dot1Q{VLANIdentifier: 1, Type: layers.EthernetTypeDot1Q}, &layers.Dot1Q{VLANIdentifier: 2}))
		}
		return out
	})
	add("broadcasts and multicasts to other nodes", func(w wire) [][]byte {
		return [][]byte{
			w.udp(thief.mac, thief.ips[0], 4000, everybody, net.IP{255, 255, 255, 255}, 4000),
			w.udp(thief.mac, thief.ips[0], 4000, net.HardwareAddr{1, 0, 0x5e, 0, 0, 251}, net.IP{224, 0, 0, 251}, 5353),
			w.udp(thief.mac, thief.ips[0], 4000, router.mac, net.IP{239, 1, 2, 3}, 5353),
			w.udp(thief.mac, thief.ips[1], 4000, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 0xfb}, net.ParseIP("ff02::fb"), 5353),
			w.udp(thief.mac, thief.ips[1], 4000, router.mac, net.ParseIP("ff0e::1234"), 5353),
			frame(t, &layers.Ethernet{SrcMAC: thief.mac, DstMAC: everybody, EthernetType: 0x88b5}, w.payload()),
		}
	}, near.name, "minion1")
	// With the userspace datapath, a port with an address ends tunnels itself. With the kernel's, the management port gets
	// packets to its own address. Either way no host has a tunnel for the address of a pod.
	var managed []string
	if host.Datapath() == host.Kernel {
		managed = []string{"master", "minion1", "minion2"}
	}
	add("frames for OVN's tunnels", inner(router.mac), managed...)
	// The own node does get them, but forwards none with an address of its own.
	add("frames for OVN's tunnels, by the own node", inner(node), "minion1")
	return list
}

// tunnelled returns Geneve packets for nodes, sent to a MAC. They contain frames
// for far with its router as the source.
func tunnelled(t *testing.T, thief, far, router neighbour, farRouter net.HardwareAddr, targets []netip.Addr) func(net.HardwareAddr) func(wire) [][]byte {
	t.Helper()
	sw := southbound(t, "datapath_binding", "tunnel_key", "external_ids:name=minion2")
	from := southbound(t, "port_binding", "tunnel_key", "logical_port=stor-minion2")
	to := southbound(t, "port_binding", "tunnel_key", "logical_port=default_far")
	return func(by net.HardwareAddr) func(wire) [][]byte {
		return func(w wire) (out [][]byte) {
			inner := geneve(w.udp(farRouter, router.ips[0], 4000, far.mac, far.ips[0], 4000), sw, from, to)
			for _, a := range targets {
				outer := wire{t, inner}
				i := 0
				if a.Is6() {
					i = 1
				}
				out = append(out, outer.udp(thief.mac, thief.ips[i], answering, by, a.AsSlice(), 6081))
			}
			return out
		}
	}
}

// answering is the port of a pod behind a hostPort: the node masquerades packets
// from this port.
const answering = 4000

// thiefAnswers adds that hostPort to the thief.
func thiefAnswers(pod *corev1.Pod) {
	if c := &pod.Spec.Containers[0]; pod.Name == "thief" {
		c.Ports = append(c.Ports, corev1.ContainerPort{HostPort: anyPort, ContainerPort: answering, Protocol: corev1.ProtocolUDP})
	}
}

// awaitMasquerade waits until the pod's node masquerades packets from that port, in
// both families.
func awaitMasquerade(t *testing.T, e world.Endpoint) {
	t.Helper()
	eventually(t, "the node knows the hostPort", func() bool {
		text := sh(t, cluster.Node("minion1"), host.RulesScript)
		return strings.Contains(text, host.PerFirewall("-s "+e.Addresses[0].String()+"/32", "ip saddr "+e.Addresses[0].String())) &&
			strings.Contains(text, host.PerFirewall("-s "+e.Addresses[1].String()+"/128", "ip6 saddr "+e.Addresses[1].String()))
	})
}

// Forged packets of a pod are dropped without any policy: those of a router or a
// DHCP server, with other addresses, to other networks, or for OVN's tunnels.
func TestWhatNoPodMaySend(t *testing.T) {
	p := pods(t, map[string]string{"thief": "minion1", "near": "minion1", "far": "minion2"}, thiefAnswers)
	awaitMasquerade(t, p["thief"])
	thief, near, far, router := neighbourOf(t, p["thief"]), neighbourOf(t, p["near"]), neighbourOf(t, p["far"]), routerOf(t, p["thief"])
	taps := map[string]*probe.Tap{}
	tap := func(name, netns, iface string) {
		t.Helper()
		tap, err := probe.Listen(netns, iface)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tap.Close)
		taps[name] = tap
	}
	tap(near.name, p["near"].Netns, "eth0")
	tap(far.name, p["far"].Netns, "eth0")
	var targets []netip.Addr
	for _, n := range cluster.Nodes {
		tap(n.Name, n.Netns(), "k8s-"+n.Name)
		for _, a := range n.Management { // all neighbours are resolved
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if _, err := (probe.Probe{Netns: p["thief"].Netns, Network: "icmp", Address: probe.Address(a, 0)}).Until(ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		targets = append(append(targets, n.Management...), nodeAddrs(n.Name)...)
	}
	for _, e := range p {
		answers(t, e, p["near"].Addresses[0])
		answers(t, e, p["far"].Addresses[1])
	}
	node := macOf(t, cluster.Node("minion1"), "k8s-minion1")
	list := attacks(t, thief, near, far, router, node, tunnelled(t, thief, far, router, routerOf(t, p["far"]).mac, targets))
	for _, a := range list {
		if err := probe.Send(p["thief"].Netns, "eth0", a.frames...); err != nil {
			t.Fatal(err)
		}
	}
	// Later frames do arrive, so these would have arrived by now.
	end := wire{t, []byte("<the end>")}
	if err := probe.Send(p["thief"].Netns, "eth0",
		end.udp(thief.mac, thief.ips[0], 4000, near.mac, near.ips[0], 4000),
		end.udp(thief.mac, thief.ips[1], 4000, router.mac, far.ips[1], 4000)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, name := range []string{near.name, far.name} {
		if err := taps[name].Await(ctx, end.marker); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(200 * time.Millisecond) // for slower paths
	for i, a := range list {
		a.comesNowhere(t, taps, fmt.Appendf(nil, "<attack %02d>", i))
	}
	const misled = "ip -6 route | grep -e ra -e 2001:db8:bad -e fe80::858 || ip -6 address | grep 2001:db8:bad || :"
	for _, netns := range []string{p["near"].Netns, cluster.Node("minion1").Netns()} {
		if text := output(t, world.Endpoint{Netns: netns}, misled); text != "" {
			t.Errorf("somebody listens to router advertisements: %s", text)
		}
	}
	for _, address := range p["far"].Addresses { // no address was taken over
		answers(t, p["near"], address)
		answers(t, p["thief"], address)
	}
}

// comesNowhere checks that exactly the allowed interfaces received frames of an
// attack.
func (a attack) comesNowhere(t *testing.T, taps map[string]*probe.Tap, marker []byte) {
	t.Helper()
	for name, tap := range taps {
		may := false
		for _, m := range a.may {
			may = may || m == name
		}
		got := tap.Saw(marker)
		if may != (len(got) > 0) {
			t.Errorf("%s: %s got %d frames, of %d; may get any: %t", a.name, name, len(got), len(a.frames), may)
		}
		for _, f := range got {
			if !may {
				t.Logf("%v", gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default))
			}
		}
	}
}
