// Package connections deletes tracked UDP connections to endpoints that are gone.
package connections

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ofctl"
)

const (
	// staleInterval is the pause before connections to a deleted endpoint are deleted
	// again: OVN may not have known of the deletion, so that a client's next packet
	// created the connection again. It doubles each time.
	staleInterval = time.Second
	// staleTries bounds the number of tries: the last one is 15 s after the first.
	staleTries = 5
	// maxFlushes bounds the number of kinds of connections that Open vSwitch deletes one
	// by one. For more, all connections are read, once. With 78 000 connections (L8), a
	// flush takes 43 ms of ovs-vswitchd, and a list 420 ms and 32 MB.
	maxFlushes = 8
)

// stale keeps the UDP connections to delete. It belongs to the loop's work.
type stale struct {
	answers map[ofctl.Connection]bool // frontends and endpoints, nil at first
	pending map[ofctl.Connection]retry
}

// A retry is the time of the next deletion, and the number of past ones.
type retry struct {
	at    time.Time
	tries int
}

// update records the present endpoints, and adds connections to deleted ones to
// pending.
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

// due returns the connections to delete now, and the time until the next ones are due:
// 0 if there are none.
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

// An OVS deletes the stale connections that Open vSwitch tracks. OVN 23.03 does so itself, but not for frontends in
// Chassis_Template_Var such as NodePorts, and a client may send faster than OVN deletes.
type OVS struct {
	stale
	runDir string
	log    *logrus.Entry
	again  func() // makes the owner call Forget again
}

// New returns an OVS. It begins by reading all connections.
func New(runDir string, log *logrus.Entry, again func()) *OVS {
	return &OVS{stale: stale{pending: map[ofctl.Connection]retry{}}, runDir: runDir, log: log, again: again}
}

// Forget deletes the UDP connections from this host's pods, or through its gateway, to deleted endpoints of frontends. All
// tracked connections are read only at the first time, and for many endpoints at once.
func (o *OVS) Forget(ctx context.Context, frontends service.List) error {
	first := o.answers == nil
	now := map[ofctl.Connection]bool{}
	for to, endpoints := range nodeport.UDPAnswers(frontends) {
		for a := range endpoints {
			now[ofctl.Connection{To: to, Answers: a}] = true
		}
	}
	o.update(now)
	due, next := o.due(time.Now())
	if next > 0 {
		time.AfterFunc(next, o.again)
	}
	if first || len(due) > maxFlushes {
		err := o.read(ctx, frontends)
		if err != nil && first {
			o.answers = nil
		}
		return err
	}
	for _, c := range due {
		if err := ofctl.FlushUDP(ctx, o.runDir, c); err != nil {
			return err
		}
	}
	return nil
}

// read reads all connections tracked by Open vSwitch, and deletes the stale ones.
func (o *OVS) read(ctx context.Context, frontends service.List) error {
	is := nodeport.StaleInside(frontends)
	if is == nil {
		return nil
	}
	n, err := ofctl.ForgetUDP(ctx, o.runDir, func(c ofctl.Connection) bool { return is(c.To, c.Answers) })
	if n > 0 {
		o.log.Infof("Open vSwitch forgot UDP connections to %d endpoints that are gone", n)
	}
	return err
}
