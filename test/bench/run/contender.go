package run

import (
	"context"
	"path/filepath"
	"strings"

	"ovn-k8s/test/bench/field"
)

// watcherProgram is the name of our watcher's program.
const watcherProgram = "ovn-k8s-watcher"

// Contenders are ours and the yardstick, in this order. The yardstick is the minimal watcher, or with -beside the
// watcher of another build.
func (b *Bench) Contenders() [2]field.Contender {
	ours := field.Contender{Name: "ours", Program: b.Programs.Path(watcherProgram), Args: watcherArgs}
	if b.Beside != "" {
		return [2]field.Contender{ours, {Name: "yardstick", Program: filepath.Join(b.Beside, watcherProgram), Args: watcherArgs}}
	}
	return [2]field.Contender{ours, {Name: "yardstick", Program: b.Programs.Path("minimal"), Args: minimalArgs}}
}

// watcherArgs are the options of our watcher, as in the documentation.
func watcherArgs(f *field.Field) []string {
	return []string{
		"--overlay", "--ovn-nb=" + f.Central.NB, "--k8s-api-server=" + f.Kube.URL, "--k8s-api-token-file=" + f.TokenFile(),
		"--k8s-ca-certificate=" + f.Kube.CAFile, "--config-file=/dev/null", "--unixctl=" + f.Control(),
		"--log-file=" + filepath.Join(f.Dir, "ovn-k8s-watcher.log"), "-vfile:info", "-vconsole:emer",
	}
}

func minimalArgs(f *field.Field) []string {
	return []string{"-nb", strings.TrimPrefix(f.Central.NB, "unix:"), "-server", f.Kube.URL, "-token-file", f.TokenFile(), "-ca", f.Kube.CAFile}
}

// warmUp has the control plane serve some uncounted pods: its first ones are slower.
func warmUp(ctx context.Context, b *Bench, f *field.Field) error {
	r, err := f.Start(ctx, b.Contenders()[1])
	if err != nil {
		return err
	}
	b.Say("a burst that does not count")
	if _, err := f.Create(ctx, field.Nodes*5); err != nil {
		return r.Failed(err)
	}
	r.Stop()
	return f.Clear(ctx)
}

// Ours runs a measurement of our watcher alone. It may leave pods on the ground.
func (b *Bench) Ours(ctx context.Context, measure func(*field.Field, *field.Runner) error) error {
	f, err := b.Ground(ctx)
	if err != nil {
		return err
	}
	r, err := f.StartReady(ctx, b.Contenders()[0])
	if err != nil {
		return err
	}
	if err := measure(f, r); err != nil {
		return r.Failed(err)
	}
	r.Stop()
	return f.Clear(ctx)
}

// Turns runs a measurement of all contenders in turn, b.rounds times. Each begins with the few pods of its start
// only, and with ovn-northd at rest.
func (b *Bench) Turns(ctx context.Context, f *field.Field, measure func(*field.Runner) error) error {
	for round := range b.Rounds {
		for _, c := range b.Contenders() {
			r, err := f.StartReady(ctx, c)
			if err != nil {
				return err
			}
			if err := f.Settle(ctx); err != nil {
				return r.Failed(err)
			}
			b.Say("round %d of %d: %s", round+1, b.Rounds, c.Name)
			if err := measure(r); err != nil {
				return r.Failed(err)
			}
			r.Stop()
			if err := f.Clear(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}
