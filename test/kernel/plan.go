package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Packages of programs.
const (
	demo  = "test/demo"
	loss  = "test/loss"
	bench = "test/bench"
)

// A turn is the tests of one package, or a program.
type turn struct {
	pkg string // such as "test/e2e"
	// tests are names; one may have a regular expression of subtests after "/". A program has one, see programTest.
	tests []string
	// ovnkube has the demo's cluster built by ovnkube.
	ovnkube bool
}

// program reports whether the package is a program.
func (t turn) program() bool { return t.pkg == demo || t.pkg == loss || t.pkg == bench }

// programTest is the name of a program's result.
func programTest(pkg string) string { return path.Base(pkg) }

// smoke is the least choice, for an emulated CPU. The demo has a gateway of each mode, and all kinds of Services.
var smoke = []turn{
	theDemo,
	{pkg: "test/e2e", tests: []string{
		"TestTheDatapathIsTheOneOfTheSetting",
		"TestPolicies/^(default_deny|ports_by_number|a_range_of_ports|named_ports_are.*of_ingress|a_block_of_addresses|egress_to_a_Service_is_judged_by_the_pod|both_ends|expressions|two_entries|an_empty_podS)",
	}},
}

// usual is the choice by default.
func usual() []turn {
	e2e := smoke[1]
	e2e.tests = append(slices.Clone(e2e.tests), "TestPoliciesByProtocol", "TestLargeDatagrams")
	return []turn{theDemo, e2e, ofOVNKube}
}

var (
	theDemo = turn{pkg: demo, tests: []string{programTest(demo)}}
	// ofOVNKube is "make demo OVNKUBE=1".
	ofOVNKube = turn{pkg: demo, tests: []string{programTest(demo) + " OVNKUBE=1"}, ovnkube: true}
)

// pattern is the argument of -test.run for the tests.
func (t turn) pattern() string {
	var each []string
	for _, test := range t.tests {
		name, below, chosen := strings.Cut(test, "/")
		name = "^" + name + "$"
		if chosen {
			name += "/" + below
		}
		each = append(each, name)
	}
	return strings.Join(each, "|")
}

// packages are those of "make test-kernel ALL=1": whatever sends packets by Open
// vSwitch.
var packages = []string{
	demo, "lib/cni", "lib/link", "lib/nicbridge", "lib/gateway/...", "lib/overlay/...", "ovn-k8s-gateway-helper", "ovn-k8s-overlay",
	"ovn-k8s-util", "test/host", "test/boot", "test/balance", "test/ovnkube", "test/e2e",
}

// plan returns the turns for the command line.
func plan(source string, least, all bool, run, pkg string) ([]turn, error) {
	switch {
	case least && (all || run != "" || pkg != ""):
		return nil, errors.New("SMOKE is a choice of its own: leave out ALL, RUN and PKG")
	case least:
		return smoke, nil
	case !all && run == "" && pkg == "":
		return usual(), nil
	}
	return choose(source, run, pkg)
}

// choose returns the turns with the tests matching run, in pkg or all packages.
func choose(source, run, pkg string) ([]turn, error) {
	name, below, chosen := strings.Cut(run, "/")
	re, err := regexp.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("RUN: %w", err)
	}
	patterns := packages
	if pkg != "" {
		patterns = strings.FieldsFunc(pkg, func(r rune) bool { return r == ',' || r == ' ' })
	}
	var turns []turn
	for _, pattern := range patterns {
		found, err := expand(source, strings.TrimPrefix(pattern, "./"))
		if err != nil {
			return nil, err
		}
		for _, t := range found {
			t.tests = slices.DeleteFunc(slices.Clone(t.tests), func(name string) bool { return !re.MatchString(name) })
			for i := range t.tests {
				if chosen {
					t.tests[i] += "/" + below
				}
			}
			if len(t.tests) > 0 {
				turns = append(turns, t)
			}
		}
	}
	if len(turns) == 0 {
		return nil, fmt.Errorf("no test matches RUN=%s in %s", run, strings.Join(patterns, " "))
	}
	return turns, nil
}

// expand returns the packages with tests of a pattern, which may end with "/...".
func expand(source, pattern string) (turns []turn, err error) {
	if pattern == demo {
		return []turn{theDemo, ofOVNKube}, nil
	}
	if t := (turn{pkg: pattern, tests: []string{programTest(pattern)}}); t.program() {
		return []turn{t}, nil
	}
	dir, below := strings.CutSuffix(pattern, "/...")
	err = filepath.WalkDir(filepath.Join(source, dir), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case !below && path != filepath.Join(source, dir):
			return fs.SkipDir
		}
		tests, err := testsIn(path)
		if err != nil || len(tests) == 0 {
			return err
		}
		rel, err := filepath.Rel(source, path)
		turns = append(turns, turn{pkg: filepath.ToSlash(rel), tests: tests})
		return err
	})
	return turns, err
}

// testsIn returns the names of the tests in a directory, without running its
// TestMain.
func testsIn(dir string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && isTest(f.Name.Name) {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names, nil
}

func isTest(name string) bool { return testName.MatchString(name) && name != "TestMain" }

var testName = regexp.MustCompile(`^Test([^a-z]|$)`)

// timeout bounds one turn.
func (t turn) timeout() time.Duration { return time.Hour + time.Duration(len(t.tests))*5*time.Minute }
