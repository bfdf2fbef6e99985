package nicbridge

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/test/host"
	"ovn-k8s/test/require"
)

// learn gives an interface a default route as from a router advertisement.
func (w *world) learn(nic, router string) {
	w.t.Helper()
	route := "default via " + router + " dev " + nic + " proto ra metric 1024 expires 1800"
	w.script("ip -6 route append " + route)
	i, err := ifstate.Find(nic)
	if err != nil {
		w.t.Fatal(err)
	}
	all, err := ifstate.Of(i)
	if err != nil {
		w.t.Fatal(err)
	}
	w.script("ip -6 route del " + route)
	for _, r := range all {
		if r.Is6() && r.Default() && r.Mentions(nic) {
			r.Learned = 0x00450003 // RTF_DEFAULT, RTF_ADDRCONF, RTF_EXPIRES, RTF_GATEWAY, RTF_UP
			if err := ifstate.Add(r, i, 0); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// A static default is not taken for a learned one of another interface with the same router and metric.
func TestAStaticDefaultBesideALearnedOne(t *testing.T) {
	require.Nothing(t, require.Node, host.Missing())
	t.Parallel()
	w := newWorld(t)
	w.reset()
	w.learn("eth0", "fe80::1")
	w.script("ip -6 route append default via fe80::1 dev eth1 proto static metric 1024")
	i, err := ifstate.Find("eth1")
	if err != nil {
		t.Fatal(err)
	}
	all, err := ifstate.Of(i)
	if err != nil {
		t.Fatal(err)
	}
	learned := map[bool]int{} // by whether the route is eth1's
	for _, r := range all {
		if r.Is6() && r.Default() && r.Learned != 0 {
			learned[r.Mentions("eth1")]++
		}
	}
	if learned[true] != 0 || learned[false] != 1 {
		t.Errorf("%d learned routes of eth1, %d of eth0", learned[true], learned[false])
	}
}

// moveBoth moves eth0 and eth1, with a deadline that is over at once.
func (w *world) moveBoth() {
	w.t.Helper()
	w.s.ConfirmWithin = time.Nanosecond
	for _, nic := range []string{"eth0", "eth1"} {
		if err := w.s.move(w.t.Context(), ToBridge, nic); err != nil {
			w.t.Fatal(err)
		}
	}
}

// The unconfirmed moves of two NICs in the same groups of routes are undone, in both orders: the routes of fe80::/64, and the
// defaults of routers.
func TestUnconfirmedMovesOfTwoNICs(t *testing.T) {
	require.Nothing(t, require.Node, host.Missing())
	t.Parallel()
	w := newWorld(t)
	for _, order := range [][]string{{"breth0", "breth1"}, {"breth1", "breth0"}, nil} {
		w.reset()
		if err := w.batch([]string{"address add 10.0.0.5/24 dev eth0", "address add 10.1.0.5/24 dev eth1"}); err != nil {
			t.Fatal(err)
		}
		w.learn("eth0", "fe80::1")
		w.learn("eth1", "fe80::2")
		before := w.state()
		w.moveBoth()
		for _, bridge := range order {
			if err := w.s.recover(t.Context(), func(j journal) (bool, error) { return j.Snapshot.Bridge == bridge, nil }); err != nil {
				t.Errorf("%s: %v", bridge, err)
			}
		}
		if err := w.s.recover(t.Context(), w.s.overdue); err != nil {
			t.Error(err)
		}
		if order == nil || order[0] == "breth1" { // else the kernel has the routes in another order
			w.same("after both are undone", before, w.state())
		}
		if lines := w.script("ip -6 route show"); strings.Count(lines, "default") != 2 || strings.Count(lines, "fe80::/64") != 2 {
			t.Errorf("undone in the order %v: %s", order, lines)
		}
		if got := w.bridges(); got != "" {
			t.Errorf("bridges: %s", got)
		}
		if left, err := w.s.store.all(); err != nil || len(left) > 0 {
			t.Errorf("journals %v: %v", left, err)
		}
	}
}

// A move whose undoing has failed half way cannot be confirmed, also if the clock was set back: the addresses would be lost.
func TestAHalfUndoneMoveIsNotConfirmed(t *testing.T) {
	require.Nothing(t, require.Node, host.Missing())
	t.Parallel()
	w := newWorld(t)
	w.reset()
	if err := w.batch([]string{"address add 10.0.0.5/24 dev eth0"}); err != nil {
		t.Fatal(err)
	}
	before := w.state()
	w.s.ConfirmWithin = time.Hour
	if err := w.move(ToBridge); err != nil {
		t.Fatal(err)
	}
	w.failAt(4, errKilled)
	always := func(journal) (bool, error) { return true, nil }
	if err := w.s.recover(t.Context(), always); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	w.s.mover.before = nil
	if err := w.s.confirm(t.Context()); err == nil || !strings.Contains(err.Error(), "nics-to-bridge of eth0 cannot be confirmed") {
		t.Errorf("confirmed: %v", err)
	}
	if err := w.s.recover(t.Context(), w.s.overdue); err != nil {
		t.Error(err)
	}
	w.same("after it is undone", before, w.state())
}

// While a move waits for its confirmation, interfaces with routes of the same groups come, go, are set down, and lose addresses. The
// move is undone, and changes no route of these.
func TestOtherInterfacesChangeBeforeTheUndo(t *testing.T) {
	require.Nothing(t, require.Node, host.Missing())
	t.Parallel()
	w := newWorld(t)
	w.reset()
	w.script(`for n in gone down bare; do
			ip link add $n type veth peer name $n netns outside
			ip link set $n up
			ip -n outside link set $n up
		done
		ip address add 10.0.0.5/24 dev eth0
		ip address add 10.0.0.6/24 dev gone
		ip address add 10.0.0.7/24 dev bare
		ip route add 10.9.0.0/16 dev gone src 10.0.0.5
		ip route add 10.8.0.0/16 nexthop via 10.0.0.1 dev eth0 nexthop via 10.0.0.1 dev gone
		ip -6 rule add iif eth0 lookup 100 pref 1000`)
	// The kernel deletes the route to 10.8.0.0/16 with gone. Newer releases of ip print it for eth0, too.
	const show = "ip address show dev eth0 | grep inet; ip route show dev eth0 | grep -v -e 10.8.0.0 -e nexthop; ip -6 route show dev eth0; ip -6 rule show"
	before := w.script(show)
	w.s.ConfirmWithin = time.Nanosecond
	var warnings bytes.Buffer
	w.s.Err = &warnings
	if err := w.move(ToBridge); err != nil {
		t.Fatal(err)
	}
	w.script(`ip link del gone
		ip link set down down
		ip address del 10.0.0.7/24 dev bare
		ip link add new type veth peer name new netns outside
		ip link set new up
		ip -n outside link set new up
		ip address add 10.0.0.8/24 dev new
		ip -6 rule add fwmark 7 lookup 101 pref 1000`)
	fe80 := func() bool { return w.script("ip -6 route show fe80::/64 dev new") != "" }
	w.await("a route of the new interface", fe80)
	if err := w.s.recover(t.Context(), w.s.overdue); err != nil {
		t.Error(err)
	}
	w.script("ip -6 rule show | grep fwmark && ip -6 rule del fwmark 7 lookup 101 pref 1000")
	w.same("after the undo", before, w.script(show))
	if !fe80() || w.script("ip route show 10.0.0.0/24 dev new") == "" {
		t.Errorf("a route of the new interface is gone: %s", w.script("ip route show; ip -6 route show"))
	}
	if left, err := w.s.store.all(); err != nil || len(left) > 0 {
		t.Errorf("journals %v: %v", left, err)
	}
	t.Log(warnings.String())
}
