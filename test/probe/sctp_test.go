package probe_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/require"
)

// A client behind address translation knows one address of a server only.
func TestServersAnswerBySCTPFromTheAskedAddress(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		t.Skip("the kernel has no SCTP")
	}
	_ = unix.Close(fd)
	if os.Geteuid() != 0 {
		require.Nothing(t, require.Node, "root")
	}
	client, server := fmt.Sprintf("probe-c%d", os.Getpid()), fmt.Sprintf("probe-s%d", os.Getpid())
	const script = `ip netns add $0 && ip netns add $1 && ip -n $0 link add v0 type veth peer v0 netns $1
for n in $0 $1; do ip -n $n link set lo up; ip -n $n link set v0 up; done
ip -n $0 addr add 10.9.0.1/24 dev v0; ip -n $0 addr add fd09::1/64 dev v0 nodad
ip -n $1 addr add 10.9.0.2/24 dev v0; ip -n $1 addr add fd09::2/64 dev v0 nodad
ip -n $1 link add d0 type dummy; ip -n $1 link set d0 up
ip -n $1 addr add 10.9.1.2/32 dev d0; ip -n $1 addr add fd09:1::2/128 dev d0 nodad
ip -n $0 route add 10.9.1.2 via 10.9.0.2; ip -n $0 route add fd09:1::2 via fd09::2
ip netns exec $0 nft 'table inet t { chain c { type filter hook input priority 0; meta l4proto 132 ip saddr 10.9.0.2 drop; meta l4proto 132 ip6 saddr fd09::2 drop; }; }'`
	t.Cleanup(func() {
		_ = exec.Command("ip", "netns", "del", client).Run()
		_ = exec.Command("ip", "netns", "del", server).Run()
	})
	if out, err := exec.Command("sh", "-c", script, client, server).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s, err := probe.Serve("/run/netns/"+server, "me", 9090)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, address := range []string{"10.9.1.2", "fd09:1::2"} {
		ctx, cancel := context.WithTimeout(t.Context(), limit.Of(5*time.Second))
		p := probe.Probe{Netns: "/run/netns/" + client, Network: "sctp", Address: probe.Address(netip.MustParseAddr(address), 9090)}
		if _, err := p.Until(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	}
}
