package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// Issue 14, bad input: this machine's clock jumps by an hour, back and forth. The API server and etcd run outside of the virtual
// machine, so to it their clocks jump. Each time the running watcher and a new one connect pods, and no address is given twice.
func TestClocksJump(t *testing.T) {
	if !require.Demands(require.Clock) {
		require.Nothing(t, require.Clock, "a machine whose clock the test may set: make test-kernel PKG=test/e2e RUN=TestClocksJump")
	}
	require.Nothing(t, require.Cluster, world.Missing())
	all, taken := map[string]string{}, map[netip.Addr]string{}
	t.Cleanup(func() { remove(t, all) })
	pod := func(name, node string) world.Endpoint {
		t.Helper()
		all[name] = node
		e := newPod(t, name, node)
		for _, a := range e.Addresses {
			if other, twice := taken[a]; twice {
				t.Errorf("%s and %s have address %v", other, name, a)
			}
			taken[a] = name
		}
		return e
	}
	old := pod("old", "minion1")
	for i, hours := range []time.Duration{1, -1, -1, 1} {
		jump(t, hours*time.Hour)
		for _, watcher := range []string{"running", "new"} {
			if watcher == "new" {
				restartWatcher(t)
			}
			near, far := pod(fmt.Sprintf("%s-near-%d", watcher, i), "minion1"), pod(fmt.Sprintf("%s-far-%d", watcher, i), "minion2")
			for _, a := range far.Addresses {
				answers(t, near, a)
				answers(t, old, a)
			}
		}
	}
	if want := len(all) * len(old.Addresses); len(taken) != want {
		t.Errorf("%d addresses of %d pods", len(taken), len(all))
	}
	consistent(t)
}

// newPod creates a pod and returns it when it runs.
func newPod(t *testing.T, name, node string) world.Endpoint {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := cluster.Kube.CreatePod(ctx, "default", name, node, nil); err != nil {
		t.Fatal(err)
	}
	e, err := cluster.AwaitPod(ctx, "default", name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// restartWatcher kills the watcher and starts another.
func restartWatcher(t *testing.T) {
	t.Helper()
	if err := cluster.KillWatcher(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cluster.StartWatcher(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// jump sets this machine's clock forward or, with less than 0, back.
func jump(t *testing.T, by time.Duration) {
	t.Helper()
	t.Logf("the clock jumps by %s", by)
	now := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
		t.Fatal(err)
	}
}
