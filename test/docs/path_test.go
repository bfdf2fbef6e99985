package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Limits of a newcomer's path, README and architecture.md included.
const (
	maxPathFiles = 7
	maxPathLines = 1200
)

// pathRow is a line of the table of a newcomer's path: a step, functions, and their file.
var pathRow = regexp.MustCompile("(?m)^\\| [0-9, ]*\\| (`.*`) \\| `(.*)` \\|$")

// A newcomer's path in architecture.md names functions that are in the named files, and is as short as it says.
func TestANewcomersPath(t *testing.T) {
	text := readFile(t, "docs/architecture.md")
	_, section, found := strings.Cut(text, "\n## A newcomer's path\n")
	if !found {
		t.Fatal("architecture.md has no newcomer's path")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	before, rest, _ := strings.Cut(text, "\n## How a pod gets its port\n")
	how, _, _ := strings.Cut(rest, "\n## ")
	lines := count(readFile(t, "README.md")) + count(before) + count(how)
	files := map[string]bool{"README.md": true, "docs/architecture.md": true}
	for _, row := range pathRow.FindAllStringSubmatch(section, -1) {
		files[row[2]] = true
		of := functions(t, row[2])
		for f := range strings.SplitSeq(strings.ReplaceAll(row[1], "`", ""), ", ") {
			n, ok := of[f]
			if !ok {
				t.Errorf("%s has no function %s", row[2], f)
			}
			lines += n
		}
	}
	t.Logf("%d files, %d lines", len(files), lines)
	if len(files) > maxPathFiles || lines > maxPathLines || len(files) < 3 {
		t.Errorf("the path has %d files with %d lines, more than %d with %d", len(files), lines, maxPathFiles, maxPathLines)
	}
}

func count(text string) int { return strings.Count(text, "\n") }

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// functions returns the number of lines of each function of a file, with its comment. A method is TYPE.NAME.
func functions(t *testing.T, name string) map[string]int {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, filepath.Join(root, name), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		full := fn.Name.Name
		if fn.Recv != nil {
			of := fn.Recv.List[0].Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}
			if id, ok := of.(*ast.Ident); ok {
				full = id.Name + "." + full
			}
		}
		start := fn.Pos()
		if fn.Doc != nil {
			start = fn.Doc.Pos()
		}
		out[full] = set.Position(fn.End()).Line - set.Position(start).Line + 1
	}
	return out
}
