package failures

import (
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/nb"
)

// An object may alternate between good and bad, as often as its author likes. The first linesAtOnce lines about a
// unit are logged at once. Others count, and the last of them is logged after linesEvery.
const (
	linesAtOnce = 2
	linesEvery  = time.Minute
)

// lines logs failures and recoveries, few lines about each unit.
type lines struct {
	log  *logrus.Entry
	send func(func() []nb.Unit)
	of   map[nb.Unit]*count
}

// A count counts the lines about a unit during linesEvery.
type count struct {
	logged, left int
	last         string // the failure, "" after recovery
}

func newLines(log *logrus.Entry, send func(func() []nb.Unit)) *lines {
	return &lines{log, send, map[nb.Unit]*count{}}
}

// say logs the failure of a unit, or its recovery if why is "".
func (l *lines) say(u nb.Unit, why string) {
	c := l.of[u]
	if c == nil {
		c = &count{}
		l.of[u] = c
		l.sumUpLater(u)
	}
	if c.last = why; c.logged == linesAtOnce {
		c.left++
		return
	}
	c.logged++
	l.logLine(u, why, "")
}

func (l *lines) logLine(u nb.Unit, why, more string) {
	if log := l.log.WithField("unit", u); why == "" {
		log.Info("recovered" + more)
	} else {
		log.Warn(why + more)
	}
}

func (l *lines) sumUpLater(u nb.Unit) {
	time.AfterFunc(linesEvery, func() {
		l.send(func() []nb.Unit {
			l.sumUp(u)
			return nil
		})
	})
}

// sumUp logs the last of the omitted lines about a unit.
func (l *lines) sumUp(u nb.Unit) {
	c := l.of[u]
	if c.left == 0 {
		delete(l.of, u)
		return
	}
	l.logLine(u, c.last, fmt.Sprintf(" (changes since the last line: %d)", c.left))
	c.left, c.logged = 0, linesAtOnce
	l.sumUpLater(u)
}
