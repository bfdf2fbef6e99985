// Package require skips tests with missing prerequisites, or fails them if
// OVNK8S_TEST_NEED requires their level.
package require

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The levels of tests, by prerequisites.
const (
	Central = "central" // OVN's databases and ovn-northd
	Node    = "node"    // root, namespaces, Open vSwitch
	Cluster = "cluster" // a Kubernetes control plane
	Clock   = "clock"   // a machine whose clock a test may set, such as a virtual machine of its own
)

// Nothing skips t if missing is not "". missing is the result of a Missing function
// of a test package. If the environment variable OVNK8S_TEST_NEED lists the level,
// as in "central,node", it fails t instead.
func Nothing(t testing.TB, level, missing string) {
	t.Helper()
	switch {
	case missing == "":
	case Demands(level):
		t.Fatalf("missing: %s, but OVNK8S_TEST_NEED demands %s", missing, level)
	default:
		t.Skipf("missing: %s", missing)
	}
}

// Demands reports whether OVNK8S_TEST_NEED lists the level.
func Demands(level string) bool {
	return slices.Contains(strings.Split(os.Getenv("OVNK8S_TEST_NEED"), ","), level)
}
