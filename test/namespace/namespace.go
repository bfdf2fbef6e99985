// Package namespace gives tests a network namespace of their own.
package namespace

import (
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netns"

	"ovn-k8s/test/require"
)

// Enter moves the test into a new network namespace for good: the thread, and with it the namespace, ends with the
// test's goroutine. It skips or fails a test without root, see require.Nothing.
func Enter(t testing.TB) netns.NsHandle {
	t.Helper()
	if os.Geteuid() != 0 {
		require.Nothing(t, require.Node, "root")
	}
	runtime.LockOSThread()
	h, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}
