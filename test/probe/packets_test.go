package probe_test

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"ovn-k8s/test/limit"
	"ovn-k8s/test/namespace"
	"ovn-k8s/test/poll"
	"ovn-k8s/test/probe"
)

// One lost packet among many is told.
func TestPackets(t *testing.T) {
	namespace.Load(t, `table inet loss {
		set once { type ipv4_addr; }
		set once6 { type ipv6_addr; }
		chain out {
			type filter hook output priority 0
			icmp type echo-reply ip daddr @once delete @once { ip daddr } drop
			icmpv6 type echo-reply ip6 daddr @once6 delete @once6 { ip6 daddr } drop
		}
	}`)
	run := func(command string) {
		t.Helper()
		words := strings.Fields(command)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	run("ip link set lo up")
	for set, a := range map[string]netip.Addr{"once": netip.MustParseAddr("127.0.0.1"), "once6": netip.IPv6Loopback()} {
		ctx, cancel := context.WithTimeout(t.Context(), limit.Of(30*time.Second))
		defer cancel()
		p, err := probe.Probe{Netns: "/proc/thread-self/ns/net", Source: a, Address: probe.Address(a, 0)}.Ping()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if _, err := p.Lost(ctx); err != nil {
			t.Error(err)
		}
		run("nft add element inet loss " + set + " { " + a.String() + " }")
		if err := poll.Until(ctx, func() error {
			soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			if lost, err := p.Lost(soon); len(lost) != 1 {
				return fmt.Errorf("lost: %v, want one: %w", lost, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if out := p.Outage(); out <= 0 {
			t.Errorf("an outage of %v", out)
		}
	}
}
