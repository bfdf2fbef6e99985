package main

import (
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
}

// program reports whether the package is a program.
func (t turn) program() bool { return t.pkg == demo || t.pkg == loss || t.pkg == bench }

// programTest is the name of a program's only result.
func programTest(pkg string) string { return path.Base(pkg) }

// smoke is the choice by default, for an emulated CPU. The demo has a gateway of each mode.
var smoke = []turn{
	{demo, []string{programTest(demo)}},
	{"test/e2e", []string{
		"TestTheDatapathIsTheOneOfTheSetting", "TestClusterIPs", "TestLargeDatagrams", "TestPoliciesByProtocol",
		"TestPolicies/^(default_deny|ports_by_number|a_range_of|named_ports_are.*of_ingress|a_block|egress_to_a_S|both_ends|expressions|two_entries|an_empty_podS)",
	}},
}

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
	"ovn-k8s-util", "test/host", "test/boot", "test/balance", "test/e2e",
}

// plan returns the turns for the command line.
func plan(source string, all bool, run, pkg string) ([]turn, error) {
	name, below, chosen := strings.Cut(run, "/")
	re, err := regexp.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("RUN: %w", err)
	}
	if !all && run == "" && pkg == "" {
		return smoke, nil
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
			t.tests = slices.DeleteFunc(t.tests, func(name string) bool { return !re.MatchString(name) })
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
	if t := (turn{pattern, []string{programTest(pattern)}}); t.program() {
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
		turns = append(turns, turn{filepath.ToSlash(rel), tests})
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
