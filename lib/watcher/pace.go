package watcher

import (
	"math"
	"time"

	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
)

// ovn-northd 23.03 computes everything again for each transaction, and that takes
// the longer the larger the cluster is: about 70 µs for each port, see
// World.Size. So while many pods come, transactions are held back until each has
// many of them; in a small cluster there is little to be gained, and pods that
// come now and then do not wait.
const (
	// enough rows for one transaction.
	enough = 40
	// worth is how many rows a wait must promise: who changes one row after the
	// other, waiting for each, would only be held up.
	worth = 3
	// perSize and maxGap bound the time between two transactions, and a lull of
	// some milliseconds ends it: then the last of a burst have come.
	perSize = 200 * time.Microsecond
	maxGap  = 300 * time.Millisecond
	lull    = 10 * time.Millisecond
	// paceHalf is after which time a row counts half in the present pace.
	paceHalf = 500 * time.Millisecond
)

// perBalancer is what the row of a Service counts for. One Service that comes
// changes rows several times, by itself and by its endpoints, so more of them
// are worth gathering; and endpoints that move now and then do not wait.
const perBalancer = 0.25

// weight is how many rows of pods changes count for.
func weight(changes []nbsync.Change) float64 {
	sum := 0.0
	for _, c := range changes {
		switch c.Table {
		case nbdb.LoadBalancerTable, nbdb.ChassisTemplateVarTable:
			sum += perBalancer
		default:
			sum++
		}
	}
	return sum
}

// A pacer knows how fast rows are written.
type pacer struct {
	recent float64   // rows, each counting less the longer ago it was written
	last   time.Time // when recent was computed
}

// gap returns how long to gather changes after a transaction that counts for so
// many rows, in a database of that size.
func (p *pacer) gap(now time.Time, rows float64, size int) time.Duration {
	age := float64(now.Sub(p.last)) / float64(paceHalf)
	p.recent, p.last = p.recent*math.Exp2(-age)+rows, now
	perRow := float64(paceHalf) / math.Ln2 / p.recent // at an even pace
	gap := min(enough*perRow, float64(size)*float64(perSize), float64(maxGap))
	if gap < worth*perRow {
		return 0
	}
	return time.Duration(gap)
}
