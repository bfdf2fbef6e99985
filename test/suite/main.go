// Suite runs all tests, or those of the packages in its arguments with names that
// match -run; it is the program of "make test". The packages with the longest tests
// come first. A failed test is run once more at the end of these, or of the others. If
// it passes then, a line at the end names it.
//
// The exit status is 1 if a test fails twice, if more than four tests fail, if a
// package cannot be built, or if something other than a test fails, such as a
// TestMain (gotestsum alone accepts a package if none of its tests fails the second
// time).
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	pattern := flag.String("run", "", "run only tests with names that match this regular expression")
	flag.Parse()
	if err := runAll(*pattern, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "suite: %v\n", err)
		os.Exit(1)
	}
}

// tool builds gotestsum, of the version in go.mod, and returns its path.
func tool() (string, error) {
	cmd := exec.Command("go", "tool", "-n", "gotestsum")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building gotestsum: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// longest are the packages with the longest tests: they start whole clusters.
var longest = []string{"ovn-k8s/test/e2e", "ovn-k8s/test/ovnkube"}

// runAll runs the tests of packages, by default of all: first of the longest, two at a time, and then of the others, three
// at a time. Clusters start too slowly beside two others; other tests wait most of the time.
func runAll(pattern string, packages []string) error {
	gotestsum, err := tool()
	if err != nil {
		return err
	}
	if len(packages) > 0 {
		return run(gotestsum, ".", os.Stdout, pattern, 2, packages)
	}
	out, err := exec.Command("go", "list", "./...").Output()
	if err != nil {
		return fmt.Errorf("listing all packages: %w", err)
	}
	others := slices.DeleteFunc(strings.Fields(string(out)), func(p string) bool { return slices.Contains(longest, p) })
	return errors.Join(run(gotestsum, ".", os.Stdout, pattern, 2, longest), run(gotestsum, ".", os.Stdout, pattern, 3, others))
}

// run runs the tests of the module in a directory: of packages, some at a time, with names matching a regular expression. Go
// keeps no results: it would not know that they are of another release of Open vSwitch or OVN.
func run(gotestsum, dir string, out io.Writer, pattern string, atATime int, packages []string) error {
	tmp, err := os.MkdirTemp("", "suite")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, "events")
	cmd := exec.Command(gotestsum, "--format=pkgname-and-test-fails", "--jsonfile="+file,
		"--rerun-fails=1", "--rerun-fails-max-failures=4", "--rerun-fails-run-root-test",
		"--packages="+strings.Join(packages, " "), "--", fmt.Sprintf("-p=%d", atATime), "-timeout=40m", "-run="+pattern, "-count=1")
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	failed := cmd.Run()
	events, err := os.Open(file)
	if err != nil {
		return errors.Join(failed, err)
	}
	defer events.Close()
	r, err := read(events)
	if err != nil {
		return errors.Join(failed, err)
	}
	for _, name := range r.passedLater {
		fmt.Fprintf(out, "\n*** passed only the second time: %s\n", name)
	}
	if len(r.broken) > 0 {
		failed = errors.Join(failed, fmt.Errorf("failed outside of its tests: %s", strings.Join(r.broken, " ")))
	}
	return failed
}

// An event is one line of go test -json (go doc test2json).
type event struct{ Action, Package, Test string }

// A result is the summary of the events of all runs.
type result struct {
	passedLater []string // tests with a failure and then a pass
	broken      []string // packages with a failure other than a failed test
}

// read reads the events of all runs. The events of a package's second run follow
// those of its first.
func read(events io.Reader) (result, error) {
	var r result
	failed := map[string]bool{}            // of both runs, by package and test
	open := map[string]map[string]string{} // of this run, by package: its tests, "" while they run
	for d := json.NewDecoder(events); ; {
		var e event
		if err := d.Decode(&e); err == io.EOF {
			return r, nil
		} else if err != nil {
			return r, fmt.Errorf("reading the events of the tests: %w", err)
		}
		name := e.Package + "." + e.Test
		switch {
		case e.Test == "" && e.Action == "start":
			open[e.Package] = map[string]string{}
		case e.Test == "" && e.Action == "fail":
			if !explained(open[e.Package]) {
				r.broken = append(r.broken, e.Package)
			}
		case e.Test == "" || open[e.Package] == nil:
		case e.Action == "run":
			open[e.Package][e.Test] = ""
		case e.Action == "pass" || e.Action == "skip" || e.Action == "fail":
			open[e.Package][e.Test] = e.Action
			if e.Action == "pass" && failed[name] && !strings.Contains(e.Test, "/") {
				r.passedLater = append(r.passedLater, name)
			}
			failed[name] = e.Action == "fail"
		}
	}
}

// explained reports whether failed tests explain the failure of a package: at least
// one failed, and all have ended.
func explained(tests map[string]string) bool {
	ends := slices.Collect(maps.Values(tests))
	return slices.Contains(ends, "fail") && !slices.Contains(ends, "")
}
