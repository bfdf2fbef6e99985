package prober

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"ovn-k8s/test/host"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/require"
)

// S4: EHOSTUNREACH or EACCES from a firewall differs from an unreachable host by the sender of the ICMP error.
func TestRejectionsOfFirewalls(t *testing.T) {
	fabric, asks, far := newHosts(t)
	near := newHost(t, host.Options{Name: "near", Fabric: fabric})
	for _, tt := range []struct {
		name   string
		on     *host.Host // nil: the fabric's router
		to     netip.Addr
		rule   string
		alive  bool
		reject bool
	}{
		{"no firewall", near, near.IPv4(), "true", true, false},
		{"RHEL's default", near, near.IPv4(), filters("input", "reject with icmp type host-prohibited"), true, false},
		{"prohibited", near, near.IPv4(), filters("input", "reject with icmp type admin-prohibited"), true, false},
		{"host unreachable", near, near.IPv4(), filters("input", "reject with icmp type host-unreachable"), true, false},
		{"port unreachable", near, near.IPv4(), filters("input", "reject"), true, false},
		{"IPv6 prohibited", near, near.IPv6(), filters("input", "reject with icmpv6 type admin-prohibited"), true, false},
		{"IPv6 unreachable", near, near.IPv6(), filters("input", "reject with icmpv6 type addr-unreachable"), true, false},
		{"dropped", near, near.IPv4(), filters("input", "drop"), false, false},
		{"behind a router", nil, far.IPv4(), "true", true, false},
		{"rejected by a router", nil, far.IPv4(), filters("forward", "reject with icmp type host-prohibited"), false, true},
		{"IPv6 rejected by a router", nil, far.IPv6(), filters("forward", "reject with icmpv6 type admin-prohibited"), false, true},
		{"unreachable from a router", nil, far.IPv4(), "ip route add unreachable " + far.IPv4().String(), false, false},
		{"IPv6 unreachable from a router", nil, far.IPv6(), "ip -6 route add unreachable " + far.IPv6().String() + " metric 1", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clean := "nft delete table inet filters 2>/dev/null; ip route del unreachable " + far.IPv4().String() + " 2>/dev/null; ip -6 route del unreachable " + far.IPv6().String() + " 2>/dev/null; "
			set := exec.Command("nsenter", "--net="+fabric.Netns(), "sh", "-c", clean+tt.rule)
			if tt.on != nil {
				set = tt.on.Command("sh", "-c", clean+tt.rule)
			}
			if out, err := set.CombinedOutput(); err != nil {
				t.Fatal(err, string(out))
			}
			var got Answer
			must(t, probe.In(asks.Netns(), func() error {
				for range 3 { // the first may be lost to ARP
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					got = dial(ctx, netip.AddrPortFrom(tt.to, ports[0]), []netip.Addr{tt.to})
					cancel()
				}
				if here(netip.AddrPortFrom(tt.to, ports[0])) {
					t.Error("another host's address is here")
				}
				return nil
			}))
			if got.Alive != tt.alive || got.Rejector.IsValid() != tt.reject {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// filters is a command that sets a firewall for TCP, with a hook and a verdict of nft(8).
func filters(hook, verdict string) string {
	return fmt.Sprintf("nft 'table inet filters { chain %[1]s { type filter hook %[1]s priority filter; meta l4proto tcp %[2]s; }; }'", hook, verdict)
}

// W2: the kernel of a firewall limits its rejections, for all hosts behind it together.
func TestRejectionsAreLimited(t *testing.T) {
	fabric, asks, far := newHosts(t)
	rule := exec.Command("nsenter", "--net="+fabric.Netns(), "sh", "-c", filters("forward", "reject with icmp type host-prohibited"))
	if out, err := rule.CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	var verdicts atomic.Int32
	p := New(func() { verdicts.Add(1) })
	p.probe = func(ctx context.Context, addrs []netip.Addr) (a Answer) {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		_ = probe.In(asks.Netns(), func() error {
			a = dial(ctx, netip.AddrPortFrom(addrs[0], ports[0]), addrs)
			return nil
		})
		return a
	}
	hosts := map[string]Host{}
	for i := range 10 {
		hosts[fmt.Sprint("gateway", i)] = Host{Tunnels: []netip.Addr{far.IPv4()}}
	}
	p.Watch(hosts, func(string) bool { return false })
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	p.Run(ctx)
	if dead := p.Unhealthy(); len(dead) > 0 || len(p.Rejected()) < 3 || int(verdicts.Load()) != len(p.Rejected()) {
		t.Errorf("unhealthy are %v, rejected %v, after %d changes", dead, p.Rejected(), verdicts.Load())
	}
}

// newHosts makes a host, and another one behind a router, the fabric's.
func newHosts(t *testing.T) (fabric *host.Fabric, asks, far *host.Host) {
	t.Helper()
	require.Nothing(t, require.Node, host.Missing())
	fabric, err := host.NewFabric()
	must(t, err)
	t.Cleanup(fabric.Close)
	return fabric, newHost(t, host.Options{Name: "asks", Fabric: fabric}), newHost(t, host.Options{Name: "far", Fabric: fabric, Outside: true})
}

func newHost(t *testing.T, o host.Options) *host.Host {
	t.Helper()
	h, err := host.New(o)
	must(t, err)
	t.Cleanup(h.Close)
	return h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
