package probe_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"ovn-k8s/test/probe"
)

// freePort asks the kernel for a port that is free now.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestProbe(t *testing.T) {
	port := freePort(t)
	server, err := probe.Serve("", "me", port)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, network := range []string{"tcp", "udp", "icmp"} {
		for _, addr := range []string{"127.0.0.1", "127.0.0.2", "::1"} {
			if network == "icmp" && os.Geteuid() != 0 {
				continue
			}
			p := probe.Probe{Network: network, Address: probe.Address(netip.MustParseAddr(addr), port)}
			answer, err := p.Until(ctx)
			if err != nil {
				t.Error(err)
			}
			if network != "icmp" && !strings.HasPrefix(answer, "me ") {
				t.Errorf("%v: answer %q", p, answer)
			}
		}
	}
}

func TestProbeSaysWhatFailed(t *testing.T) {
	p := probe.Probe{Network: "tcp", Address: probe.Address(netip.MustParseAddr("127.0.0.1"), freePort(t))}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := p.Until(ctx)
	if err == nil || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), p.String()) {
		t.Errorf("Until: %v", err)
	}
	if err := p.Silence(t.Context(), 2); err != nil {
		t.Errorf("Silence: %v", err)
	}
}
