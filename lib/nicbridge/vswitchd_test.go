package nicbridge

import (
	"strings"
	"testing"
	"time"
)

// ovs-vswitchd dies during a move, without witnesses. The host gets its addresses back on the NIC at once, and the
// rest after a restart of ovs-vswitchd.
func TestVswitchdDiesInTheMiddle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, when := range []action{remove, add, settle} {
		w.reset()
		if err := w.batch([]string{"address add 10.0.0.5/24 dev eth0", "address add fd00::5/64 dev eth0", "route add default via 10.0.0.1 dev eth0"}); err != nil {
			t.Fatal(err)
		}
		before := w.state()
		alive := true
		w.s.mover.before = func(st Step) error {
			if st.Do != when || !alive {
				return nil
			}
			alive = false
			w.s.limits.move, w.s.limits.askAfter = time.Second, time.Second // ovs-vswitchd does not come back
			return w.h.Kill(t.Context(), "/var/run/openvswitch/ovs-vswitchd.pid")
		}
		err := w.move(ToBridge)
		w.s.mover.before, w.s.limits = nil, usual()
		if err == nil || !strings.Contains(err.Error(), "is ovs-vswitchd running?") {
			t.Errorf("killed before %s: %v", when, err)
		}
		for _, want := range []string{"inet 10.0.0.5/24", "inet6 fd00::5/64"} {
			if is := w.script("ip address show dev eth0"); !strings.Contains(is, want) {
				t.Errorf("killed before %s: eth0 has not %s: %s", when, want, is)
			}
		}
		if err := w.h.StartSwitch(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.s.recover(t.Context(), w.s.overdue); err != nil {
			t.Errorf("killed before %s: recovering: %v", when, err)
		}
		w.same("after ovs-vswitchd was started again", before, w.state())
	}
}
