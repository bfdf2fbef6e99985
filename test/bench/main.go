// Bench measures the speed of the suite, beside yardsticks on the same machine in the same run: a minimal watcher
// (./minimal) and the reference CNI plugin ptp.
//
//	bench [-run REGEXP] [-beside DIR] [-rounds N] [-pods N] [-many N] [-settle TIME] [-churn TIME] [-profile DIR] [-json]
//
// Figures, a quarter of an hour in all, are
//
//	burst        a burst of pods: rate, latency, transactions, CPU time of ovn-northd
//	single       one pod at a time: latency
//	services     many Services at once, and changes of endpoints
//	policies     many NetworkPolicies at once, and a burst of pods under them
//	scale        many pods: the watcher's memory, comparisons of all rows, restarts
//	idle         no events about the watcher: CPU time
//	churn        pods come and go for a while: growth of times and memory
//	compute      the rows of very many policies and pods, in memory
//	firewall     the rules of a host for 10 000 Services: nftables beside iptables
//	events       each kind of event in a large cluster of gateways
//	storm        minion-init on very many nodes at once, its part on the Northbound database
//	cni          ADD of the CNI plugin: latency and its stages
//	cniserver    ADD by the CNI server of ovnkube, beside the plugin; CPU time of the shim
//	connections  TCP connections by Services, beside connections to a pod itself
//
// With -beside, the yardstick of burst, single, services, policies and cni is another build of the same programs, as of
// an earlier commit.
//
// Rounds of both sides take turns, so that other work of the machine slows both: read the ratios. The times depend on
// the machine, so nothing here fails because it is slow; it fails if something does not work.
package main

import (
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

	"ovn-k8s/test/bench/field"
	"ovn-k8s/test/bench/programs"
	"ovn-k8s/test/bench/report"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/world"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

// A bench is one run.
type bench struct {
	rounds, pods, many int
	settle, churn      time.Duration
	profile            string // a directory, or empty
	beside             string // the directory of another build as the yardstick, or empty
	say                sayer
	report             *report.Report
	programs           *programs.Programs
	field              *field.Field // nil before the first figure on it
}

// A figure is a measurement, or several on the same field.
type figure struct {
	name    string
	measure func(context.Context, *bench) error
}

func figures() []figure {
	return []figure{
		{"burst", measureBurst},
		{"single", measureSingle},
		{"services", measureServices},
		{"policies", measurePolicies},
		{"scale", measureScale},
		{"idle", measureIdle},
		{"churn", measureChurn},
		{"compute", measureCompute},
		{"firewall", measureFirewall},
		{"events", measureEvents},
		{"storm", measureStorm},
		{"cni", measureCNI},
		{"cniserver", measureCNIServer},
		{"connections", measureConnections},
	}
}

func run(args []string, out, progress io.Writer) error {
	b := &bench{say: newSayer(progress)}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	pattern := flags.String("run", "", "measure only the figures whose names match the `regexp`")
	asJSON := flags.Bool("json", false, "print the results as JSON")
	flags.IntVar(&b.rounds, "rounds", 3, "`number` of rounds of each side")
	flags.IntVar(&b.pods, "pods", 1000, "`number` of pods of a burst")
	flags.IntVar(&b.many, "many", 10000, "`number` of pods of the figure scale")
	flags.DurationVar(&b.settle, "settle", settleTime, "how `long` memory must not have fallen to count as settled")
	flags.DurationVar(&b.churn, "churn", time.Minute, "how `long` pods come and go")
	flags.StringVar(&b.beside, "beside", "", "the programs in the `directory`, of another build, are the yardstick")
	flags.StringVar(&b.profile, "profile", "", "write profiles of events into the `directory`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := regexp.Compile(*pattern)
	if err != nil {
		return err
	}
	if b.rounds < 1 || b.pods < 1 || b.many < 1 || b.many > field.Nodes*field.PodsPerNode || b.pods > field.Nodes*field.PodsPerNode {
		return fmt.Errorf("-rounds, -pods and -many must be at least 1, and at most %d pods fit", field.Nodes*field.PodsPerNode)
	}
	for _, missing := range []string{kubetest.Missing(), ovntest.Missing()} {
		if missing != "" {
			return fmt.Errorf("%s is missing: make prepare installs it", missing)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = b.measure(ctx, chosen)
	if b.report == nil || len(b.report.Results) == 0 {
		return err
	}
	if *asJSON {
		return errors.Join(err, b.report.PrintJSON(out))
	}
	return errors.Join(err, b.report.Print(out))
}

// measure measures the chosen figures. The error names the failed ones; the report has the others.
func (b *bench) measure(ctx context.Context, chosen *regexp.Regexp) (err error) {
	b.report = report.New()
	b.report.Databases = field.FastDir()
	b.say("building the programs")
	if b.programs, err = programs.Build(ctx, b.beside); err != nil {
		return err
	}
	defer b.programs.Close()
	if b.beside != "" {
		b.beside = b.programs.Beside()
	}
	defer b.closeField()
	n := 0
	for _, f := range figures() {
		if !chosen.MatchString(f.name) {
			continue
		}
		n++
		if failed := f.measure(ctx, b); failed != nil {
			failed = fmt.Errorf("measuring %s: %w", f.name, failed)
			err = errors.Join(err, failed)
			b.say("%v", failed)
			b.closeField() // the next one needs a sound field
		}
		if ctx.Err() != nil {
			break
		}
	}
	if n == 0 {
		return errors.New("-run matches no figure")
	}
	b.report.Finish()
	return err
}

// ground returns the field shared by the figures of the watcher.
func (b *bench) ground(ctx context.Context) (*field.Field, error) {
	if b.field != nil {
		return b.field, nil
	}
	f, err := field.NewField(ctx, b.say)
	if err != nil {
		return nil, err
	}
	b.field = f
	return f, warmUp(ctx, b, f)
}

func (b *bench) closeField() {
	if b.field != nil {
		b.field.Close()
		b.field = nil
	}
}

// world makes a whole cluster of two hosts, with all programs installed. The caller must call end.
func (b *bench) world(ctx context.Context, figure string) (w *world.World, end func(), err error) {
	if missing := world.Missing(); missing != "" {
		return nil, nil, fmt.Errorf("%s is missing", missing)
	}
	b.closeField() // one control plane is enough
	o := world.KubeOptions()
	o.Without, o.Unlimited, o.Log = []string{"kube-scheduler"}, true, func(line string) { b.say("%s: %s", figure, line) }
	kube, err := kubetest.Start(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	if w, err = world.New(ctx, world.Options{Kube: kube, Minions: 1, Log: o.Log}); err != nil {
		kube.Close()
		return nil, nil, err
	}
	end = func() {
		w.Close()
		kube.Close()
	}
	if err := w.Install(ctx, b.programs.Dir); err != nil {
		end()
		return nil, nil, err
	}
	return w, end, nil
}

// A sayer prints a line of progress, with the seconds since the start.
type sayer func(format string, args ...any)

func newSayer(out io.Writer) sayer {
	began := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(out, "%6.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}
