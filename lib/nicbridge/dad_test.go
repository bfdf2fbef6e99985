package nicbridge

import (
	"strings"
	"testing"
)

// duplicate gives eth0 the address of another host, and waits until the kernel knows.
func (w *world) duplicate(address string) {
	w.t.Helper()
	_, err := w.h.Script(w.t.Context(), `ip -n outside address add `+address+`/64 dev eth0 nodad
		sysctl -qw net.ipv6.conf.eth0.accept_dad=1
		ip address add `+address+`/64 dev eth0`)
	if err != nil {
		w.t.Fatal(err)
	}
	w.await("the duplicate", func() bool { return w.script("ip -6 address show dev eth0 dadfailed") != "" })
}

func (w *world) script(text string) string {
	w.t.Helper()
	out, err := w.h.Script(w.t.Context(), text)
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// Duplicate addresses are not moved to the bridge, and not announced.
func TestAddressesOfOtherHostsStayTheirs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reset()
	if err := w.batch([]string{"address add fd00::5/64 dev eth0 nodad"}); err != nil {
		t.Fatal(err)
	}
	w.duplicate("fd00::9")
	if err := w.move(ToBridge); err != nil {
		t.Fatal(err)
	}
	for address, usable := range map[string]bool{"fd00::5": true, "fd00::9": false} {
		if got := w.script("ip -6 -o address show dev breth0 to "+address+" -tentative -dadfailed") != ""; got != usable {
			t.Errorf("%s can be used on the bridge: %v\n%s", address, got, w.script("ip -6 address show dev breth0"))
		}
	}
}

// A move fails if an address turns out to be a duplicate during it.
func TestAnAddressThatIsADuplicateOnTheBridgeIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reset()
	if err := w.batch([]string{"address add fd00::9/64 dev eth0"}); err != nil {
		t.Fatal(err)
	}
	before := w.state()
	w.s.mover.before = func(st Step) error {
		if st.Do != settle || st.On != "breth0" {
			return nil
		}
		// duplicate address detection starts again, as after the bridge was down
		w.script(`ip -n outside address add fd00::9/64 dev eth0 nodad
			sysctl -qw net.ipv6.conf.breth0.accept_dad=1
			ip address del fd00::9/64 dev breth0
			ip address add fd00::9/64 dev breth0`)
		w.await("the duplicate", func() bool { return w.script("ip -6 address show dev breth0 dadfailed") != "" })
		return nil
	}
	err := w.move(ToBridge)
	w.s.mover.before = nil
	if err == nil || !strings.Contains(err.Error(), "address fd00::9/64 is not on breth0") {
		t.Errorf("moving: %v", err)
	}
	w.script("ip -n outside address del fd00::9/64 dev eth0")
	w.same("after it was undone", before, w.state())
}
