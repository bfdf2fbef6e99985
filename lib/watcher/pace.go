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
	perSize = 300 * time.Microsecond
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

// policyHold is how long a policy waits for others that are applied with it,
// unless a lull says that it came alone: each transaction with policies changes
// rows of all the pods that they select.
const policyHold = 100 * time.Millisecond

// hold is the Hold of the engine's loop.
func hold(u nb.Unit) time.Duration {
	if strings.HasPrefix(string(u), policy.UnitPrefix) {
		return policyHold
	}
	return 0
}

// A pacer knows how fast rows are written.
type pacer struct {
	recent   float64   // rows, each counting less the longer ago it was written
	last     time.Time // when recent was computed
	promised float64   // rows that the gap should have gathered that has just ended, 0 if there was none
	skip     int       // transactions that go without a gap because that one was in vain
	penalty  int       // what skip began with: more, the more gaps in a row were in vain
}

// fewSkips and mostSkips bound how many transactions go without a gap.
const fewSkips, mostSkips = 8, 64

// gap returns how long to gather changes after a transaction that counts for so
// many rows, in a database of that size. waiting is how many keys came while it
// was under way.
func (p *pacer) gap(now time.Time, rows float64, size, waiting int) time.Duration {
	p.judge(rows)
	age := float64(now.Sub(p.last)) / float64(paceHalf)
	p.recent, p.last = p.recent*math.Exp2(-age)+rows, now
	perRow := float64(paceHalf) / math.Ln2 / p.recent // at an even pace
	gap := min(enough*perRow, float64(size)*float64(perSize), float64(maxGap))
	if gap < worth*perRow {
		return 0
	}
	if p.skip > 0 && waiting < worth {
		p.skip--
		return 0
	}
	p.promised = gap / perRow
	return time.Duration(gap)
}

// judge looks at what the last gap gathered. Who changes one thing after the
// other, waiting for each, makes a pace that promises much, and then sends
// nothing in the gap.
func (p *pacer) judge(rows float64) {
	switch {
	case p.promised == 0:
	case rows >= p.promised/2:
		p.penalty, p.skip = 0, 0
	default:
		p.penalty = min(max(fewSkips, 2*p.penalty), mostSkips)
		p.skip = p.penalty
	}
	p.promised = 0
}
