package defaultroute

import (
	"context"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netns"

	"ovn-k8s/test/namespace"
)

func ip(t *testing.T, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", c, err, out)
		}
	}
}

func TestList(t *testing.T) {
	namespace.Enter(t)
	if got, err := List(); err != nil || len(got) > 0 {
		t.Errorf("without routes: %v, %v", got, err)
	}
	ip(t, "link add nic0 type veth peer name far0", "link add nic1 type veth peer name far1", "link set nic0 up", "link set far0 up", "link set nic1 up", "link set far1 up",
		"addr add 192.0.2.2/24 dev nic0", "addr add 198.51.100.2/24 dev nic1", "-6 addr add 2001:db8::2/64 dev nic0 nodad",
		"route add default via 198.51.100.1 dev nic1 metric 100", "route add default via 192.0.2.1 dev nic0 metric 50",
		"route add unreachable default metric 4000", "-6 route add default via fe80::1 dev nic0",
		"route add default via 192.0.2.9 table 77", "route add 10.0.0.0/8 via 192.0.2.9")
	want := []Route{
		{"nic0", netip.MustParseAddr("192.0.2.1"), 50}, {"nic1", netip.MustParseAddr("198.51.100.1"), 100}, {"nic0", netip.MustParseAddr("fe80::1"), 1024},
	}
	if got, err := List(); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v\nwant %v", got, err, want)
	}
	ip(t, "route add default metric 10 nexthop via 192.0.2.1 dev nic0 nexthop via 198.51.100.1 dev nic1")
	if got, err := List(); err != nil || len(got) != 5 || got[0].Interface != "nic0" || got[1].Interface != "nic1" {
		t.Errorf("several next hops: %v, %v", got, err)
	}
}

// Follow calls changed at once, for changes before the subscription, and leaves no goroutine behind that waits to send an
// update.
func TestFollow(t *testing.T) {
	here := namespace.Enter(t)
	ip(t, "link add nic0 type veth peer name far0", "link set nic0 up", "link set far0 up", "addr add 192.0.2.2/24 dev nic0")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changed, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := netns.Set(here); err != nil {
			ended <- err
			return
		}
		ended <- Follow(ctx, func() { changed <- struct{}{} })
	}()
	await := func() {
		t.Helper()
		select {
		case <-changed:
		case err := <-ended:
			t.Fatal(err)
		}
	}
	await()
	ip(t, "route add default via 192.0.2.1", "route del default", "route add default via 192.0.2.1")
	await()
	cancel()
	for running := true; running; {
		select {
		case <-changed:
		case err := <-ended:
			running = false
			if err != nil {
				t.Error(err)
			}
		}
	}
	stacks := make([]byte, 1<<20)
	if stacks = stacks[:runtime.Stack(stacks, true)]; strings.Contains(string(stacks), "netlink.routeSubscribeAt.func2") {
		t.Errorf("netlink's goroutine is still there:\n%s", stacks)
	}
}
