// Kernel runs tests on the kernel's datapath, in a virtual machine: QEMU boots
// Debian's kernel, with Open vSwitch's module, over this machine's root file system.
// Or the machine is a user mode Linux, built from Debian's sources.
// It is the program of "make test-kernel". Programs and tests are built outside, and
// Kubernetes' control plane runs outside, where it is faster; everything else runs
// in the machine, whose writes are lost.
//
// The same program is the machine's first process, and stands in for go and kcluster
// there.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"ovn-k8s/test/build"
)

func main() {
	var err error
	switch name := filepath.Base(os.Args[0]); {
	case os.Getpid() == 1:
		err = boot()
	case name == "go":
		err = standIn(os.Args[1:])
	case name == "kcluster":
		err = askKube(os.Args[1:])
	case len(os.Args) == 2 && os.Args[1] == jobsCommand:
		err = runJobs()
	default:
		err = run(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "test-kernel: %v\n", err)
		os.Exit(1)
	}
}

// A place is the directories of a run. The machine has them at the same paths.
type place struct {
	source string // of the module
	work   string // everything made for the machine, of one run at a time
	// args are further arguments of programs, not of tests.
	args []string
	// userMode has the machine be a user mode Linux, not QEMU's.
	userMode bool
	// kernel is the file of a kernel's package, instead of Debian's current one.
	kernel string
}

func run(args []string) error {
	flags := flag.NewFlagSet("kernel", flag.ContinueOnError)
	least := flags.Bool("smoke", false, "only the demo, and a dozen policies of test/e2e")
	all := flags.Bool("all", false, "all packages of the kernel's datapath, except tests that passed at this commit before")
	since := flags.String("since", "", "with -all, except tests that passed at this `commit` or a later one, too")
	only := flags.String("run", "", "tests whose names match this regular `expression`; after a slash, one for subtests")
	pkg := flags.String("pkg", "", "comma-separated `packages`, such as test/e2e")
	minutes := flags.Int("minutes", 0, "start no machine after this `number` of minutes, and stop tests then")
	userMode := flags.Bool("usermode", false, "a user mode Linux, not QEMU: no CPU is emulated, system calls are slow")
	kernel := flags.String("kernel", "", "a kernel's package, with its modules, instead of this release's: a `file` of Debian's linux-image-*-cloud-amd64")
	programArgs := flags.String("args", "", "`arguments` of a program, such as test/loss")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p, err := places(ctx, *userMode, *kernel)
	if err != nil {
		return err
	}
	p.args = strings.Fields(*programArgs)
	unlock, err := build.Lock(filepath.Join(p.work, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	turns, err := plan(p.source, *least, *all, *only, *pkg)
	if err != nil {
		return err
	}
	say := newSayer()
	if err := p.prepare(ctx, say); err != nil {
		return err
	}
	r := &report{say: say}
	commit := p.commit(ctx)
	if err := r.load(p.path("results"), commit); err != nil {
		return err
	}
	if *all {
		r.resume(func(earlier string) bool { return p.counts(ctx, earlier, cmp.Or(*since, commit), commit) })
	}
	end := time.Now().Add(365 * 24 * time.Hour)
	if *minutes > 0 {
		end = time.Now().Add(time.Duration(*minutes) * time.Minute)
	}
	for _, t := range turns {
		if err := p.turn(ctx, t, r, end); err != nil {
			return errors.Join(err, r.sum())
		}
	}
	return r.sum()
}

// turn runs one package in a machine of its own, except tests that passed before.
func (p place) turn(ctx context.Context, t turn, r *report, end time.Time) error {
	t.tests = r.open(t)
	if len(t.tests) == 0 || time.Now().After(end) {
		return nil
	}
	job, err := p.build(ctx, t, r.say)
	if err != nil {
		return err
	}
	job.Timeout = min(job.Timeout, time.Until(end))
	r.begin(t)
	err = p.boot(ctx, job, r)
	r.finish()
	return err
}

// places returns the directories of a run. Each kernel has its own, with results of its own.
func places(ctx context.Context, userMode bool, kernel string) (place, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return place{}, fmt.Errorf("looking for the source: %w", err)
	}
	dir, err := build.Dir()
	if err != nil {
		return place{}, err
	}
	work := "kernel"
	switch {
	case userMode && kernel != "":
		return place{}, errors.New("a user mode Linux is built: give -kernel or -usermode")
	case userMode:
		work = "usermode"
	case kernel != "":
		if kernel, err = filepath.Abs(kernel); err != nil {
			return place{}, err
		}
		work += "-" + strings.TrimSuffix(filepath.Base(kernel), ".deb")
	}
	p := place{source: filepath.Dir(strings.TrimSpace(string(out))), work: filepath.Join(dir, work), userMode: userMode, kernel: kernel}
	return p, errors.Join(os.MkdirAll(p.path("bin"), 0o755), os.MkdirAll(p.path(kubeShare), 0o755))
}

// path is a path below the directory of work.
func (p place) path(parts ...string) string {
	return filepath.Join(append([]string{p.work}, parts...)...)
}

// commit names the state of the source, or is "" if it has changes.
func (p place) commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "-C", p.source, "describe", "--always", "--exclude=*", "--dirty", "--abbrev=40").Output()
	if err != nil || strings.Contains(string(out), "-dirty") {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// counts reports whether a result at a commit counts now: commit is since or descends from it, and now from commit.
func (p place) counts(ctx context.Context, commit, since, now string) bool {
	descends := func(from, to string) bool {
		return exec.CommandContext(ctx, "git", "-C", p.source, "merge-base", "--is-ancestor", from, to).Run() == nil
	}
	return now != "" && descends(since, commit) && descends(commit, now)
}

// A sayer prints a line of progress, with the seconds since the start.
type sayer func(format string, args ...any)

func newSayer() sayer {
	began := time.Now()
	return func(format string, args ...any) {
		fmt.Printf("%6.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}
