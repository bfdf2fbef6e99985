package lib_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb/sbdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
	"ovn-k8s/test/require"
)

// TestGenerated generates the database models again, by the line in each doc.go, and compares. With another version of
// OVN or Open vSwitch, it compares the models with the installed schema instead: all their tables and columns must exist.
func TestGenerated(t *testing.T) {
	for dir, full := range map[string]func() (model.ClientDBModel, error){
		"nb/nbdb": nbdb.FullDatabaseModel, "ovsdb/sbdb": sbdb.FullDatabaseModel, "ovsdb/vswitchdb": vswitchdb.FullDatabaseModel,
	} {
		t.Run(dir, func(t *testing.T) {
			pkg, schema := directive(t, dir)
			if _, err := os.Stat(schema); err != nil {
				require.Nothing(t, require.Central, schema)
			}
			if version(t, filepath.Join(dir, "model.go")) != version(t, schema) {
				matches(t, full, schema)
				return
			}
			fresh := t.TempDir()
			cmd := exec.Command("go", "tool", "modelgen", "-extended", "-p", pkg, "-o", fresh, schema)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("modelgen: %v: %s", err, out)
			}
			if diff := cmp.Diff(texts(t, fresh), texts(t, dir)); diff != "" {
				t.Errorf("%s is not what make generate makes (-fresh +committed):\n%s", dir, diff)
			}
		})
	}
}

// directive returns the package and the schema of the generator's line in dir's doc.go.
func directive(t *testing.T, dir string) (pkg, schema string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "doc.go"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^//go:generate go tool modelgen -extended -p (\S+) -o \. (\S+)$`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s/doc.go does not say how it is generated", dir)
	}
	return string(m[1]), string(m[2])
}

// matches fails the test if the schema in a file lacks a table or column of a model, or has another type for it.
func matches(t *testing.T, full func() (model.ClientDBModel, error), file string) {
	t.Helper()
	client, err := full()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var schema ovsdb.DatabaseSchema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	if _, errs := model.NewDatabaseModel(schema, client); len(errs) > 0 {
		t.Errorf("%s and its model: %v", file, errs)
	}
}

// version is the first version in a file: the schema's.
func version(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`"version": "([^"]+)"`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s has no schema version", file)
	}
	return string(m[1])
}

// texts reads the Go files in dir, except for doc.go.
func texts(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f string) bool { return filepath.Base(f) == "doc.go" })
	all := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(f)] = string(text)
	}
	return all
}
