// Package run has what all figures of a run share: the parameters, the programs, the field, and the report.
package run

import (
	"context"
	"fmt"
	"io"
	"time"

	"ovn-k8s/test/bench/field"
	"ovn-k8s/test/bench/programs"
	"ovn-k8s/test/bench/report"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/world"
)

// A Bench is one run.
type Bench struct {
	Rounds, Pods, Many int
	Settle, Churn      time.Duration
	Profile            string // a directory, or empty
	Beside             string // the directory of another build as the yardstick, or empty
	Say                Sayer
	Report             *report.Report
	Programs           *programs.Programs
	field              *field.Field // nil before the first figure on it
}

// Ground returns the field shared by the figures of the watcher.
func (b *Bench) Ground(ctx context.Context) (*field.Field, error) {
	if b.field != nil {
		return b.field, nil
	}
	f, err := field.NewField(ctx, field.Nodes, b.Say)
	if err != nil {
		return nil, err
	}
	b.field = f
	return f, warmUp(ctx, b, f)
}

// CloseField removes the field. The next Ground makes another one.
func (b *Bench) CloseField() {
	if b.field != nil {
		b.field.Close()
		b.field = nil
	}
}

// World makes a whole cluster of two hosts, with all programs installed. of says how, but for the control plane and the log. The
// caller must call end.
func (b *Bench) World(ctx context.Context, figure string, of world.Options) (w *world.World, end func(), err error) {
	if missing := world.Missing(); missing != "" {
		return nil, nil, fmt.Errorf("%s is missing", missing)
	}
	b.CloseField() // one control plane is enough
	o := world.KubeOptions()
	o.Without, o.Unlimited, o.Log = []string{"kube-scheduler"}, true, func(line string) { b.Say("%s: %s", figure, line) }
	kube, err := kubetest.Start(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	of.Kube, of.Minions, of.Log = kube, 1, o.Log
	if w, err = world.New(ctx, of); err != nil {
		kube.Close()
		return nil, nil, err
	}
	end = func() {
		w.Close()
		kube.Close()
	}
	if err := w.Install(ctx, b.Programs.Dir); err != nil {
		end()
		return nil, nil, err
	}
	return w, end, nil
}

// A Sayer prints a line of progress, with the seconds since the start.
type Sayer func(format string, args ...any)

// NewSayer returns a Sayer that begins now.
func NewSayer(out io.Writer) Sayer {
	began := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(out, "%6.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}
