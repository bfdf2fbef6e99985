// Package gobench measures with Go benchmarks of our packages, each round in a process of its own.
package gobench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// benchmark runs a benchmark of a package once, with flags and variables in addition, and returns its output.
func benchmark(ctx context.Context, name, pkg string, flags []string, env ...string) (string, error) {
	args := append([]string{"test", "-run", "^$", "-bench", "^" + name + "$", "-benchtime", "1x", "-timeout", "1h"}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%v: %w: %s", cmd, err, out)
	}
	return string(out), nil
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
