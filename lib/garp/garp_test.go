package garp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"ovn-k8s/lib/garp"
	"ovn-k8s/lib/link"
	"ovn-k8s/test/require"
)

var mac = net.HardwareAddr{0x0a, 0, 0, 0, 0, 1}

func TestAnnouncementsAreWellFormed(t *testing.T) {
	for address, want := range map[string][]string{
		"10.0.0.5": {"Ethernet", "ARP"},
		"fd00::5":  {"Ethernet", "IPv6", "ICMPv6", "ICMPv6NeighborAdvertisement"},
	} {
		frame, err := garp.Announcement(mac, netip.MustParseAddr(address))
		if err != nil {
			t.Fatal(err)
		}
		p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		if e := p.ErrorLayer(); e != nil {
			t.Fatal(e.Error())
		}
		var got []string
		for _, l := range p.Layers() {
			if l.LayerType() != gopacket.LayerTypePayload { // padding
				got = append(got, l.LayerType().String())
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", address, diff)
		}
		if a, ok := p.Layer(layers.LayerTypeARP).(*layers.ARP); ok && (!net.IP(a.SourceProtAddress).Equal(a.DstProtAddress) || a.Operation != layers.ARPRequest) {
			t.Errorf("not a gratuitous request: %+v", a)
		}
		if na, ok := p.Layer(layers.LayerTypeICMPv6NeighborAdvertisement).(*layers.ICMPv6NeighborAdvertisement); ok && (!na.Override() || na.Solicited()) {
			t.Errorf("not an unsolicited advertisement that overrides: %+v", na)
		}
	}
}

// pair creates two namespaces joined by a veth pair, and moves the test into the first for good. The second has
// 10.0.0.2 and fd00::2.
func pair(t *testing.T) (near garp.Interface, far string) {
	t.Helper()
	missing := ""
	if _, err := exec.LookPath("ip"); err != nil {
		missing = "ip"
	}
	if os.Geteuid() != 0 {
		missing = "root"
	}
	require.Nothing(t, require.Node, missing)
	a, b := "garp-"+t.Name()+"-a", "garp-"+t.Name()+"-b"
	run := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	for _, ns := range []string{a, b} {
		run("netns add " + ns)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
	}
	run("-n " + a + " link add eth0 type veth peer name eth0 netns " + b)
	run("-n " + a + " addr add 10.0.0.1/24 dev eth0")
	run("-n " + a + " addr add fd00::1/64 dev eth0 nodad")
	run("-n " + b + " addr add 10.0.0.2/24 dev eth0")
	run("-n " + b + " addr add fd00::2/64 dev eth0 nodad")
	run("-n " + a + " link set eth0 up")
	run("-n " + b + " link set eth0 up")
	enter(t, a)
	i, err := net.InterfaceByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	return garp.Interface{Name: i.Name, Index: i.Index, MAC: i.HardwareAddr}, b
}

// enter moves the test's thread into a namespace, where it stays: the thread ends with the test's goroutine.
func enter(t *testing.T, name string) {
	t.Helper()
	runtime.LockOSThread()
	ns, err := link.OpenNamespace("/run/netns/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := ns.Enter(); err != nil {
		t.Fatal(err)
	}
}

// All are asked at once: a silent address does not delay the others.
func TestAskHearsWhoIsThere(t *testing.T) {
	i, _ := pair(t)
	question := func(from, target string) garp.Question {
		return garp.Question{From: netip.MustParseAddr(from), Target: netip.MustParseAddr(target)}
	}
	there := []garp.Question{question("10.0.0.1", "10.0.0.2"), question("fd00::1", "fd00::2")}
	absent := []garp.Question{question("10.0.0.1", "10.0.0.3"), question("fd00::1", "fd00::3")}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// returns long before the end of ctx
	if silent, err := garp.Ask(ctx, i, there); err != nil || len(silent) > 0 || ctx.Err() != nil {
		t.Errorf("%v, %v", silent, err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	silent, err := garp.Ask(ctx, i, slices.Concat(absent, there))
	if err != nil || !slices.Equal(silent, absent) {
		t.Errorf("%v, %v", silent, err)
	}
}

// A neighbour with an outdated MAC learns the new one.
func TestAnnounceCorrectsNeighbours(t *testing.T) {
	i, far := pair(t)
	for _, a := range []string{"10.0.0.1", "fd00::1"} {
		if out, err := exec.Command("ip", "-n", far, "neigh", "replace", a, "lladdr", "0a:00:00:00:00:99", "nud", "stale", "dev", "eth0").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	// IPv6 comes up a moment later at the other end
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if err := garp.Announce(i, []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("ip", "-n", far, "neigh").CombinedOutput()
		if err == nil && !strings.Contains(string(out), "0a:00:00:00:00:99") && strings.Count(string(out), i.MAC.String()) >= 2 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// A route may come while Ping asks.
func TestPingWaitsForARoute(t *testing.T) {
	_, far := pair(t)
	near := strings.TrimSuffix(far, "b") + "a"
	for a, hop := range map[string]string{"192.0.2.1/32": "10.0.0.2", "2001:db8::1/128": "fd00::2"} {
		p := netip.MustParsePrefix(a)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		later := make(chan error, 1)
		time.AfterFunc(time.Second/2, func() {
			out, err := exec.Command("sh", "-c", fmt.Sprintf("ip -n %s addr add %s dev lo && ip -n %[1]s link set lo up && ip -n %[3]s route add %[2]s via %[4]s",
				far, a, near, hop)).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			later <- err
		})
		began := time.Now()
		if err := garp.Ping(ctx, p.Addr()); err != nil || time.Since(began) < time.Second/2 {
			t.Errorf("%s after %v: %v", a, time.Since(began), err)
		}
		if err := <-later; err != nil {
			t.Error(err)
		}
	}
}

// Requests that the host itself refuses come as slowly as others, and the error has the reason.
func TestPingIsSlowAboutRefusedRequests(t *testing.T) {
	_, far := pair(t)
	if _, err := exec.LookPath("nft"); err != nil {
		require.Nothing(t, require.Node, "nft")
	}
	near := strings.TrimSuffix(far, "b") + "a"
	nft := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("ip", append([]string{"netns", "exec", near, "nft"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	nft("add table ip t; add chain ip t c { type filter hook output priority 0; }; add rule ip t c ip protocol icmp counter drop")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := garp.Ping(ctx, netip.MustParseAddr("10.0.0.2")); !errors.Is(err, syscall.EPERM) {
		t.Errorf("error %v", err)
	}
	var packets int
	rules := nft("list", "chain", "ip", "t", "c")
	_, after, _ := strings.Cut(rules, "counter packets ")
	if _, err := fmt.Sscan(after, &packets); err != nil || packets < 2 || packets > 10 {
		t.Errorf("%d packets a second, %v: %s", packets, err, rules)
	}
}
