package connections

import (
	"net/netip"
	"testing"
	"time"

	"ovn-k8s/lib/ofctl"
)

// L8: only connections to deleted endpoints are deleted, a bounded number of times, and not
// once the endpoint is back.
func TestStaleConnectionsAreForgottenAFewTimes(t *testing.T) {
	at := func(endpoint string) ofctl.Connection {
		return ofctl.Connection{To: netip.MustParseAddrPort("172.30.0.10:53"), Answers: netip.MustParseAddrPort(endpoint)}
	}
	a, b := at("10.128.1.3:53"), at("10.128.1.4:53")
	s, now := stale{pending: map[ofctl.Connection]retry{}}, time.Unix(0, 0)
	s.update(map[ofctl.Connection]bool{a: true, b: true})
	if due, next := s.due(now); len(due) != 0 || next != 0 {
		t.Errorf("at first: %v, %v", due, next)
	}
	s.update(map[ofctl.Connection]bool{b: true})
	times := 0
	for {
		due, next := s.due(now)
		for _, c := range due {
			if times++; c != a {
				t.Errorf("forgot %v", c)
			}
		}
		if again, _ := s.due(now); len(again) != 0 {
			t.Error("forgotten twice at a time")
		}
		if next == 0 {
			break
		}
		now = now.Add(next)
	}
	if times != staleTries || now.Sub(time.Unix(0, 0)) != 15*time.Second {
		t.Errorf("forgotten %d times in %v", times, now.Sub(time.Unix(0, 0)))
	}
	s.update(map[ofctl.Connection]bool{a: true})
	s.update(map[ofctl.Connection]bool{a: true, b: true})
	if due, _ := s.due(now); len(due) != 0 {
		t.Errorf("an endpoint that is back: %v", due)
	}
}
