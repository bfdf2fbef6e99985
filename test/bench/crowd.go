package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// A crowd is many objects of one kind that are created at once.
type crowd struct {
	what string // "500 services of 10 endpoints"
	last string // what is waited for: "row"
	n    int
	// create and remove make an API call or two for object i of a round.
	create, remove func(ctx context.Context, f *field, round, i int) error
	// ready says of how many objects all rows are there.
	ready func(db *replica) int
	// copied copies the rows, and returns what inserts such rows again.
	copied func(db *replica) func(context.Context) error
	// leftover are the operations that remove what copied inserted.
	leftover func(db *replica) ([]ovsdb.Operation, error)
	// before, if any, makes what must be there. meanwhile, if any, measures more
	// of the objects while our watcher serves them, and alone the same of what
	// cannot be done without.
	before           func(ctx context.Context, f *field) error
	meanwhile, alone func(ctx context.Context, f *field, db *replica, round int) error
}

// took is what a crowd took in one round: seconds, and of ours milliseconds of CPU
// and transactions.
type took struct {
	ours, objects, rows       float64
	own, northd, transactions float64
}

// measureCrowd has our watcher serve a crowd, and then does alone what cannot be
// done without: creating the objects, and inserting the rows.
func (f *field) measureCrowd(ctx context.Context, b *bench, c *crowd) error {
	db, err := f.follow(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	var all []took
	for round := range b.rounds {
		b.say("round %d of %d: %s", round+1, b.rounds, c.what)
		t, again, err := f.crowdOfOurs(ctx, b, c, db, 2*round)
		if err != nil {
			return err
		}
		if t.objects, err = timed(func() error { return c.createAll(ctx, f, 2*round+1) }); err != nil {
			return err
		}
		if t.rows, err = timed(func() error { return again(ctx) }); err != nil {
			return err
		}
		if c.alone != nil {
			if err := c.alone(ctx, f, db, 2*round+1); err != nil {
				return err
			}
		}
		b.say("  %.2f s; objects alone %.2f s and rows alone %.2f s", t.ours, t.objects, t.rows)
		all = append(all, t)
		if err := f.clearCrowd(ctx, c, db, 2*round+1); err != nil {
			return err
		}
	}
	c.tell(b.report, all)
	return nil
}

// tell adds the results to the report.
func (c *crowd) tell(r *report, all []took) {
	of := func(value func(took) float64) (values []float64) {
		for _, t := range all {
			values = append(values, value(t))
		}
		return values
	}
	objects, rows := of(func(t took) float64 { return t.objects }), of(func(t took) float64 { return t.rows })
	r.beside(c.what+": first create to last "+c.last, "s", 1.5, of(func(t took) float64 { return t.ours }), of(func(t took) float64 { return t.objects + t.rows })).
		note("yardstick: creating the objects (%.2f s) and then inserting the rows (%.2f s), nothing else", median(objects), median(rows))
	each := 1000 / float64(c.n)
	r.alone(c.what+": CPU time of the watcher per 1000", "ms", 0, of(func(t took) float64 { return t.own * each })...)
	r.alone(c.what+": NB transactions", "", 0, of(func(t took) float64 { return t.transactions })...)
	r.alone(c.what+": CPU time of ovn-northd per 1000", "ms", 0, of(func(t took) float64 { return t.northd * each })...)
}

// crowdOfOurs has our watcher serve a crowd and leave nothing of it. It returns
// what inserts the rows again.
func (f *field) crowdOfOurs(ctx context.Context, b *bench, c *crowd, db *replica, round int) (took, func(context.Context) error, error) {
	r, err := f.startReady(ctx, b, contenders()[0])
	if err != nil {
		return took{}, nil, err
	}
	t, again, err := f.serveCrowd(ctx, c, db, r, round)
	if err != nil {
		return took{}, nil, r.failed(err)
	}
	r.stop()
	return t, again, f.settle(ctx)
}

func (f *field) serveCrowd(ctx context.Context, c *crowd, db *replica, r *runner, round int) (t took, again func(context.Context) error, err error) {
	if c.before != nil {
		if err := c.before(ctx, f); err != nil {
			return t, nil, err
		}
	}
	if err := f.settle(ctx); err != nil {
		return t, nil, err
	}
	before, err := f.costs(r)
	if err != nil {
		return t, nil, err
	}
	t.ours, err = timed(func() error {
		if err := c.createAll(ctx, f, round); err != nil {
			return err
		}
		return c.await(ctx, db, c.n)
	})
	if err != nil {
		return t, nil, err
	}
	written, err := f.central.NBTransactions()
	if err != nil {
		return t, nil, err
	}
	if err := f.settle(ctx); err != nil { // ovn-northd's work for it
		return t, nil, err
	}
	after, err := f.costs(r)
	if err != nil {
		return t, nil, err
	}
	t.own, t.northd, t.transactions = milli(after.own-before.own), milli(after.northd-before.northd), float64(written-before.transactions)
	if c.meanwhile != nil {
		if err := c.meanwhile(ctx, f, db, round); err != nil {
			return t, nil, err
		}
	}
	again = c.copied(db)
	if err := c.removeAll(ctx, f, round); err != nil {
		return t, nil, err
	}
	return t, again, c.await(ctx, db, 0)
}

func milli(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// clearCrowd removes the objects and rows of the yardstick, and all pods.
func (f *field) clearCrowd(ctx context.Context, c *crowd, db *replica, round int) error {
	if err := c.removeAll(ctx, f, round); err != nil {
		return err
	}
	ops, err := c.leftover(db)
	if err != nil {
		return err
	}
	if _, err := db.Transact(ctx, ops); err != nil {
		return err
	}
	return f.clear(ctx)
}

func (c *crowd) createAll(ctx context.Context, f *field, round int) error {
	return parallel(ctx, c.n, func(ctx context.Context, i int) error { return c.create(ctx, f, round, i) })
}

func (c *crowd) removeAll(ctx context.Context, f *field, round int) error {
	return parallel(ctx, c.n, func(ctx context.Context, i int) error { return c.remove(ctx, f, round, i) })
}

// await waits until so many objects have all their rows.
func (c *crowd) await(ctx context.Context, db *replica, n int) error {
	return db.await(ctx, fmt.Sprintf("the rows of %d of %s", n, c.what), func() bool { return c.ready(db) == n })
}
