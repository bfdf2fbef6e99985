package probe_test

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ovn-k8s/test/netfault"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/require"
)

func freePort(t *testing.T) int {
	t.Helper()
	port, err := netfault.FreePort("::")
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestProbe(t *testing.T) {
	port := freePort(t)
	server, err := probe.Serve("", "me", port)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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

// closedPort is a port of 127.0.0.1 that refuses connections, and that nobody else gets during the test.
func closedPort(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return name.(*unix.SockaddrInet4).Port
}

func TestProbeSaysWhatFailed(t *testing.T) {
	p := probe.Probe{Network: "tcp", Address: probe.Address(netip.MustParseAddr("127.0.0.1"), closedPort(t))}
	refused := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "connection refused") && strings.Contains(err.Error(), p.String())
	}
	var err error
	for limit := 50 * time.Millisecond; !refused(err); limit *= 2 { // on a busy machine not even a refusal comes in time
		if limit > time.Minute {
			t.Fatalf("Until: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err = p.Until(ctx)
		cancel()
	}
	if err := p.Silence(t.Context(), 2); err != nil {
		t.Errorf("Silence: %v", err)
	}
}

func TestASessionCountsResets(t *testing.T) {
	port := freePort(t)
	server, err := probe.Serve("", "me", port)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := probe.OpenSession(ctx, "", probe.Address(netip.MustParseAddr("127.0.0.1"), port))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lines := func(since probe.Typed) {
		t.Helper()
		for s.Typed().Lines == since.Lines {
			if ctx.Err() != nil {
				t.Fatalf("no line since %+v", since)
			}
			time.Sleep(time.Millisecond)
		}
	}
	lines(probe.Typed{})
	if err := s.Undisturbed(probe.Typed{}); err != nil {
		t.Error(err)
	}
	server.Close()
	if server, err = probe.Serve("", "me", port); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for s.Typed().Resets == 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	before := s.Typed()
	lines(before)
	if err := s.Undisturbed(before); err == nil || before.Resets == 0 {
		t.Errorf("undisturbed by the end of its server: %+v", s.Close())
	}
}

func TestEchoesSeeWhoAsks(t *testing.T) {
	missing := ""
	if os.Geteuid() != 0 {
		missing = "root"
	}
	require.Nothing(t, require.Node, missing)
	e, err := probe.ListenEchoes("")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, a := range []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")} {
		if _, err := (probe.Probe{Network: "icmp", Address: probe.Address(a, 0)}).Until(ctx); err != nil {
			t.Fatal(err)
		}
		for e.From(a) == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		if e.From(a) == 0 {
			t.Errorf("nothing seen from %v", a)
		}
	}
}
