package watcher

import (
	"math"
	"time"
)

// ovn-northd 23.03 computes everything again for each transaction, and that takes
// the longer the more ports there are: about 60 µs for each. So while many pods
// come, transactions are held back until each has many of them; with few ports
// there is little to be gained, and pods that come now and then do not wait.
const (
	// enough rows for one transaction.
	enough = 40
	// few rows, written within about paceHalf, are not worth waiting for more.
	few = 8
	// perPort and maxGap bound the time between two transactions.
	perPort = 200 * time.Microsecond
	maxGap  = 300 * time.Millisecond
	// paceHalf is after which time a row counts half in the present pace.
	paceHalf = 500 * time.Millisecond
)

// A pacer knows how fast rows are written.
type pacer struct {
	recent float64   // rows, each counting less the longer ago it was written
	last   time.Time // when recent was computed
}

// gap returns how long to gather changes after a transaction of so many rows, in
// a database of so many ports.
func (p *pacer) gap(now time.Time, rows, ports int) time.Duration {
	age := float64(now.Sub(p.last)) / float64(paceHalf)
	p.recent, p.last = p.recent*math.Exp2(-age)+float64(rows), now
	if p.recent < few {
		return 0
	}
	perRow := float64(paceHalf) / math.Ln2 / p.recent // at an even pace
	return min(time.Duration(enough*perRow), time.Duration(ports)*perPort, maxGap)
}
