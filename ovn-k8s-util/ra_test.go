package main

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/ipv6"

	"ovn-k8s/lib/link"
)

// advertise sends router advertisements (RFC 4861 section 4.2) from the fabric's br0 until
// the test ends: a prefix and a default router that live for some seconds.
func advertise(t *testing.T, netns string, prefix netip.Prefix, interval time.Duration, lifetime uint16) {
	t.Helper()
	opened := make(chan *ipv6.PacketConn, 1)
	var nic *net.Interface
	go func() {
		runtime.LockOSThread() // for good, see Enter
		defer close(opened)
		ns, err := link.OpenNamespace(netns)
		if err == nil {
			defer ns.Close()
			err = ns.Enter()
		}
		if err == nil {
			nic, err = net.InterfaceByName("br0")
		}
		if err != nil {
			t.Error(err)
			return
		}
		conn, err := net.ListenPacket("ip6:ipv6-icmp", "::")
		if err != nil {
			t.Error(err)
			return
		}
		opened <- ipv6.NewPacketConn(conn)
	}()
	conn := <-opened
	if conn == nil {
		t.FailNow()
	}
	message := []byte{134, 0, 0, 0, 64, 0} // the kernel computes the checksum
	message = binary.BigEndian.AppendUint16(message, lifetime)
	message = append(message, make([]byte, 8)...)
	message = append(message, 3, 4, byte(prefix.Bits()), 0xc0) // on link, autonomous
	message = binary.BigEndian.AppendUint32(message, uint32(lifetime))
	message = binary.BigEndian.AppendUint32(message, uint32(lifetime))
	message = append(append(message, 0, 0, 0, 0), prefix.Addr().AsSlice()...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done; _ = conn.Close() })
	go func() {
		defer close(done)
		for tick := time.NewTicker(interval); ; {
			_, err := conn.WriteTo(message, &ipv6.ControlMessage{HopLimit: 255, IfIndex: nic.Index}, &net.IPAddr{IP: net.ParseIP("ff02::1")})
			if err != nil && ctx.Err() == nil {
				t.Log(err)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return
			}
		}
	}()
}

// H3: the default route and the prefix of router advertisements are refreshed on the
// bridge, and on the NIC again, for longer than a lifetime. The address is never gone.
func TestRouterAdvertisementsGoOn(t *testing.T) {
	interval, lifetime, watch := 500*time.Millisecond, uint16(3), 5*time.Second
	if s, err := strconv.Atoi(os.Getenv("OVNK8S_TEST_RA_SECONDS")); err == nil {
		interval, lifetime, watch = 2*time.Second, 12, time.Duration(s)*time.Second
	}
	n := newNode(t)
	n.ctx = t.Context() // the long run takes longer than others may
	n.script(`ip -6 route del default; ip -6 address flush dev eth0 scope global
		sysctl -qw net.ipv6.conf.eth0.accept_ra=2 net.ipv6.conf.eth0.autoconf=1`)
	advertise(t, n.FabricNetns(), netip.MustParsePrefix("fd00:77::/64"), interval, lifetime)
	state := func(nic string) string {
		return n.script("ip -6 route show default dev " + nic + "; ip -6 -o address show dev " + nic + " scope global -tentative; ip -6 route show fd00:77::/64 dev " + nic)
	}
	complete := func(nic string) bool {
		s := state(nic)
		return strings.Contains(s, "default via fe80::") && strings.Contains(s, " fd00:77:") && strings.Contains(s, "fd00:77::/64")
	}
	for deadline := time.Now().Add(20 * time.Second); !complete("eth0"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(state("eth0"))
		}
	}
	address := n.script("ip -6 -o address show dev eth0 scope global | awk '{print $4}'")
	for _, move := range []struct{ args, to string }{{"nics-to-bridge eth0", "breth0"}, {"bridges-to-nic breth0", "eth0"}, {"nics-to-bridge eth0", "breth0"}} {
		n.does(move.args)
		for end := time.Now().Add(watch); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			if s := state(move.to); !complete(move.to) || !strings.Contains(s, address) {
				t.Fatalf("%s: %s", move.args, s)
			}
		}
	}
	if out := n.script("ip -6 route show default; cat /proc/net/ipv6_route | grep -c '^0\\{32\\} 00.* breth0'"); strings.Count(out, "default") != 1 || !strings.HasSuffix(out, "\n1") {
		t.Errorf("default routes: %s", out)
	}
}
