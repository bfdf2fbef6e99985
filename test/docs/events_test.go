package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// reason matches the reason of an Event.
var reason = regexp.MustCompile(`^(?:[A-Z]+[a-z]+){2,}[A-Z]*$`)

// noReasons are other texts of that form in the programs.
var noReasons = []string{"AppArmor", "ExternalIDs", "NetworkManager", "NodePorts"}

// TestEvents checks that the pages have the reason of each Event.
func TestEvents(t *testing.T) {
	documented := map[string]bool{}
	for _, p := range pages(t) {
		for _, s := range p.spans() {
			documented[s] = true
		}
	}
	found := reasons(t)
	if len(found) < 20 {
		t.Errorf("found only %q", found)
	}
	for _, r := range found {
		if !documented[r] {
			t.Errorf("no page has the Event %s", r)
		}
	}
}

// reasons lists the reasons of Events in the programs.
func reasons(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, "lib"), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || strings.HasSuffix(filepath.Dir(file), "db") {
			return err // models of databases are in packages with names such as nbdb
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if text, _ := strconv.Unquote(l.Value); reason.MatchString(text) && !slices.Contains(noReasons, text) {
					all = append(all, text)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
