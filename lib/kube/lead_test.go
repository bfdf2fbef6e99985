package kube

import (
	"testing"
	"time"
)

// A process on a host that was suspended has lost the Lease when it goes on: the monotonic clock, and with it all timers,
// stood still.
func TestASuspendedHostHasLostTheLease(t *testing.T) {
	now := sinceBoot()
	c := &Cluster{clock: func() time.Duration { return now }}
	l := &lock{times: defaultTimes(), clock: c.clock, held: &c.held, failed: c.noteElection, unable: func() error { return nil }, timer: time.NewTimer(time.Hour)}
	renew := func() {
		t.Helper()
		if err := l.renew(func() error { return nil }); err != nil || !c.Leads() {
			t.Fatalf("after a renewal it leads: %v (%v)", c.Leads(), err)
		}
	}
	renew()
	now += l.times.leadTime() - time.Second
	if !c.Leads() {
		t.Error("the Lease ends too early")
	}
	renew()
	now += 10 * time.Minute
	if c.Leads() {
		t.Error("it leads after ten minutes of suspension")
	}
	renew()
}

// The clock of the Lease goes on.
func TestSinceBoot(t *testing.T) {
	before := sinceBoot()
	<-time.After(time.Millisecond)
	if now := sinceBoot(); before <= 0 || now <= before {
		t.Errorf("%v since boot, and %v a millisecond later", before, now)
	}
}
