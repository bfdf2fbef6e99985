package ofctl_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/flow"
	"ovn-k8s/lib/ofctl"
	"ovn-k8s/test/host"
	"ovn-k8s/test/require"
)

// bridge starts Open vSwitch on a test host with eth0 as a port of breth0.
func bridge(t *testing.T) (context.Context, *host.Host, ofctl.Bridge) {
	t.Helper()
	require.Nothing(t, require.Node, host.Missing())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	h := host.Alone(t, "alpha")
	if err := h.StartOVS(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx, h, ofctl.Bridge{RunDir: h.Path("/run/openvswitch"), Name: "breth0"}
}

func flowOf(t *testing.T, text string) flow.Flow {
	t.Helper()
	f, err := flow.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestABundleIsAllOrNothing(t *testing.T) {
	ctx, _, b := bridge(t)
	before, err := b.Dump(ctx)
	if err != nil {
		t.Fatal(err)
	}
	good := flow.Mod{Flow: flowOf(t, "cookie=7,priority=5,tcp,tp_dst=80,actions=drop")}
	bad := flow.Mod{Flow: flowOf(t, "cookie=7,priority=5,tcp,tp_dst=81,actions=output:nowhere")}
	if err := b.Apply(ctx, []flow.Mod{good, bad}); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("error %v", err)
	}
	if got, _ := b.Dump(ctx); !cmp.Equal(before, got) {
		t.Errorf("a refused bundle changed flows: %v", got)
	}
	if err := b.Apply(ctx, []flow.Mod{good}); err != nil {
		t.Fatal(err)
	}
	if err := b.Apply(ctx, []flow.Mod{{Delete: true, Flow: good.Flow}}); err != nil {
		t.Fatal(err)
	}
	if got, _ := b.Dump(ctx); !cmp.Equal(before, got) {
		t.Errorf("after all: %v", got)
	}
}

func TestPortsAreFoundByName(t *testing.T) {
	ctx, h, b := bridge(t)
	for i, name := range []string{"k8s-patch-breth0-br-int", "k8s-patch-breth0-br-x"} {
		if err := h.VSCtl(ctx, "add-port", "breth0", name, "--", "set", "Interface", name, "type=patch", fmt.Sprint("options:peer=p", i), fmt.Sprint("ofport_request=", 20+i)); err != nil {
			t.Fatal(err)
		}
	}
	ports, err := b.Ports(ctx)
	if err != nil {
		t.Fatal(err)
	}
	nic, err := h.VSGet(ctx, "get", "Interface", "eth0", "ofport")
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := ports.Find("eth0", 0); !ok || p.String() != nic {
		t.Errorf("eth0 is port %v, %v; the database says %s", p, ok, nic)
	}
	if p, ok := ports.Find("k8s-patch-breth0-br-int", 20); !ok || p != 20 {
		t.Errorf("with a hint: %v, %v", p, ok)
	}
	if p, ok := ports.Find("k8s-patch-breth0-br-int", 0); ok {
		t.Errorf("which of two is not known, but %v", p)
	}
	if p, ok := ports.Find("eth9", 1); ok {
		t.Errorf("there is no eth9, but %v", p)
	}
	mac, err := h.VSGet(ctx, "get", "Interface", "breth0", "mac_in_use")
	if err != nil || fmt.Sprintf("%q", ports.LocalMAC()) != mac {
		t.Errorf("MAC %s, want %s (%v)", ports.LocalMAC(), mac, err)
	}
}

// P10: a bridge has no flows after a restart; the first flow is reported.
func TestFollowFirst(t *testing.T) {
	ctx, h, b := bridge(t)
	empty := func(want bool) {
		t.Helper()
		if got, err := b.Empty(ctx); err != nil || got != want {
			t.Errorf("empty: %v, %v", got, err)
		}
	}
	do := func(args ...string) {
		t.Helper()
		if _, _, err := h.Run(ctx, "ovs-ofctl", args...); err != nil {
			t.Fatal(err)
		}
	}
	empty(true) // but for the flow of Open vSwitch itself
	do("del-flows", "breth0")
	do("add-flow", "breth0", "table=1,actions=drop")
	empty(true)
	changes := make(chan struct{}, 1000)
	following, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.FollowFirst(following, func() { changes <- struct{}{} })
	}()
	defer func() { stop(); <-done }()
	<-changes // the connection
	do("add-flow", "breth0", "actions=normal")
	<-changes
	empty(false)
}

func TestFollowTellsOfChangesAndRestarts(t *testing.T) {
	ctx, h, b := bridge(t)
	changes := make(chan struct{}, 1000)
	following, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Follow(following, func() { changes <- struct{}{} })
	}()
	defer func() { stop(); <-done }()
	await := func(what string) {
		t.Helper()
		select {
		case <-changes:
		case <-time.After(time.Minute):
			t.Fatalf("not told of %s", what)
		}
		for len(changes) > 0 {
			<-changes
		}
	}
	await("the connection")
	if _, _, err := h.Run(ctx, "ovs-ofctl", "add-flow", "breth0", "priority=7,ip,actions=drop"); err != nil {
		t.Fatal(err)
	}
	await("a new flow")
	long := strings.Repeat("set_field:0x0123456789abcdef0123456789abcdef->xxreg0,", 1300)
	for _, actions := range []string{long + "in_port", "drop"} {
		if _, _, err := h.Run(ctx, "ovs-ofctl", "add-flow", "breth0", "priority=8,ip,actions="+actions); err != nil {
			t.Fatal(err)
		}
		await(fmt.Sprintf("a flow of %d characters", len(actions)))
	}
	if err := h.StopOVS(ctx); err != nil {
		t.Fatal(err)
	}
	await("the end")
	if _, err := b.Dump(ctx); !errors.Is(err, ofctl.ErrDown) || strings.Contains(err.Error(), "\n") {
		t.Errorf("while it is down: %v", err)
	}
	if err := h.StartOVS(ctx); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	await("the start")
	t.Logf("told %v after the start", time.Since(start).Round(time.Millisecond))
}

// L8: connections to a deleted endpoint are forgotten without a dump.
func TestFlushUDP(t *testing.T) {
	ctx, h, _ := bridge(t)
	script := `set -e
		for p in 31386:8080 31386:8081 31387:8080; do
			ovs-ofctl add-flow breth0 "priority=9,in_port=LOCAL,udp,tp_dst=${p%:*},actions=ct(commit,zone=5,nat(dst=198.18.0.1:${p#*:}))"
			ovs-ofctl add-flow breth0 "priority=9,in_port=LOCAL,udp6,tp_dst=${p%:*},actions=ct(commit,zone=6,nat(dst=[fd00::1]:${p#*:}))"
			ip neigh replace 198.18.0.77 lladdr 0a:00:00:00:00:01 dev breth0
			bash -c "echo x >/dev/udp/198.18.0.77/${p%:*}"
		done
		ip address`
	if out, err := h.Script(ctx, script); err != nil {
		t.Fatal(err, out)
	}
	connections := func() string {
		out, err := h.Script(ctx, "ovs-appctl dpctl/dump-conntrack | grep -o 'dport=3138[67]).*sport=[0-9]*' | sed 's/,dst=.*sport/ sport/' | sort")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if got := connections(); strings.Count(got, "\n") != 3 {
		t.Fatalf("connections: %s", got)
	}
	for to, answers := range map[string]string{
		"0.0.0.0:31386": "198.18.0.1:8080", "198.18.0.77:31387": "198.18.0.1:8080", "[::]:31386": "[fd00::1]:8080",
	} {
		c := ofctl.Connection{To: netip.MustParseAddrPort(to), Answers: netip.MustParseAddrPort(answers)}
		if _, _, err := h.Run(ctx, "ovs-appctl", ofctl.FlushCommand(c)...); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	if got := connections(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "sport=8081") {
		t.Errorf("connections left: %s", got)
	}
}
