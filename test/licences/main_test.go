package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestPageHasEachLinkedModule(t *testing.T) {
	modules, err := linked("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(modules) < 20 {
		t.Errorf("found only %v", modules)
	}
	if err := refused(modules); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join("../..", page))
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != head+markdown(modules) {
		t.Errorf("%s is not that of the linked modules: run make licences", page)
	}
}

// A module without a known and allowed licence in each of its files is refused.
func TestModulesAreRefused(t *testing.T) {
	license, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	gpl, err := os.ReadFile("/usr/share/common-licenses/GPL-3") // of Debian's base-files
	if err != nil {
		t.Fatal(err)
	}
	apache, more := string(license), strings.Repeat("You pay a fee for each packet. ", 500)
	for name, tt := range map[string]struct {
		files map[string]string
		want  string // "": allowed
	}{
		"allowed":             {map[string]string{"LICENSE": apache, "pkg/x.go": "package pkg"}, ""},
		"other names":         {map[string]string{"licence.md": apache, "pkg/x.go": "package pkg"}, ""},
		"none":                {map[string]string{"README": apache, "pkg/x.go": "package pkg"}, "has no file with a licence"},
		"GPL":                 {map[string]string{"COPYING": string(gpl), "pkg/x.go": "package pkg"}, "has licence GPL-3.0"},
		"GPL in a package":    {map[string]string{"LICENSE": apache, "pkg/LICENSE.txt": string(gpl)}, "has licence GPL-3.0"},
		"GPL elsewhere":       {map[string]string{"LICENSE": apache, "pkg/x.go": "package pkg", "other/LICENSE": string(gpl)}, ""},
		"no known text":       {map[string]string{"LICENSE": more, "pkg/x.go": "package pkg"}, "has licence unknown"},
		"additional demands":  {map[string]string{"LICENSE": apache + more, "pkg/x.go": "package pkg"}, "has licence unknown"},
		"a program's sources": {map[string]string{"LICENSE": apache, "pkg/license.go": "package pkg"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range tt.files {
				path := filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			listed := `{"Dir": ` + strconv.Quote(filepath.Join(root, "pkg")) + `, "Module": {"Path": "example.com/m", "Version": "v1.0.0", "Dir": ` + strconv.Quote(root) + `}}`
			modules, err := modulesOf(json.NewDecoder(strings.NewReader(listed + `{"Dir": "/usr/lib/go"}`)))
			if err != nil || len(modules) != 1 {
				t.Fatalf("%v: %v", modules, err)
			}
			switch err := refused(modules); {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
