package lib_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mapEntry is a line of the map in doc.go.
var mapEntry = regexp.MustCompile(`(?m)^//\t(lib/\S+) +\S`)

func TestMap(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var listed, there []string
	for _, m := range mapEntry.FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, m[1])
	}
	for _, p := range packages(t, "./lib/...") {
		if p.self() != "lib" {
			there = append(there, p.self())
		}
	}
	for _, p := range there {
		if !slices.Contains(listed, p) {
			t.Errorf("%s has no line in lib/doc.go", p)
		}
	}
	for _, p := range listed {
		if !slices.Contains(there, p) {
			t.Errorf("lib/doc.go lists %s, which does not exist", p)
		}
	}
}

// TestComments requires a comment of every package and every exported name outside of generated files.
func TestComments(t *testing.T) {
	for _, p := range packages(t, "./...") {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment", p.self())
		}
		for _, name := range undocumented(t, p) {
			t.Errorf("%s: %s has no comment", p.self(), name)
		}
	}
}

// generated reports whether a file is generated; modelgen does not use the line known to go/ast.
func generated(f *ast.File) bool {
	return len(f.Comments) > 0 && strings.HasPrefix(f.Comments[0].Text(), "Code generated")
}

// undocumented lists the exported names of p without a comment. One comment serves a whole group of constants or
// variables.
func undocumented(t *testing.T, p goPackage) []string {
	t.Helper()
	set := token.NewFileSet()
	var files []*ast.File
	for _, file := range p.GoFiles {
		f, err := parser.ParseFile(set, filepath.Join(p.Dir, file), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if !generated(f) {
			files = append(files, f)
		}
	}
	d, err := doc.NewFromFiles(set, files, p.ImportPath)
	if err != nil {
		t.Fatal(err)
	}
	var missing []string
	need := func(comment, name string) {
		if strings.TrimSpace(comment) == "" {
			missing = append(missing, name)
		}
	}
	values := func(groups []*doc.Value) {
		for _, g := range groups {
			if g.Doc == "" {
				missing = append(missing, bareSpecs(g.Decl)...)
			}
		}
	}
	functions := func(prefix string, all []*doc.Func) {
		for _, f := range all {
			need(f.Doc, prefix+f.Name)
		}
	}
	values(d.Consts)
	values(d.Vars)
	functions("", d.Funcs)
	for _, typ := range d.Types {
		need(typ.Doc, typ.Name)
		values(typ.Consts)
		values(typ.Vars)
		functions("", typ.Funcs)
		functions(typ.Name+".", typ.Methods)
	}
	return missing
}

// bareSpecs lists the exported names without a comment in a group without a comment.
func bareSpecs(group *ast.GenDecl) []string {
	var names []string
	for _, s := range group.Specs {
		v, ok := s.(*ast.ValueSpec)
		if !ok || v.Doc != nil || v.Comment != nil {
			continue
		}
		for _, n := range v.Names {
			if n.IsExported() {
				names = append(names, n.Name)
			}
		}
	}
	return names
}
