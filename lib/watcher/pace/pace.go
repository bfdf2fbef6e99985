// Package pace paces transactions: while many pods come, ovn-northd reads many of them at once.
package pace

import (
	"math"
	"strings"
	"time"

	"ovn-k8s/lib/desired/policy"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/nbsync"
)

// ovn-northd 23.03 computes everything again for each transaction. This takes about 70 µs for each port, see
// World.Size. So while many pods come, transactions wait until each has many of them. In a small cluster waiting
// gains little, and single pods do not wait.
const (
	// enough is the number of rows for one transaction.
	enough = 40
	// worth is the number of rows to be expected from an interval. A client with one change at a time, waiting for
	// each, would only be delayed.
	worth = 3
	// perSize and maxGap bound the time between two transactions. A lull of some milliseconds ends it: a burst is
	// over.
	perSize = 400 * time.Microsecond
	maxGap  = 300 * time.Millisecond
	Lull    = 12 * time.Millisecond
	// paceHalf is the half-life of a row in the present pace.
	paceHalf = 500 * time.Millisecond
)

// perBalancer is the weight of a row of a Service. A new Service changes rows several times, by itself and by its
// endpoints, so more of them are worth gathering; and single changes of endpoints do not wait.
const perBalancer = 0.25

// Weight is the sum of changes, in rows of pods.
func Weight(changes []nbsync.Change) float64 {
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

// policyHold is the time for a policy to wait for others applied with it, unless a lull shows it to be alone: each
// transaction with policies changes rows of all selected pods.
const policyHold = 100 * time.Millisecond

// Hold is the time for which a unit may wait for others.
func Hold(u nb.Unit) time.Duration {
	if strings.HasPrefix(string(u), policy.UnitPrefix) {
		return policyHold
	}
	return 0
}

// A Pacer knows the rate of rows written.
type Pacer struct {
	recent  float64   // weights of rows, decaying with paceHalf
	last    time.Time // when recent was computed
	gapped  bool      // an interval preceded the last transaction
	skip    int       // transactions without an interval, after one that gathered nothing
	penalty int       // first value of skip, doubled by each such interval in a row
}

// fewSkips and mostSkips bound the number of transactions without an interval.
const fewSkips, mostSkips = 8, 64

// A Batch is a completed transaction.
type Batch struct {
	Rows    int     // rows changed
	Weight  float64 // of the rows, see Weight
	Waiting int     // units added during the transaction
}

// Gap returns the time to gather changes after a transaction, in a database of the given size.
func (p *Pacer) Gap(now time.Time, b Batch, size int) time.Duration {
	p.judge(b)
	age := float64(now.Sub(p.last)) / float64(paceHalf)
	p.recent, p.last = p.recent*math.Exp2(-age)+b.Weight, now
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

// judge checks the yield of the last interval. A client with one change at a time, waiting for each, has a high rate,
// but sends nothing in the interval or during a transaction. In a burst, rows or units come together.
func (p *Pacer) judge(b Batch) {
	switch {
	case b.Rows >= worth || b.Waiting > 1:
		p.penalty, p.skip = 0, 0
	case p.gapped:
		p.penalty = min(max(fewSkips, 2*p.penalty), mostSkips)
		p.skip = p.penalty
	}
	p.gapped = false
}
