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
)

// Nothing skips t if missing is not "". missing is the result of a Missing function
// of a test package. If the environment variable OVNK8S_TEST_NEED lists the level,
// as in "central,node", it fails t instead.
func Nothing(t testing.TB, level, missing string) {
	t.Helper()
	switch {
	case missing == "":
	case slices.Contains(strings.Split(os.Getenv("OVNK8S_TEST_NEED"), ","), level):
		t.Fatalf("missing: %s, but OVNK8S_TEST_NEED demands %s", missing, level)
	default:
		t.Skipf("missing: %s", missing)
	}
}
