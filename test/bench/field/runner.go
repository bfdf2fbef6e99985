package field

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"ovn-k8s/test/bench/programs"
	"ovn-k8s/test/reaper"
)

// A Contender is a program that gives pods ports and annotations.
type Contender struct {
	Name, Program string
	Args          func(*Field) []string
}

// Control is the control socket of our watcher.
func (f *Field) Control() string { return filepath.Join(f.Dir, "watcher.ctl") }

// A Runner is a running contender.
type Runner struct {
	Contender
	programs.Process
	lifeline *reaper.Process
}

// Start starts a contender.
func (f *Field) Start(ctx context.Context, c Contender) (*Runner, error) {
	p, err := reaper.Start(nil, c.Program, c.Args(f)...)
	if err != nil {
		return nil, err
	}
	r := &Runner{Contender: c, lifeline: p}
	err = Await(ctx, Patience, c.Name, func() (err error) {
		if p.Err() != nil {
			return nil // said below
		}
		r.Process, err = programs.Find(c.Name, func(exe string, _ []string) bool { return exe == c.Program })
		return err
	})
	if p.Err() != nil {
		err = p.Err()
	}
	if err != nil {
		p.Stop()
		return nil, err
	}
	return r, nil
}

// StartReady starts a contender and returns when it has served a few pods.
func (f *Field) StartReady(ctx context.Context, c Contender) (*Runner, error) {
	r, err := f.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	if _, err := f.Create(ctx, 10); err != nil {
		return nil, r.Failed(err)
	}
	return r, nil
}

// Failed stops a contender without results, and returns the reason.
func (r *Runner) Failed(err error) error {
	r.lifeline.Stop()
	return fmt.Errorf("%s: %w\n%s", r.Name, err, r.lifeline.Output())
}

// Stop kills the contender.
func (r *Runner) Stop() { r.lifeline.Stop() }

// Costs are the CPU times and transactions of a burst.
type Costs struct {
	Northd, Own  time.Duration
	Transactions int
}

// Costs returns what ovn-northd and a watcher have used so far.
func (f *Field) Costs(r *Runner) (c Costs, err error) {
	if c.Northd, err = f.Northd.CPU(); err != nil {
		return c, err
	}
	if c.Own, err = r.CPU(); err != nil {
		return c, err
	}
	c.Transactions, err = f.Central.NBTransactions()
	return c, err
}

// Begun is that of the create call.
func Begun(s *Sight) time.Time { return s.Begun }

// Appeared is that of the first event in the API.
func Appeared(s *Sight) time.Time { return s.appeared }

// Annotated is that of the annotation.
func Annotated(s *Sight) time.Time { return s.annotated }

// Ported is that of the port.
func Ported(s *Sight) time.Time { return s.ported }
