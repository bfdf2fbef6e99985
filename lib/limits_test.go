package lib_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Limits of the house, for code that is not generated.
const (
	maxFile     = 500  // lines of a file
	maxPackage  = 1500 // lines of a package with code, without tests
	maxReceiver = 30   // methods of a type
)

// large are the packages that may be larger.
var large = []string{"lib/desired/policy"}

// TestLimits keeps files, packages and types of a size that can be read at once.
func TestLimits(t *testing.T) {
	lines, methods := map[string]int{}, map[string]int{}
	for _, file := range goFiles(t) {
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text[:min(len(text), 200)]), "DO NOT EDIT") {
			continue // models of the databases
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "\n"); n > maxFile {
			t.Errorf("%s has %d lines, more than %d", file, n, maxFile)
		}
		countMethods(tree, path.Dir(file)+" "+tree.Name.Name+".", methods)
		if !strings.HasSuffix(file, "_test.go") {
			lines[path.Dir(file)] += codeLines(string(text))
		}
	}
	for dir, n := range lines {
		if n > maxPackage && !under(dir, large...) {
			t.Errorf("%s has %d lines with code, more than %d", dir, n, maxPackage)
		}
	}
	for receiver, n := range methods {
		if n > maxReceiver {
			t.Errorf("%s has %d methods, more than %d", receiver, n, maxReceiver)
		}
	}
}

// goFiles lists the Go files of the module in version control.
func goFiles(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "*.go")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// codeLines counts the lines that are neither blank nor comments alone.
func codeLines(text string) (n int) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}

// countMethods adds the methods of a file to those of their receivers.
func countMethods(f *ast.File, prefix string, methods map[string]int) {
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv == nil {
			continue
		}
		of := fn.Recv.List[0].Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		switch generic := of.(type) {
		case *ast.IndexExpr:
			of = generic.X
		case *ast.IndexListExpr:
			of = generic.X
		}
		methods[prefix+of.(*ast.Ident).Name]++
	}
}
