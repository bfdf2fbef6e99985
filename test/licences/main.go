// Licences writes docs/licences.md: the modules linked into the programs, and their licences (make licences).
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// page is the file, relative to the root of the repository.
const page = "docs/licences.md"

const head = `# Licences of linked modules

The modules of others in our programs, by their own licence files. Those of packages inside of a module count, too. The standard
library of Go is linked as well: BSD-3-Clause. Made by ` + "`make licences`" + `; ` + "`make check`" + ` compares.

`

// A module is one linked into a program.
type module struct {
	Path, Version string
	licences      []string // SPDX identifiers, sorted
}

func main() {
	modules, err := linked(".")
	if err == nil {
		err = errors.Join(os.WriteFile(page, []byte(head+markdown(modules)), 0o644), refused(modules))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

// linked lists the modules of others in the programs of a repository, by path.
func linked(root string) ([]module, error) {
	mains, err := filepath.Glob(filepath.Join(root, "ovn*", "main.go"))
	if err != nil {
		return nil, err
	}
	args := []string{"list", "-deps", "-json=Dir,Module"}
	for _, m := range mains {
		args = append(args, "./"+filepath.Base(filepath.Dir(m)))
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env, cmd.Stderr = root, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux"), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages of the programs: %w", err)
	}
	return modulesOf(json.NewDecoder(strings.NewReader(string(out))))
}

// modulesOf reads the output of go list.
func modulesOf(packages *json.Decoder) ([]module, error) {
	modules, licences := map[string]module{}, map[string]map[string]bool{}
	for {
		var p struct {
			Dir    string
			Module *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := packages.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading the output of go list: %w", err)
		}
		if p.Module == nil || p.Module.Main {
			continue
		}
		m := p.Module
		if modules[m.Path].Path == "" {
			modules[m.Path], licences[m.Path] = module{Path: m.Path, Version: m.Version}, map[string]bool{}
		}
		if err := addLicences(licences[m.Path], p.Dir, m.Dir); err != nil {
			return nil, fmt.Errorf("module %s: %w", m.Path, err)
		}
	}
	var all []module
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		m := modules[path]
		m.licences = slices.Sorted(maps.Keys(licences[path]))
		all = append(all, m)
	}
	return all, nil
}

// licenceFile matches the name of a file with a licence.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying)([.-].*)?$`)

// addLicences adds the licences of the directories from a package up to the root of its module.
func addLicences(to map[string]bool, dir, root string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		for _, id := range identify(text) {
			to[id] = true
		}
	}
	if dir == root {
		return nil
	}
	return addLicences(to, filepath.Dir(dir), root)
}

// unknown stands for a text that licensecheck does not know.
const unknown = "unknown"

// known is the part of a text, in percent, that must be that of known licences. Copyright lines and headings are the rest.
const known = 75

// identify returns the SPDX identifiers of the licences in a text.
func identify(text []byte) []string {
	coverage := licensecheck.Scan(text)
	var ids []string
	if coverage.Percent < known {
		ids = append(ids, unknown)
	}
	for _, m := range coverage.Match {
		ids = append(ids, m.ID)
	}
	return ids
}

// allowed are the licences that modules may have: those that ask for no more than their text with the programs, and
// MPL-2.0, which asks for the source of its own files.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unlicense"}

// refused names modules without a licence, or with another one than those allowed.
func refused(modules []module) error {
	var all []error
	for _, m := range modules {
		if len(m.licences) == 0 {
			all = append(all, fmt.Errorf("module %s has no file with a licence", m.Path))
		}
		for _, l := range m.licences {
			if !slices.Contains(allowed, l) {
				all = append(all, fmt.Errorf("module %s has licence %s: use another module, or allow the licence in test/licences", m.Path, l))
			}
		}
	}
	return errors.Join(all...)
}

func markdown(modules []module) string {
	text := "| module | version | licence |\n|---|---|---|\n"
	for _, m := range modules {
		text += fmt.Sprintf("| `%s` | %s | %s |\n", m.Path, m.Version, strings.Join(m.licences, ", "))
	}
	return text
}
