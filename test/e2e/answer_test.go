package e2e

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/layers"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// onLAN returns an address on the LAN of a gateway.
func onLAN(gateway netip.Addr, last byte) netip.Addr {
	b := gateway.AsSlice()
	b[len(b)-1] = last
	a, _ := netip.AddrFromSlice(b)
	return a
}

// A lan is a network of hosts outside. The fabric is one of them.
type lan struct {
	*testing.T
	bridge string
	host   neighbour
}

func newLAN(t *testing.T, bridge string, gateway []netip.Addr) lan {
	t.Helper()
	mac := parseMAC(t, output(t, world.Endpoint{Netns: cluster.Fabric.Netns()}, "cat /sys/class/net/"+bridge+"/address"))
	return lan{t, bridge, newNeighbour("host", mac, onLAN(gateway[0], 1), onLAN(gateway[1], 1))}
}

// solicit returns an ARP request or a neighbor solicitation for an address.
func (l lan) solicit(target netip.Addr) []byte {
	w, to := wire{l.T, []byte("who has it")}, target.AsSlice()
	if target.Is4() {
		return w.arp(l.host, l.host.ips[0], everybody, layers.ARPRequest, to)
	}
	group := slices.Concat(net.ParseIP("ff02::1:ff00:0")[:13], to[13:])
	return w.icmp6(l.host.mac, l.host.ips[1], net.HardwareAddr{0x33, 0x33, 0xff, to[13], to[14], to[15]}, group,
		layers.ICMPv6TypeNeighborSolicitation, &layers.ICMPv6NeighborSolicitation{
			TargetAddress: to, Options: layers.ICMPv6Options{{Type: layers.ICMPv6OptSourceAddress, Data: l.host.mac}},
		})
}

// answering solicits an address several times and returns the answering MACs.
func (l lan) answering(target netip.Addr) (macs []string) {
	l.Helper()
	tap, err := probe.Listen(cluster.Fabric.Netns(), l.bridge)
	if err != nil {
		l.Fatal(err)
	}
	defer tap.Close()
	for range 3 {
		if err := probe.Send(cluster.Fabric.Netns(), l.bridge, l.solicit(target)); err != nil {
			l.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond) // for a second answer
	}
	for _, f := range tap.Saw(target.AsSlice()) {
		if mac := net.HardwareAddr(f[6:12]).String(); bytes.Equal(f[:6], l.host.mac) && !slices.Contains(macs, mac) {
			macs = append(macs, mac)
		}
	}
	return macs
}

// answeredBy waits until exactly one gateway of nodes answers for an address, and returns it.
func (l lan) answeredBy(target netip.Addr, nodes ...*world.Node) *world.Node {
	l.Helper()
	macs := map[string]*world.Node{}
	for _, n := range nodes {
		macs[routerMAC(l.T, "rtoe-GR_"+n.Name).String()] = n
	}
	var all []string
	var text string
	eventually(l.T, "one gateway answers for "+target.String(), func() bool {
		all = l.answering(target)
		text = strings.Join(all, " ")
		return len(all) == 1 && macs[all[0]] != nil
	}, &text)
	return macs[all[0]]
}

// P3: two gateways on one LAN, with NICs of their own and with shared ones. One MAC answers for each address of a
// Service; when its gateway is cut off, hosts reach the Service through the other one.
func TestOneGatewayAnswersOnALAN(t *testing.T) {
	for _, mode := range []string{world.Dedicated, world.Shared} {
		t.Run(mode, func(t *testing.T) {
			pods(t, map[string]string{"web": "master"})
			one, two := cluster.Node("minion1"), cluster.Node("minion2")
			bridge := map[string]string{world.Dedicated: "br1", world.Shared: "br0"}[mode]
			gateway := addGateway(t, one, mode)
			addGateway(t, two, mode)
			var show string
			eventually(t, "both gateways are used", func() bool { // the addresses are spread over them then
				show = sh(t, cluster.Master(), "ovs-appctl -t "+watcher()+" gateway/show")
				return strings.Contains(show, "in use") && !strings.Contains(show, "down")
			}, &show)
			addrs := []netip.Addr{onLAN(gateway[0], 200), onLAN(gateway[1], 200), onLAN(gateway[0], 201)}
			service(t, "web", func(s *corev1.Service) {
				for _, a := range addrs {
					s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, a.String())
				}
			})
			l, host := newLAN(t, bridge, gateway), world.Endpoint{Name: "host", Netns: cluster.Fabric.Netns()}
			answering := map[netip.Addr]*world.Node{}
			for _, a := range addrs {
				answering[a] = l.answeredBy(a, one, two)
				ask(t, host, "tcp", netip.AddrPortFrom(a, 80))
			}
			dying := answering[addrs[0]]
			t.Cleanup(func() { mend(t, dying) })
			began := time.Now()
			if err := dying.Cut(); err != nil {
				t.Fatal(err)
			}
			for _, a := range addrs {
				ask(t, host, "tcp", netip.AddrPortFrom(a, 80))
				t.Logf("%s is reached %.1f s after %s was cut off", a, time.Since(began).Seconds(), dying.Name)
			}
			for _, a := range addrs {
				if n := l.answeredBy(a, one, two); n == dying {
					t.Errorf("%s answers for %s, which is cut off", n.Name, a)
				}
			}
			mend(t, dying)
			for a, was := range answering {
				eventually(t, "its gateway answers for "+a.String()+" again", func() bool { return l.answeredBy(a, one, two) == was })
				ask(t, host, "tcp", netip.AddrPortFrom(a, 80))
			}
			consistent(t)
		})
	}
}
