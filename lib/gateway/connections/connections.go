// Package connections deletes tracked UDP connections to endpoints that are gone.
package connections

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/ofctl"
)

const (
	// staleInterval is the pause before connections to a deleted endpoint are deleted
	// again: OVN may not have known of the deletion, so that a client's next packet
	// created the connection again. It doubles each time.
	staleInterval = time.Second
	// staleTries bounds the number of deletions: the last one is 15 s after the first.
	staleTries = 5
	// maxFlushes bounds the number of kinds of connections that Open vSwitch deletes one
	// by one. For more, all connections are read, once. With 78 000 connections (L8), a
	// flush takes 43 ms of ovs-vswitchd, and a list 420 ms and 32 MB.
	maxFlushes = 8
	// roundTimeout bounds the deletions one by one of a call of Forget: with an ovs-vswitchd that hangs, each would end
	// only after a timeout of its own, and flows wait for them.
	roundTimeout = 10 * time.Second
)

// stale keeps the UDP connections to delete. It belongs to the loop's work.
type stale struct {
	answers map[ofctl.Connection]bool // frontends and endpoints, nil at first
	pending map[ofctl.Connection]retry
}

// A retry is the time of the next deletion, and the number of past ones that succeeded.
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

// due returns the connections to delete now, in their order.
func (s *stale) due(now time.Time) (due []ofctl.Connection) {
	for c, r := range s.pending {
		if !r.at.After(now) {
			due = append(due, c)
		}
	}
	slices.SortFunc(due, compare)
	return due
}

// deleted records the deletion of a connection. After a failed one it stays due.
func (s *stale) deleted(c ofctl.Connection, now time.Time) {
	r := s.pending[c]
	if r.tries+1 >= staleTries {
		delete(s.pending, c)
		return
	}
	s.pending[c] = retry{now.Add(staleInterval << r.tries), r.tries + 1}
}

// next is the time at which another connection becomes due: the zero time if there is none.
func (s *stale) next(now time.Time) (next time.Time) {
	for _, r := range s.pending {
		if r.at.After(now) && (next.IsZero() || r.at.Before(next)) {
			next = r.at
		}
	}
	return next
}

// An OVS deletes the stale connections that Open vSwitch tracks. OVN 23.03 does so itself, but not for frontends in
// Chassis_Template_Var such as NodePorts, and a client may send faster than OVN deletes.
type OVS struct {
	stale
	kept   service.Kept[[]ofctl.Connection] // endpoints of UDP frontends of each Service
	last   [][]ofctl.Connection             // of the last Forget
	runDir string
	log    *logrus.Entry
	again  func() // makes the owner call Forget again
}

// New returns an OVS. It begins by reading all connections.
func New(runDir string, log *logrus.Entry, again func()) *OVS {
	return &OVS{stale: stale{pending: map[ofctl.Connection]retry{}}, runDir: runDir, log: log, again: again}
}

// Forget deletes the UDP connections from this host's pods, or through its gateway, to deleted endpoints of frontends. All
// tracked connections are read only at the first time, and for many endpoints at once. After an error it has to be called
// again: then it tries the failed deletions again.
func (o *OVS) Forget(ctx context.Context, frontends service.List) error {
	first, now := o.answers == nil, time.Now()
	if answers := o.kept.Of(frontends, connectionsOf); first || !slices.EqualFunc(answers, o.last, slices.Equal) {
		all := map[ofctl.Connection]bool{}
		for _, of := range answers {
			for _, c := range of {
				all[c] = true
			}
		}
		o.update(all)
		o.last = answers
	}
	err := o.forget(ctx, frontends, first, o.due(now))
	if err != nil && first {
		o.answers = nil
	}
	if next := o.next(now); !next.IsZero() {
		time.AfterFunc(time.Until(next), o.again)
	}
	return err
}

// connectionsOf lists the connections to endpoints of UDP frontends, sorted.
func connectionsOf(frontends service.List) (out []ofctl.Connection) {
	for to, endpoints := range service.UDPAnswers(frontends) {
		for a := range endpoints {
			out = append(out, ofctl.Connection{To: to, Answers: a})
		}
	}
	slices.SortFunc(out, compare)
	return out
}

func compare(a, b ofctl.Connection) int {
	return cmp.Or(a.To.Compare(b.To), a.Answers.Compare(b.Answers))
}

// forget deletes the due connections. The first time, and if many are due, it deletes all stale ones.
func (o *OVS) forget(ctx context.Context, frontends service.List, first bool, due []ofctl.Connection) error {
	if first || len(due) > maxFlushes {
		if err := o.read(ctx, frontends); err != nil {
			return err
		}
		for _, c := range due {
			o.deleted(c, time.Now())
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	var failed []error
	for _, c := range due {
		if err := ofctl.FlushUDP(ctx, o.runDir, c); err != nil {
			failed = append(failed, err)
			continue
		}
		o.deleted(c, time.Now())
	}
	return errors.Join(failed...)
}

// read reads all connections tracked by Open vSwitch, and deletes the stale ones.
func (o *OVS) read(ctx context.Context, frontends service.List) error {
	is := service.StaleUDP(frontends)
	if is == nil {
		return nil
	}
	n, err := ofctl.ForgetUDP(ctx, o.runDir, func(c ofctl.Connection) bool { return is(c.To, c.Answers) })
	if n > 0 {
		o.log.Infof("Open vSwitch forgot UDP connections to %d endpoints that are gone", n)
	}
	return err
}
