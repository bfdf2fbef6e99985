package connections

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/tracked"
	"ovn-k8s/lib/link"
)

// ErrUnforgotten means: stale connections may be left. All rules are written.
var ErrUnforgotten = errors.New("the rules are there, but UDP connections may go on to endpoints that are gone")

const (
	// readFactor is the ratio of the pause after a look at the host's connections to its duration: permanent changes of
	// endpoints or rules cost the helper a tenth of its time in each family. The kernel lists the connections of all zones.
	readFactor = 9
	// maxPause bounds such a pause, since clients of an endpoint that is gone get no answers until its end. Looks of more than
	// a ninth of it, at millions of connections, cost more than a tenth of the time.
	maxPause = 30 * time.Second
)

// A Host deletes stale UDP connections of one family in the host's kernel. It begins by looking at all.
type Host struct {
	Family netip.Addr
	Log    *logrus.Entry
	Again  func()        // makes the owner call Forget again
	done   bool          // without an error, and since then only endpoints that counted have gone
	last   tracked.Table // with those
	pace   pace
	err    error // of the last look
}

// Forget deletes the connections that are stale now. It looks at them only if other ones are stale than the last time, after an
// error, and after changes of rules: those may come late, when connections have begun without them. Looks have pauses between
// them. An endpoint that goes during one and is back at its end costs no look.
func (h *Host) Forget(now tracked.Table, changes []string) error {
	rewritten := len(changes) > 0 && now.Translated || nodeport.OfHostPorts(changes)
	now.Keep(h.last)
	if h.done && !rewritten && now.Equal(h.last) {
		h.last = now
		return nil
	}
	if h.pace.delays(h.Again) {
		all := now.Join(h.last)
		h.done = h.done && !rewritten && all.Equal(h.last) && len(all.Answers) == len(now.Answers)
		h.last = all
		return h.err
	}
	began := time.Now()
	n, err := link.ForgetUDP(h.Family, func(c link.Connection) bool { return now.Stale(c.To, c.Answers) })
	h.pace.took(time.Since(began))
	if n > 0 {
		h.Log.Infof("forgot %d UDP connections to endpoints that are gone", n)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrUnforgotten, err)
	}
	h.done, h.last, h.err = err == nil, now, err
	return err
}

// A pace makes pauses after work. They are longer than the work. After a calm time there is none.
type pace struct {
	until time.Time
	timer *time.Timer
}

// delays reports whether there is a pause now. Then again is called at its end, once.
func (p *pace) delays(again func()) bool {
	wait := time.Until(p.until)
	if wait > 0 && p.timer == nil {
		p.timer = time.AfterFunc(wait, again)
	}
	return wait > 0
}

// took begins a pause after work of some duration.
func (p *pace) took(d time.Duration) {
	if p.timer != nil {
		p.timer.Stop()
	}
	*p = pace{until: time.Now().Add(min(readFactor*d, maxPause))}
}
