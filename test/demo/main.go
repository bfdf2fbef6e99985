// Demo starts a complete cluster on this machine, shows the connectivity of its
// pods, and removes it again:
//
//	demo         up, show, down; exit status 0 if everything works
//	demo down    remove the cluster that KEEP=1 left up
//
// With KEEP=1 in the environment a background process keeps the cluster up. All
// other processes end with it. With OVNKUBE=1, ovnkube builds the cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"ovn-k8s/test/world"
)

// timeout bounds the start and the test of a cluster, including the first build of
// the control plane.
const timeout = 20 * time.Minute

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	bin := flags.String("bin", "bin", "`directory` of the suite's programs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	say := newSayer(out)
	switch command := flags.Arg(0); {
	case flags.NArg() > 1:
		return fmt.Errorf("unexpected argument %q", flags.Arg(1))
	case command == "down":
		return down(ctx, say)
	case command == keeper:
		return keep(ctx, *bin, say)
	case command != "":
		return fmt.Errorf("unknown command %q: want none or down", command)
	}
	if what := world.Missing(); what != "" {
		return fmt.Errorf("missing: %s", what)
	}
	if os.Getenv("KEEP") == "1" {
		return detach(ctx, *bin, say)
	}
	return once(ctx, *bin, say)
}

// once shows a cluster and removes it. After a failure it keeps the logs.
func once(ctx context.Context, bin string, say sayer) error {
	dir, err := os.MkdirTemp("", "ovn-k8s-demo")
	if err != nil {
		return err
	}
	w, err := show(ctx, dir, bin, say)
	if w != nil {
		w.Close() // also collects the logs
	}
	if err != nil {
		say("everything removed but the logs in %s", dir)
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	say("everything removed: all is well")
	return nil
}

// A sayer prints a line of progress, with the seconds since the start.
type sayer func(format string, args ...any)

func newSayer(out io.Writer) sayer {
	began := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(out, "%6.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}

// errFailed means that connections failed; the tables show which.
var errFailed = errors.New("not everything works")
