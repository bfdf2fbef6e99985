package gobench

import (
	"context"

	"ovn-k8s/lib/config"
	"ovn-k8s/test/bench/programs"
	"ovn-k8s/test/bench/report"
	"ovn-k8s/test/bench/run"
)

// firewallPackage has the benchmark of a host's rules.
const firewallPackage = programs.ModulePath + "/lib/firewall"

// MeasureFirewall runs the benchmark of the rules of 10 000 Services in both programs, each round in a process of its own.
func MeasureFirewall(ctx context.Context, b *run.Bench) error {
	b.CloseField() // the field needs a CPU at times
	values := map[string]map[string][]float64{config.NFTables: {}, config.IPTables: {}}
	for round := range b.Rounds {
		b.Say("firewall: round %d of %d", round+1, b.Rounds)
		out, err := benchmark(ctx, "BenchmarkServices", firewallPackage, nil)
		if err != nil {
			return err
		}
		for program := range values {
			if err := readMetrics(out, "BenchmarkServices/"+program, values[program]); err != nil {
				return err
			}
		}
	}
	ours, yardstick := values[config.NFTables], values[config.IPTables]
	const name = "rules of 10000 Services, nftables beside iptables: "
	b.Report.Beside(name+"nothing to all rules", "s", 0, ours["s/made"], yardstick["s/made"])
	b.Report.Beside(name+"start of a process, nothing changed", "s", 0, ours["s/start"], yardstick["s/start"]).Explain("the aim is 3 s")
	for _, of := range []struct{ kind, what string }{{"affinity", "with session affinity"}, {"local", "of endpoints here"}, {"ovn", "balanced by OVN"}} {
		b.Report.Beside(name+"one endpoint of 100 of a Service "+of.what, "ms", 0, ours["ms/"+of.kind], yardstick["ms/"+of.kind]).
			Explain("%.0f changes, iptables %.0f; the aim is 20 ms and 10 changes", report.Median(ours["changes/"+of.kind]), report.Median(yardstick["changes/"+of.kind]))
	}
	return nil
}
