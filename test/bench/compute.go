package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"ovn-k8s/test/bench/programs"
	"ovn-k8s/test/bench/report"
	"ovn-k8s/test/bench/run"
)

// scalePackage has the benchmark of the rows of very many policies and pods. It is a Go benchmark, since it needs
// only memory.
const scalePackage = programs.ModulePath + "/lib/desired"

// measureCompute runs the benchmark, each round in a process of its own.
func measureCompute(ctx context.Context, b *run.Bench) error {
	b.CloseField() // the field needs memory and at times a CPU
	values := map[string][]float64{}
	for round := range b.Rounds {
		b.Say("compute: round %d of %d", round+1, b.Rounds)
		cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkScale$", "-benchtime", "1x", scalePackage)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%v: %w: %s", cmd, err, out)
		}
		if err := readMetrics(string(out), "BenchmarkScale", values); err != nil {
			return err
		}
	}
	name := "25000 namespaces, 100000 pods, 75000 policies: "
	b.Report.Alone(name+"nothing to all rows", "s", 4, values["s/all"]...).Explain("%.0f rows, the pods' ports among them, in memory", report.Median(values["rows"]))
	b.Report.Alone(name+"memory", "MB", 1000, values["MB"]...).Explain("%.0f MB from the system at the most", report.Median(values["MB-peak"]))
	b.Report.Alone(name+"one label of a pod changes", "µs", 1000, values["µs/label"]...)
	return nil
}

// readMetrics reads a line of a Go benchmark: its name, the number of runs, and then values with units.
func readMetrics(out, name string, values map[string][]float64) error {
	for l := range strings.Lines(out) {
		words := strings.Fields(l)
		if !strings.HasPrefix(l, name) || len(words) < 4 {
			continue
		}
		for i := 2; i+1 < len(words); i += 2 {
			v, err := strconv.ParseFloat(words[i], 64)
			if err != nil {
				return fmt.Errorf("reading %q: %w", l, err)
			}
			values[words[i+1]] = append(values[words[i+1]], v)
		}
		return nil
	}
	return fmt.Errorf("the benchmark says nothing: %q", out)
}
