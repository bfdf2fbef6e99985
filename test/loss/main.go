// Loss counts connections failing while the pods, nodes or daemons behind a Service change: 200 new TCP connections
// a second, by ClusterIP and NodePort, from pods and from outside, each asked once.
//
//	loss [-run REGEXP] [-rounds N] [-rate N] [-established N] [-clients N] [-daemons REGEXP] [-set KEY=VALUE] [-absence TIME] [-evidence DIR] [-v]
//
// Figures are
//
//	rollout     a Deployment of three replicas with a preStop hook of 5 s is rolled out
//	abrupt      the same without the hook
//	controller  ovn-controller is killed and started again, on each kind of node
//	switch      ovs-vswitchd and ovsdb-server are killed and started again, by default after a second
//	gateway     one of three gateways is cut off
//	affinity    the first connection of each of 200 clients, see -clients, with ClientIP affinity
//	restarts    each daemon is killed and started again, one at a time and all together, beside 200 established connections
//
// A failed connection is printed with its endpoint, the entries of Open vSwitch's connection tracking, and the
// API's history of the endpoint.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"ovn-k8s/test/world"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "loss: %v\n", err)
		os.Exit(1)
	}
}

// options are the options of the command line.
type options struct {
	rounds, rate    int
	established     int
	affinityClients int            // with ClientIP affinity
	only            *regexp.Regexp // names of daemons for restarts
	set             string         // KEY=VALUE in external_ids of all nodes
	absence         time.Duration
	evidence, bin   string // directories
	out             io.Writer
	say             func(format string, args ...any)
}

// A figure is a disturbance with a count of the connections lost during it.
type figure struct {
	name    string
	rounds  int // unless the command line says
	rate    int // likewise
	measure func(context.Context, *field) error
}

func figures() []figure {
	return []figure{
		{"rollout", 100, 200, func(ctx context.Context, f *field) error { return f.rollouts(ctx, preStop) }},
		{"abrupt", 100, 200, func(ctx context.Context, f *field) error { return f.rollouts(ctx, 0) }},
		{"controller", 30, 200, controllers},
		{"switch", 10, 200, switches},
		{"gateway", 5, 200, gateways},
		{"affinity", 3, 200, affinity},
		{"restarts", 3, 100, restarts},
	}
}

func run(args []string, out, progress io.Writer) error {
	o := options{out: out}
	flags := flag.NewFlagSet("loss", flag.ContinueOnError)
	pattern := flags.String("run", "", "measure only the figures whose names match the `regexp`")
	flags.DurationVar(&o.absence, "absence", time.Second, "how `long` a killed Open vSwitch is away")
	flags.StringVar(&o.evidence, "evidence", "", "`directory` for what the nodes know while a connection waits")
	daemons := flags.String("daemons", "", "restart only the daemons whose names match the `regexp`")
	flags.StringVar(&o.set, "set", "", "`KEY=VALUE` for external_ids of all nodes, before the measurement")
	verbose := flags.Bool("v", false, "print each step of the cluster")
	flags.IntVar(&o.rounds, "rounds", 0, "`number` of rounds of each figure, if not its own")
	flags.IntVar(&o.rate, "rate", 0, "`number` of new connections a second, if not the figure's own")
	flags.IntVar(&o.established, "established", 200, "`number` of established connections during restarts")
	flags.IntVar(&o.affinityClients, "clients", 200, "`number` of clients of the figure affinity")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := regexp.Compile(*pattern)
	if err != nil {
		return err
	}
	if o.only, err = regexp.Compile(*daemons); err != nil {
		return err
	}
	if missing := world.Missing(); missing != "" {
		return fmt.Errorf("missing: %s: make prepare installs it", missing)
	}
	start := time.Now()
	o.say = func(format string, args ...any) {
		fmt.Fprintf(progress, "%8.3f %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	quiet := func(string) {}
	if *verbose {
		quiet = func(line string) { o.say("%s", line) }
	}
	o.bin, err = build(ctx)
	defer os.RemoveAll(o.bin)
	if err != nil {
		return err
	}
	return o.measure(ctx, chosen, quiet)
}

// measure measures the chosen figures, each in a cluster of its own.
func (o options) measure(ctx context.Context, chosen *regexp.Regexp, steps func(string)) (err error) {
	n := 0
	for _, fig := range figures() {
		if !chosen.MatchString(fig.name) {
			continue
		}
		n++
		own := o
		own.rounds, own.rate = cmp.Or(o.rounds, fig.rounds), cmp.Or(o.rate, fig.rate)
		f, failed := newField(ctx, fig.name, own, steps)
		if failed == nil {
			failed = fig.measure(ctx, f)
			f.close()
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("measuring %s: %w", fig.name, failed))
		}
		if ctx.Err() != nil {
			return err
		}
	}
	if n == 0 {
		return errors.New("-run matches no figure")
	}
	return err
}
