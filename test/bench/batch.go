package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/test/bench/field"
	"ovn-k8s/test/bench/report"
	"ovn-k8s/test/bench/run"
)

// A batch is many objects of one kind created at once.
type batch struct {
	what string // "500 services of 10 endpoints"
	last string // the object to wait for: "row"
	n    int
	// create and remove make an API call or two for object i of a round.
	create, remove func(ctx context.Context, f *field.Field, round, i int) error
	// ready returns the number of objects with all rows.
	ready func(db *field.Replica) int
	// copied copies the rows, and returns a function to insert such rows again.
	copied func(db *field.Replica) func(context.Context) error
	// leftover are the operations to remove the rows inserted by copied.
	leftover func(db *field.Replica) ([]ovsdb.Operation, error)
	// before, if any, makes required objects. meanwhile, if any, measures more of the objects while our watcher
	// serves them (or the one named, with -beside), and alone measures the inevitable part of the same.
	before    func(ctx context.Context, f *field.Field) error
	meanwhile func(ctx context.Context, f *field.Field, db *field.Replica, watcher string, round int) error
	alone     func(ctx context.Context, f *field.Field, db *field.Replica, round int) error
}

// took is the cost of a batch in one round: seconds, and for ours milliseconds of CPU and transactions.
type took struct {
	ours, objects, rows       float64
	own, northd, transactions float64
	memory                    float64 // MB, once all is done
}

// measure has our watcher serve a batch, and then does the inevitable part alone: creating the objects, and
// inserting the rows.
func (c *batch) measure(ctx context.Context, b *run.Bench, f *field.Field) error {
	db, err := f.Follow(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	if b.Beside != "" {
		return c.measureBeside(ctx, b, f, db)
	}
	var all []took
	for round := range b.Rounds {
		b.Say("round %d of %d: %s", round+1, b.Rounds, c.what)
		t, again, err := c.serveBy(ctx, b, f, b.Contenders()[0], db, 2*round)
		if err != nil {
			return err
		}
		if t.objects, err = field.Timed(func() error { return c.createAll(ctx, f, 2*round+1) }); err != nil {
			return err
		}
		if t.rows, err = field.Timed(func() error { return again(ctx) }); err != nil {
			return err
		}
		if c.alone != nil {
			if err := c.alone(ctx, f, db, 2*round+1); err != nil {
				return err
			}
		}
		b.Say("  %.2f s; objects alone %.2f s and rows alone %.2f s", t.ours, t.objects, t.rows)
		all = append(all, t)
		if err := c.clear(ctx, f, db, 2*round+1); err != nil {
			return err
		}
	}
	c.tell(b.Report, all)
	return nil
}

// measureBeside has our watcher serve a batch, and then the watcher of another build.
func (c *batch) measureBeside(ctx context.Context, b *run.Bench, f *field.Field, db *field.Replica) error {
	values := map[string][]float64{} // by name of the value and of the contender
	for round := range b.Rounds {
		for i, who := range b.Contenders() {
			b.Say("round %d of %d: %s, %s", round+1, b.Rounds, c.what, who.Name)
			t, _, err := c.serveBy(ctx, b, f, who, db, 2*round+i)
			if err != nil {
				return err
			}
			b.Say("  %.2f s, CPU %.0f ms, %.0f transactions, %.1f MB", t.ours, t.own, t.transactions, t.memory)
			for key, v := range map[string]float64{"time": t.ours, "own": t.own, "northd": t.northd, "transactions": t.transactions, "memory": t.memory} {
				values[key+who.Name] = append(values[key+who.Name], v)
			}
			if err := f.Clear(ctx); err != nil {
				return err
			}
		}
	}
	line := func(what, unit, key string) {
		b.Report.Beside(c.what+": "+what, unit, 0, values[key+"ours"], values[key+"yardstick"])
	}
	line("first create to last "+c.last, "s", "time")
	line("CPU time of the watcher", "ms", "own")
	line("CPU time of ovn-northd", "ms", "northd")
	line("NB transactions", "", "transactions")
	line("watcher memory at the end", "MB", "memory")
	return nil
}

// tell adds the results to the report.
func (c *batch) tell(r *report.Report, all []took) {
	of := func(value func(took) float64) (values []float64) {
		for _, t := range all {
			values = append(values, value(t))
		}
		return values
	}
	objects, rows := of(func(t took) float64 { return t.objects }), of(func(t took) float64 { return t.rows })
	r.Beside(c.what+": first create to last "+c.last, "s", 1.5, of(func(t took) float64 { return t.ours }), of(func(t took) float64 { return t.objects + t.rows })).
		Explain("yardstick: creating the objects (%.2f s) and then inserting the rows (%.2f s), nothing else", report.Median(objects), report.Median(rows))
	each := 1000 / float64(c.n)
	r.Alone(c.what+": CPU time of the watcher per 1000", "ms", 0, of(func(t took) float64 { return t.own * each })...)
	r.Alone(c.what+": NB transactions", "", 0, of(func(t took) float64 { return t.transactions })...)
	r.Alone(c.what+": CPU time of ovn-northd per 1000", "ms", 0, of(func(t took) float64 { return t.northd * each })...)
}

// serveBy has a watcher serve a batch and removes it. It returns a function to insert the rows again.
func (c *batch) serveBy(ctx context.Context, b *run.Bench, f *field.Field, who field.Contender, db *field.Replica, round int) (took, func(context.Context) error, error) {
	r, err := f.StartReady(ctx, who)
	if err != nil {
		return took{}, nil, err
	}
	t, again, err := c.serve(ctx, f, db, r, round)
	if err != nil {
		return took{}, nil, r.Failed(err)
	}
	r.Stop()
	return t, again, f.Settle(ctx)
}

func (c *batch) serve(ctx context.Context, f *field.Field, db *field.Replica, r *field.Runner, round int) (t took, again func(context.Context) error, err error) {
	if c.before != nil {
		if err := c.before(ctx, f); err != nil {
			return t, nil, err
		}
	}
	if err := f.Settle(ctx); err != nil {
		return t, nil, err
	}
	before, err := f.Costs(r)
	if err != nil {
		return t, nil, err
	}
	t.ours, err = field.Timed(func() error {
		if err := c.createAll(ctx, f, round); err != nil {
			return err
		}
		return c.await(ctx, db, c.n)
	})
	if err != nil {
		return t, nil, err
	}
	written, err := f.Central.NBTransactions()
	if err != nil {
		return t, nil, err
	}
	if t.memory, err = r.RSS(); err != nil {
		return t, nil, err
	}
	if err := f.Settle(ctx); err != nil { // ovn-northd's work for it
		return t, nil, err
	}
	after, err := f.Costs(r)
	if err != nil {
		return t, nil, err
	}
	t.own, t.northd, t.transactions = milli(after.Own-before.Own), milli(after.Northd-before.Northd), float64(written-before.Transactions)
	if c.meanwhile != nil {
		if err := c.meanwhile(ctx, f, db, r.Name, round); err != nil {
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

// clear removes the objects and rows of the yardstick, and all pods.
func (c *batch) clear(ctx context.Context, f *field.Field, db *field.Replica, round int) error {
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
	return f.Clear(ctx)
}

func (c *batch) createAll(ctx context.Context, f *field.Field, round int) error {
	return field.Parallel(ctx, c.n, func(ctx context.Context, i int) error { return c.create(ctx, f, round, i) })
}

func (c *batch) removeAll(ctx context.Context, f *field.Field, round int) error {
	return field.Parallel(ctx, c.n, func(ctx context.Context, i int) error { return c.remove(ctx, f, round, i) })
}

// await waits until n objects have all their rows.
func (c *batch) await(ctx context.Context, db *field.Replica, n int) error {
	return db.Await(ctx, fmt.Sprintf("the rows of %d of %s", n, c.what), func() bool { return c.ready(db) == n })
}
