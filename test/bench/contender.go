package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"ovn-k8s/test/bench/programs"
	"ovn-k8s/test/reaper"
)

// A contender is a program that gives pods ports and annotations.
type contender struct {
	name, program string
	args          func(*field) []string
}

// watcherProgram is the name of our watcher's program.
const watcherProgram = "ovn-k8s-watcher"

// contenders are ours and the yardstick, in this order. The yardstick is the minimal watcher, or with -beside the
// watcher of another build.
func (b *bench) contenders() [2]contender {
	ours := contender{"ours", b.programs.Path(watcherProgram), watcherArgs}
	if b.beside != "" {
		return [2]contender{ours, {"yardstick", filepath.Join(b.beside, watcherProgram), watcherArgs}}
	}
	return [2]contender{ours, {"yardstick", b.programs.Path("minimal"), minimalArgs}}
}

// watcherArgs are the options of our watcher, as in the documentation.
func watcherArgs(f *field) []string {
	return []string{
		"--overlay", "--ovn-nb=" + f.central.NB, "--k8s-api-server=" + f.kube.URL, "--k8s-api-token-file=" + f.tokenFile(),
		"--k8s-ca-certificate=" + f.kube.CAFile, "--config-file=/dev/null", "--unixctl=" + f.control(),
		"--log-file=" + filepath.Join(f.dir, "ovn-k8s-watcher.log"), "-vfile:info", "-vconsole:emer",
	}
}

func minimalArgs(f *field) []string {
	return []string{"-nb", strings.TrimPrefix(f.central.NB, "unix:"), "-server", f.kube.URL, "-token-file", f.tokenFile(), "-ca", f.kube.CAFile}
}

// control is the control socket of our watcher.
func (f *field) control() string { return filepath.Join(f.dir, "watcher.ctl") }

// A runner is a running contender.
type runner struct {
	contender
	programs.Process
	lifeline *reaper.Process
}

// start starts a contender.
func (f *field) start(ctx context.Context, b *bench, c contender) (*runner, error) {
	p, err := reaper.Start(nil, c.program, c.args(f)...)
	if err != nil {
		return nil, err
	}
	r := &runner{contender: c, lifeline: p}
	err = await(ctx, patience, c.name, func() (err error) {
		if p.Err() != nil {
			return nil // said below
		}
		r.Process, err = programs.Find(c.name, func(exe string, _ []string) bool { return exe == c.program })
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

// startReady starts a contender and returns when it has served a few pods.
func (f *field) startReady(ctx context.Context, b *bench, c contender) (*runner, error) {
	r, err := f.start(ctx, b, c)
	if err != nil {
		return nil, err
	}
	if _, err := f.create(ctx, 10); err != nil {
		return nil, r.failed(err)
	}
	return r, nil
}

// failed stops a contender without results, and returns the reason.
func (r *runner) failed(err error) error {
	r.lifeline.Stop()
	return fmt.Errorf("%s: %w\n%s", r.name, err, r.lifeline.Output())
}

// stop kills the contender.
func (r *runner) stop() { r.lifeline.Stop() }

// warmUp has the control plane serve some uncounted pods: its first ones are slower.
func (f *field) warmUp(ctx context.Context, b *bench) error {
	r, err := f.start(ctx, b, b.contenders()[1])
	if err != nil {
		return err
	}
	b.say("a burst that does not count")
	if _, err := f.create(ctx, nodes*5); err != nil {
		return r.failed(err)
	}
	r.stop()
	return f.clear(ctx)
}

// ours runs a measurement of our watcher alone. It may leave pods on the ground.
func (b *bench) ours(ctx context.Context, measure func(*field, *runner) error) error {
	f, err := b.ground(ctx)
	if err != nil {
		return err
	}
	r, err := f.startReady(ctx, b, b.contenders()[0])
	if err != nil {
		return err
	}
	if err := measure(f, r); err != nil {
		return r.failed(err)
	}
	r.stop()
	return f.clear(ctx)
}

// turns runs a measurement of all contenders in turn, b.rounds times. Each begins with the few pods of its start
// only, and with ovn-northd at rest.
func (b *bench) turns(ctx context.Context, f *field, measure func(*runner) error) error {
	for round := range b.rounds {
		for _, c := range b.contenders() {
			r, err := f.startReady(ctx, b, c)
			if err != nil {
				return err
			}
			if err := f.settle(ctx); err != nil {
				return r.failed(err)
			}
			b.say("round %d of %d: %s", round+1, b.rounds, c.name)
			if err := measure(r); err != nil {
				return r.failed(err)
			}
			r.stop()
			if err := f.clear(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
