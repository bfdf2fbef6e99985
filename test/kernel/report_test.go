package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	benchprograms "ovn-k8s/test/bench/programs"
	"ovn-k8s/test/world"
)

func quiet(string, ...any) {}

// The results come from the output of a test binary and from the end of the job.
func TestResultsOfATurn(t *testing.T) {
	for _, tt := range []struct {
		name, output string
		want         map[string]string
	}{
		{"all", "=== RUN   TestA\n=== RUN   TestA/x\n    --- FAIL: TestA/x (0.10s)\n--- PASS: TestA (1.00s)\n=== RUN   TestB\n--- SKIP: TestB (0.00s)\n" + endMark + okEnd,
			map[string]string{"p TestA": passed, "p TestB": skipped}},
		{"a failure", "=== RUN   TestA\n--- FAIL: TestA (1.00s)\n" + endMark + "p.test: exit status 1", map[string]string{"p TestA": failed}},
		{"a test without end", "=== RUN   TestA\n--- PASS: TestA (1.00s)\n=== RUN   TestB\npanic: x\n" + endMark + "p.test: exit status 2",
			map[string]string{"p TestA": passed, "p TestB": failed}},
		{"no test", "cannot start\n" + endMark + "p.test: exit status 1", map[string]string{"p TestMain": failed}},
		{"a failure after all tests", "=== RUN   TestA\n--- PASS: TestA (1.00s)\nan abort\n" + endMark + "p.test: exit status 1",
			map[string]string{"p TestA": passed, "p TestMain": failed}},
	} {
		r := &report{say: quiet}
		r.begin(turn{pkg: "p"})
		for line := range strings.Lines(tt.output) {
			r.line(strings.TrimSuffix(line, "\n"))
		}
		got := map[string]string{}
		for name, o := range r.results {
			got[name] = o.Result
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || !r.ended {
			t.Errorf("%s: ended %v (-want +got)\n%s", tt.name, r.ended, diff)
		}
	}
}

// The demo is no test; it counts as one that ran.
func TestTheDemoIsOneResult(t *testing.T) {
	r := &report{say: quiet}
	r.open(smoke[0])
	r.begin(smoke[0])
	r.line(endMark + okEnd)
	if err := r.sum(); err != nil || len(r.results) != 1 {
		t.Errorf("%v, %v", r.results, err)
	}
}

// A later run leaves out passes at counted commits.
func TestALaterRunContinues(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results")
	all := turn{pkg: "p", tests: []string{"TestA", "TestB/x|y", "TestC"}}
	at := func(commit string) *report {
		r := &report{say: quiet}
		if err := r.load(file, commit); err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := at("one")
	first.begin(all)
	first.set("TestA", passed, "")
	first.set("TestB", failed, "")
	first.finish()
	changed := at("") // keeps nothing
	changed.begin(all)
	changed.set("TestC", passed, "")
	changed.finish()
	second := at("two")
	second.begin(all)
	second.set("TestC", passed, "")
	second.finish()
	for counted, want := range map[string][]string{"one": {"TestB/x|y", "TestC"}, "two": {"TestA", "TestB/x|y"}, "one two": {"TestB/x|y"}, "": all.tests} {
		r := at("two")
		r.resume(func(commit string) bool { return strings.Contains(counted, commit) })
		if diff := cmp.Diff(want, r.open(all)); diff != "" {
			t.Errorf("with %q (-want +got)\n%s", counted, diff)
		}
	}
}

// Results at a commit count from it on, not before it, nor in another line of commits.
func TestCommitsThatCount(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) string {
		out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v, %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q")
	commits := map[string]string{"": ""}
	for _, name := range []string{"one", "two", "three", "aside"} {
		if name == "aside" {
			git("checkout", "-q", commits["one"])
		}
		git("commit", "-q", "--allow-empty", "-m", name)
		commits[name] = git("rev-parse", "HEAD")
	}
	p := place{source: dir}
	for _, tt := range []struct {
		commit, since, now string
		want               bool
	}{
		{"two", "two", "two", true}, {"two", "one", "three", true}, {"one", "two", "three", false}, {"three", "one", "two", false},
		{"aside", "one", "three", false}, {"", "one", "three", false}, {"two", "one", "", false},
	} {
		if got := p.counts(t.Context(), commits[tt.commit], commits[tt.since], commits[tt.now]); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		least, all bool
		run, pkg   string
		turns      int
		has        string
	}{
		{least: true, turns: len(smoke), has: "^TestPolicies$/"},
		{turns: 3, has: "^demo OVNKUBE=1$"},
		{all: true, has: "^TestALostSYNCostsNoConnection$"},
		{run: "Plan", pkg: "test/kernel", turns: 1, has: "^TestPlan$"},
		{pkg: demo, turns: 2, has: "^demo OVNKUBE=1$"},
	} {
		turns, err := plan("../..", tt.least, tt.all, tt.run, tt.pkg)
		if err != nil || tt.turns > 0 && len(turns) != tt.turns || tt.all && len(turns) < len(packages) {
			t.Errorf("%+v: %d turns, %v", tt, len(turns), err)
		}
		if last := turns[len(turns)-1].pattern(); !strings.Contains(last, tt.has) {
			t.Errorf("%+v: %s", tt, last)
		}
	}
	if _, err := plan("../..", false, false, "TestNobodyWrote", ""); err == nil {
		t.Error("a choice without tests is no error")
	}
	for _, test := range usual()[1].tests {
		name, _, _ := strings.Cut(test, "/")
		if turns, err := plan("../..", false, false, "^"+name+"$", "test/e2e"); err != nil || len(turns) != 1 {
			t.Errorf("smoke: %v", err)
		}
	}
}

// The machine gets the programs for tests, and for the bench.
func TestPrograms(t *testing.T) {
	for _, p := range slices.Concat(world.Programs(), []string{world.Roles}, world.OVNKube(), benchprograms.All()) {
		if !slices.Contains(programs, p) {
			t.Errorf("%s is missing", p)
		}
	}
}

// cpio(1), if it is there, reads the archive.
func TestArchive(t *testing.T) {
	var a archive
	a.add("order", 0o100644, []byte("x"))
	a.add("init", 0o100755, []byte("12345"))
	text := a.end()
	if len(text)%4 != 0 || !strings.HasPrefix(string(text), "0707010000000100008"+"1a4") || strings.Count(string(text), "070701") != 3 {
		t.Errorf("%q", text)
	}
	if _, err := exec.LookPath("cpio"); err != nil {
		return
	}
	cmd := exec.Command("cpio", "-t", "--quiet")
	cmd.Stdin = strings.NewReader(string(text))
	if out, err := cmd.Output(); string(out) != "order\ninit\n" {
		t.Errorf("%q, %v", out, err)
	}
}
