package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// The results of tests. Others did not run.
const (
	passed  = "PASS"
	failed  = "FAIL"
	skipped = "SKIP"
)

// okEnd is the end of a job whose program succeeded.
const okEnd = "ok"

// An outcome is the result of a test, and the commit at which it ran.
type outcome struct{ Result, Commit string }

// A report collects the results of tests from the output of a machine.
type report struct {
	say sayer
	// results are by package and test, such as "test/e2e TestPolicies".
	results map[string]outcome
	planned []string
	commit  string // "" if the source has changes: then no results are kept
	file    string // of the results; "" keeps none
	kept    map[string]outcome

	turn    turn
	running string   // the test that runs
	output  []string // of it
	failing bool     // a test of this turn failed
	ended   bool     // the machine's job has ended
}

// load reads the results of earlier runs; keep adds those of this one.
func (r *report) load(file, commit string) error {
	r.file, r.commit = file, commit
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &r.kept); err != nil {
		return fmt.Errorf("reading the results of earlier runs, %s: %w: remove it", file, err)
	}
	return nil
}

// resume continues earlier runs at the commits accepted by counts: open leaves out their passes.
func (r *report) resume(counts func(commit string) bool) {
	r.results = map[string]outcome{}
	for name, o := range r.kept {
		if o.Result == passed && counts(o.Commit) {
			r.results[name] = o
		}
	}
}

// keep writes the results to the file.
func (r *report) keep() error {
	if r.file == "" || r.commit == "" {
		return nil
	}
	if r.kept == nil {
		r.kept = map[string]outcome{}
	}
	maps.Copy(r.kept, r.results)
	text, err := json.MarshalIndent(r.kept, "", " ")
	if err != nil {
		return err
	}
	return replace(r.file, text, 0o644)
}

// open returns the tests of a turn without a pass.
func (r *report) open(t turn) (tests []string) {
	for _, test := range t.tests {
		name, _, _ := strings.Cut(test, "/")
		r.planned = append(r.planned, t.pkg+" "+name)
		if r.results[t.pkg+" "+name].Result != passed {
			tests = append(tests, test)
		}
	}
	return tests
}

// begin begins a turn.
func (r *report) begin(t turn) {
	r.turn, r.running, r.output, r.failing, r.ended = t, "", nil, false, false
}

var resultLine = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (\S+) \((\S+)\)$`)

// line takes a line of the machine's output.
func (r *report) line(line string) {
	end, isEnd := strings.CutPrefix(line, endMark)
	started, isRun := strings.CutPrefix(line, "=== RUN   ")
	result := resultLine.FindStringSubmatch(line)
	switch {
	case isEnd:
		r.end(end)
	case isRun && !strings.Contains(started, "/"):
		r.running, r.output = started, nil
	case result != nil:
		r.set(result[2], result[1], result[3])
	case r.turn.program() || r.running == "":
		r.say("| %s", line)
	default:
		r.output = append(r.output, line)
	}
}

// set records the result of a test of this turn. Output comes with a failure.
func (r *report) set(test, result, took string) {
	if r.results == nil {
		r.results = map[string]outcome{}
	}
	r.results[r.turn.pkg+" "+test] = outcome{result, r.commit}
	r.failing = r.failing || result == failed
	if result != passed {
		for _, line := range r.output {
			r.say("| %s", line)
		}
	}
	r.say("%s %s %s %s", result, r.turn.pkg, test, took)
	r.running, r.output = "", nil
}

// end takes the end of the job.
func (r *report) end(how string) {
	r.ended = true
	switch {
	case r.turn.program() && how == okEnd:
		r.set(r.turn.tests[0], passed, "")
	case r.turn.program():
		r.set(r.turn.tests[0], failed, how)
	case r.running != "":
		r.set(r.running, failed, how)
	case how != okEnd && !r.failing:
		r.set("TestMain", failed, how)
	}
}

// finish ends a turn.
func (r *report) finish() {
	if err := r.keep(); err != nil {
		r.say("the results are not kept: %v", err)
	}
}

// sum prints the results. Its error says whether something failed or did not run.
func (r *report) sum() error {
	counts := map[string]int{}
	names := slices.Concat(r.planned, slices.Collect(maps.Keys(r.results)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		o := r.results[name]
		result := cmp.Or(o.Result, "none")
		counts[result]++
		if o.Commit != r.commit && o.Commit != "" {
			name += " (at " + o.Commit[:min(len(o.Commit), 12)] + ")"
		}
		fmt.Printf("%-4s  %s\n", result, name)
	}
	fmt.Printf("%d passed, %d failed, %d skipped, %d not run, on the kernel's datapath\n", counts[passed], counts[failed], counts[skipped], counts["none"])
	if counts[failed]+counts["none"] > 0 {
		return errors.New("not everything passed")
	}
	return nil
}
