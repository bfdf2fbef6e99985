package reconcile

import "time"

// A gathering says how long keys are gathered before the next call of Sync. The zero gathering is none.
type gathering struct {
	current interval // under way; none during work
	next    interval // follows the work under way
}

// underWay reports whether keys have to wait.
func (g *gathering) underWay() bool { return g.current != interval{} }

// end fires at the end of the interval under way; nil if there is none.
func (g *gathering) end() <-chan time.Time {
	if !g.underWay() {
		return nil
	}
	return time.After(time.Until(g.current.end))
}

// worked starts the interval after a work: after, or a longer one asked for by keys during the work.
func (g *gathering) worked(after interval) {
	g.current = after
	if g.next.length > after.length {
		g.current = g.next
	}
	g.next = interval{}
}

// arrived counts keys. An interval at its end is over for them, too. They ask for wait if none is under way, or after
// the work under way.
func (g *gathering) arrived(keys int, wait interval, working bool) {
	switch {
	case g.underWay() && !time.Now().Before(g.current.end):
		g.current = interval{}
	case working && wait.length > g.next.length:
		g.next = wait
	case !working && !g.underWay():
		g.current = wait
	}
	g.current.arrived(keys)
	g.next.arrived(keys)
}

// An interval is a time of gathering keys. The zero interval means that dirty keys need not wait.
type interval struct {
	began, last time.Time     // last is its latest end
	end         time.Time     // last, or the end of the quiet time if that is earlier
	length      time.Duration // from began to last
	quietFor    time.Duration // the shortest quiet time; 0: never
	keys        int           // arrived so far
}

func newInterval(length, quiet time.Duration) interval {
	if length <= 0 {
		return interval{}
	}
	now := time.Now()
	last := now.Add(length)
	return interval{began: now, last: last, end: last, length: length, quietFor: quiet}
}

// The quiet time is at least MinInterval/quietPart, and quietFactor times the mean inter-arrival time.
const (
	quietPart   = 5
	quietFactor = 8
)

// arrived counts keys and restarts the quiet time.
func (i *interval) arrived(keys int) {
	if i.quietFor == 0 || keys == 0 {
		return
	}
	i.keys += keys
	now := time.Now()
	i.end = now.Add(max(i.quietFor, quietFactor*now.Sub(i.began)/time.Duration(i.keys)))
	if i.last.Before(i.end) {
		i.end = i.last
	}
}
