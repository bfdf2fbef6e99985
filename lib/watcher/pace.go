package watcher

import (
	"math"
	"strings"
	"time"

	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/nb"
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
	perSize = 400 * time.Microsecond
	maxGap  = 300 * time.Millisecond
	lull    = 12 * time.Millisecond
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

// policyHold is how long a policy waits for others that are applied with it,
// unless a lull says that it came alone: each transaction with policies changes
// rows of all the pods that they select.
const policyHold = 100 * time.Millisecond

// hold is the MaxWait of the engine's loop.
func hold(u nb.Unit) time.Duration {
	if strings.HasPrefix(string(u), policy.UnitPrefix) {
		return policyHold
	}
	return 0
}

// A pacer knows how fast rows are written.
type pacer struct {
	recent  float64   // what rows count for, each less the longer ago it was written
	last    time.Time // when recent was computed
	gapped  bool      // whether there was a gap before the last transaction
	skip    int       // transactions that go without a gap because that one was in vain
	penalty int       // what skip began with: more, the more gaps in a row were in vain
}

// fewSkips and mostSkips bound how many transactions go without a gap.
const fewSkips, mostSkips = 8, 64

// A batch is a transaction that is done.
type batch struct {
	rows    int     // that it changed
	weight  float64 // what they count for
	waiting int     // units that came while it was under way
}

// gap returns how long to gather changes after a transaction, in a database of
// that size.
func (p *pacer) gap(now time.Time, b batch, size int) time.Duration {
	p.judge(b)
	age := float64(now.Sub(p.last)) / float64(paceHalf)
	p.recent, p.last = p.recent*math.Exp2(-age)+b.weight, now
	perRow := float64(paceHalf) / math.Ln2 / p.recent // at an even pace
	gap := min(enough*perRow, float64(size)*float64(perSize), float64(maxGap))
	if gap < worth*perRow {
		return 0
	}
	if p.skip > 0 {
		p.skip--
		return 0
	}
	p.gapped = true
	return time.Duration(gap)
}

// judge looks at what the last gap gathered. Who changes one thing after the
// other, waiting for each, makes a pace that promises much, and then sends
// nothing in the gap, nor while a transaction is under way. In a burst, rows or units
// come together.
func (p *pacer) judge(b batch) {
	switch {
	case b.rows >= worth || b.waiting > 1:
		p.penalty, p.skip = 0, 0
	case p.gapped:
		p.penalty = min(max(fewSkips, 2*p.penalty), mostSkips)
		p.skip = p.penalty
	}
	p.gapped = false
}
