package gateway

import (
	"context"
	"time"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/ofctl"
)

const (
	// staleInterval is how soon connections to an endpoint that has gone are
	// forgotten again, at first: OVN may not have known of it, and a client that
	// goes on sending begins a new connection to it. It doubles each time.
	staleInterval = time.Second
	// staleTries bounds how often: the last time is 15 s after the first.
	staleTries = 5
	// maxFlushes is how many kinds of connections Open vSwitch is asked to forget
	// one by one. For more of them, all connections are read, once. With 78 000 connections
	// (L8), a flush takes 43 ms of ovs-vswitchd, and a list 420 ms and 32 MB.
	maxFlushes = 8
)

// stale tells which UDP connections to forget. It belongs to the loop's work.
type stale struct {
	answers map[ofctl.Connection]bool // frontends and endpoints, nil at first
	pending map[ofctl.Connection]retry
}

// A retry is when connections are forgotten the next time.
type retry struct {
	at    time.Time
	tries int
}

// update records the endpoints there are, and takes the connections to those that
// have gone into pending.
func (s *stale) update(now map[ofctl.Connection]bool) {
	for c := range s.answers {
		if _, known := s.pending[c]; !known && !now[c] {
			s.pending[c] = retry{}
		}
	}
	for c := range s.pending {
		if now[c] {
			delete(s.pending, c)
		}
	}
	s.answers = now
}

// due takes the connections that are to be forgotten by now, and says when the next
// are due; never if that is zero.
func (s *stale) due(now time.Time) (due []ofctl.Connection, next time.Duration) {
	for c, r := range s.pending {
		if !r.at.After(now) {
			due = append(due, c)
			r = retry{now.Add(staleInterval << r.tries), r.tries + 1}
			s.pending[c] = r
		}
		if r.tries >= staleTries {
			delete(s.pending, c)
			continue
		}
		if wait := r.at.Sub(now); next == 0 || wait < next {
			next = wait
		}
	}
	return due, next
}

// forgetStale has Open vSwitch forget the UDP connections of this host's pods, and
// those through its gateway, to endpoints that have gone. OVN 23.03 does so itself,
// but not for frontends that are variables, as NodePorts are; and a client that
// goes on sending may be faster than OVN. The connections that Open vSwitch tracks
// are read only by a helper that has just started, and for many endpoints at once.
func (e *engine) forgetStale(ctx context.Context, v view) error {
	if !v.synced {
		return nil
	}
	first := e.stale.answers == nil
	now := map[ofctl.Connection]bool{}
	for to, endpoints := range nodeport.UDPAnswers(v.frontends) {
		for a := range endpoints {
			now[ofctl.Connection{To: to, Answers: a}] = true
		}
	}
	e.stale.update(now)
	due, next := e.stale.due(time.Now())
	if next > 0 {
		time.AfterFunc(next, func() { e.touch(partStale) })
	}
	if first || len(due) > maxFlushes {
		err := e.readStale(ctx, v)
		if err != nil && first {
			e.stale.answers = nil
		}
		return err
	}
	for _, c := range due {
		if err := ofctl.FlushUDP(ctx, e.config.RunDir, c); err != nil {
			return err
		}
	}
	return nil
}

// readStale reads all connections that Open vSwitch tracks.
func (e *engine) readStale(ctx context.Context, v view) error {
	is := nodeport.StaleInside(v.frontends)
	if is == nil {
		return nil
	}
	n, err := ofctl.ForgetUDP(ctx, e.config.RunDir, func(c ofctl.Connection) bool { return is(c.To, c.Answers) })
	if n > 0 {
		e.log.Infof("Open vSwitch forgot UDP connections to %d endpoints that are gone", n)
	}
	return err
}
