package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/require"
)

// bin is a directory with the command, built once for all tests.
var bin string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ovn-k8s-util")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	if out, err := exec.Command("go", "build", "-o", dir+"/", "ovn-k8s/ovn-k8s-util").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building: %v: %s\n", err, out)
		return 1
	}
	return m.Run()
}

// A node is a host with Open vSwitch. Its eth0 leads to a fabric.
type node struct {
	*host.Host
	t   *testing.T
	ctx context.Context
}

func newNode(t *testing.T) *node {
	t.Helper()
	require.Nothing(t, require.Node, host.Missing())
	ctx, cancel := context.WithTimeout(t.Context(), limit.Of(2*time.Minute))
	t.Cleanup(cancel)
	h := host.Alone(t, "node")
	if err := h.StartSwitch(ctx); err != nil {
		t.Fatal(err)
	}
	return &node{Host: h, t: t, ctx: ctx}
}

// script runs a shell script in the node.
func (n *node) script(text string) string {
	n.t.Helper()
	out, err := n.Script(n.ctx, text)
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// run runs the command under test.
func (n *node) run(args string) host.Result {
	n.t.Helper()
	r, err := n.Try("exec " + bin + "/ovn-k8s-util " + args)
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

// does runs a command that must succeed.
func (n *node) does(args string) host.Result {
	n.t.Helper()
	r := n.run(args)
	if r.Status != 0 {
		n.t.Fatalf("%s: %+v", args, r)
	}
	return r
}

// state is the part of a host's state that the command could change.
func (n *node) state() string {
	n.t.Helper()
	return n.script(`for i in $(seq 600); do ip -6 -o address show tentative | grep -q . || break; sleep 0.05; done
		for d in $(ls /sys/class/net | grep -v "ovs-$OVNK8S_TEST_DATAPATH"); do ip -o -d address show dev $d; done | sed 's/^[0-9]*: //; s/[0-9]*sec/TIME/g'
		ip route show table all | sort; ip rule; ip -6 rule; ovs-vsctl --columns=name,other_config,external_ids list Bridge; ovs-vsctl show | tail -n +2 | sort
		grep -s . /proc/sys/net/ipv[46]/conf/eth*/* | grep -v stable_secret | sort`)
}

// unchanged fails the test if the host's state differs from before. Delayed changes of the kernel are awaited.
func (n *node) unchanged(what, before string) {
	n.t.Helper()
	after := n.state()
	for deadline := time.Now().Add(20 * time.Second); after != before && time.Now().Before(deadline); after = n.state() {
		time.Sleep(20 * time.Millisecond)
	}
	if after != before {
		n.t.Errorf("%s changed the host (-before +after)\n%s", what, cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")))
	}
}

// has fails the test if a text lacks another.
func has(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}
