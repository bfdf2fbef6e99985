package main

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"ovn-k8s/test/host"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/require"
)

// The kernel deletes the entry of a refused connection at once. Its tuple after the translation is known all the same.
func TestRefusedConnectionsAreTranslated(t *testing.T) {
	require.Nothing(t, require.Node, host.Missing())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	h, err := host.New(host.Options{Name: "node1"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := h.Script(ctx, `set -e; ip link set lo up
		nft 'table ip test { chain post { type nat hook postrouting priority 100; oifname "lo" tcp dport 81 snat to 127.0.0.1:40000; }; }'
		nft 'table ip6 test { chain post { type nat hook postrouting priority 100; oifname "lo" tcp dport 81 snat to [::1]:40000; }; }' `); err != nil {
		t.Fatal(err)
	}
	all, err := follow(h.Netns())
	if err != nil {
		t.Fatal(err)
	}
	defer all.close()
	for i, address := range []string{"127.0.0.1", "::1"} {
		from := 12000 + i
		err := probe.In(h.Netns(), func() error {
			d := net.Dialer{LocalAddr: &net.TCPAddr{Port: from}}
			_, err := d.DialContext(ctx, "tcp", net.JoinHostPort(address, "81"))
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "refused") {
			t.Fatalf("a connection to a closed port: %v", err)
		}
		want := fmt.Sprintf("orig=(src=%s,dst=%s,sport=40000,", address, address)
		for got := ""; got != want; time.Sleep(10 * time.Millisecond) {
			if got = all.tuple(hop{uint16(from), 81}); ctx.Err() != nil {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	}
}
