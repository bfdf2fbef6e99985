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
//	node         memory of ovnkube -init-node with 100 pods, in a cluster of 10 000 pods and 500 Services
//	connections  TCP connections by Services, beside connections to a pod itself
//	throughput   CPU time of TCP between pods and by Services, beside a Linux bridge and a tunnel without Open vSwitch
//
// and one of half an hour, measured only with -run full:
//
//	full         a watcher process in the largest cluster: memory, and its restart
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
	"ovn-k8s/test/bench/gobench"
	"ovn-k8s/test/bench/hosts"
	"ovn-k8s/test/bench/programs"
	"ovn-k8s/test/bench/report"
	"ovn-k8s/test/bench/run"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/ovntest"
)

func main() {
	if err := measureChosen(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

// A figure is a measurement, or several on the same field.
type figure struct {
	name    string
	measure func(context.Context, *run.Bench) error
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
		{"compute", gobench.MeasureCompute},
		{"firewall", gobench.MeasureFirewall},
		{"events", gobench.MeasureEvents},
		{"storm", gobench.MeasureStorm},
		{"cni", hosts.MeasureCNI},
		{"cniserver", hosts.MeasureCNIServer},
		{"node", hosts.MeasureNode},
		{"connections", hosts.MeasureConnections},
		{"throughput", hosts.MeasureThroughput},
		{"full", measureFull},
	}
}

func measureChosen(args []string, out, progress io.Writer) error {
	b := &run.Bench{Say: run.NewSayer(progress)}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	pattern := flags.String("run", "", "measure only the figures whose names match the `regexp`")
	asJSON := flags.Bool("json", false, "print the results as JSON")
	flags.IntVar(&b.Rounds, "rounds", 3, "`number` of rounds of each side")
	flags.IntVar(&b.Pods, "pods", 1000, "`number` of pods of a burst")
	flags.IntVar(&b.Many, "many", 10000, "`number` of pods of the figure scale")
	flags.DurationVar(&b.Settle, "settle", settleTime, "how `long` memory must not have fallen to count as settled")
	flags.DurationVar(&b.Churn, "churn", time.Minute, "how `long` pods come and go")
	flags.StringVar(&b.Beside, "beside", "", "the programs in the `directory`, of another build, are the yardstick")
	flags.StringVar(&b.Profile, "profile", "", "write profiles of events into the `directory`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := regexp.Compile(*pattern)
	if err != nil {
		return err
	}
	if b.Rounds < 1 || b.Pods < 1 || b.Many < 1 || b.Many > field.Nodes*field.PodsPerNode || b.Pods > field.Nodes*field.PodsPerNode {
		return fmt.Errorf("-rounds, -pods and -many must be at least 1, and at most %d pods fit", field.Nodes*field.PodsPerNode)
	}
	for _, missing := range []string{kubetest.Missing(), ovntest.Missing()} {
		if missing != "" {
			return fmt.Errorf("%s is missing: make prepare installs it", missing)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = measure(ctx, b, chosen)
	if b.Report == nil || len(b.Report.Results) == 0 {
		return err
	}
	if *asJSON {
		return errors.Join(err, b.Report.PrintJSON(out))
	}
	return errors.Join(err, b.Report.Print(out))
}

// measure measures the chosen figures. The error names the failed ones; the report has the others.
func measure(ctx context.Context, b *run.Bench, chosen *regexp.Regexp) (err error) {
	b.Report = report.New()
	b.Report.Databases = field.FastDir()
	b.Say("building the programs")
	if b.Programs, err = programs.Build(ctx, b.Beside); err != nil {
		return err
	}
	defer b.Programs.Close()
	if b.Beside != "" {
		b.Beside = b.Programs.Beside()
	}
	defer b.CloseField()
	n := 0
	for _, f := range figures() {
		if !chosen.MatchString(f.name) || f.name == "full" && chosen.MatchString("") {
			continue
		}
		n++
		if failed := f.measure(ctx, b); failed != nil {
			failed = fmt.Errorf("measuring %s: %w", f.name, failed)
			err = errors.Join(err, failed)
			b.Say("%v", failed)
			b.CloseField() // the next one needs a sound field
		}
		if ctx.Err() != nil {
			break
		}
	}
	if n == 0 {
		return errors.New("-run matches no figure")
	}
	b.Report.Finish()
	return err
}
