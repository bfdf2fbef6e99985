package docs_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/docs"
	"ovn-k8s/lib/platform"
)

// others are systemd's units named by ours. Those of distributions are in package platform.
var others = []string{
	"network-pre.target", "local-fs.target", "shutdown.target", "network.target", "network-online.target", "multi-user.target",
}

// externalUnits lists the external units of all distributions.
func externalUnits() []string {
	all := slices.Clone(others)
	for _, d := range platform.Distributions() {
		for _, units := range d.Units {
			all = append(all, units...)
		}
	}
	for _, m := range platform.Managers() {
		all = append(all, m.Unit)
	}
	for _, k := range platform.Clusters() {
		all = append(all, k.Units...)
	}
	return all
}

var setting = regexp.MustCompile(`^([A-Z][A-Za-z]+)=(.+)$`)

// TestUnits checks the units and files named by our units, and runs systemd-analyze
// verify if it is installed.
func TestUnits(t *testing.T) {
	dir := t.TempDir()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	names, err := fs.Glob(docs.Files, "systemd/*.service")
	if err != nil || len(names) < 5 {
		t.Fatalf("units %v: %v", names, err)
	}
	var install []byte
	for _, page := range []string{"install.md", "ovnkube.md"} {
		text, err := fs.ReadFile(docs.Files, page)
		if err != nil {
			t.Fatal(err)
		}
		install = append(install, text...)
	}
	var files []string
	external := externalUnits()
	for _, name := range names {
		text, err := fs.ReadFile(docs.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			m := setting.FindStringSubmatch(strings.TrimSpace(line))
			switch {
			case m == nil:
			case slices.Contains([]string{"After", "Before", "Requires", "Wants", "WantedBy"}, m[1]):
				for unit := range strings.FieldsSeq(m[2]) {
					if !slices.Contains(external, unit) && !slices.Contains(names, "systemd/"+unit) {
						t.Errorf("%s: %s names %s, which is no unit", name, m[1], unit)
					}
				}
			case m[1] == "EnvironmentFile":
				if file := strings.TrimPrefix(m[2], "-"); !strings.Contains(string(install), "cat > "+file+" <<END") {
					t.Errorf("%s: neither install.md nor ovnkube.md says what is in %s", name, file)
				}
			}
		}
		files = append(files, filepath.Join(dir, path.Base(name)))
		if err := os.WriteFile(files[len(files)-1], []byte(strings.ReplaceAll(string(text), "/usr/local/bin/", bin+"/")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("systemd-analyze is not installed")
		return
	}
	out, err := exec.Command("systemd-analyze", append([]string{"verify", "--man=no", "--recursive-errors=no"}, files...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestUnitsOnEachDistribution checks that each of our units that starts after Open vSwitch or OVN on one distribution does
// so on all of them.
func TestUnitsOnEachDistribution(t *testing.T) {
	names, err := fs.Glob(docs.Files, "systemd/*.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		after := strings.Fields(settings(readFile(t, "docs/"+name), "After"))
		for _, p := range []platform.Part{platform.OpenVSwitch, platform.OVNHost, platform.OVNCentral} {
			with, without := []string{}, []string{}
			for _, d := range platform.Distributions() {
				if slices.ContainsFunc(d.Units[p], func(u string) bool { return slices.Contains(after, u) }) {
					with = append(with, d.Name)
				} else {
					without = append(without, d.Name)
				}
			}
			if len(with) > 0 && len(without) > 0 {
				t.Errorf("%s: After= has a unit of %v, and none of %v: want one of %v", name, with, without, platform.Units(p))
			}
		}
	}
}

// settings joins the values of a setting of a unit.
func settings(text, name string) string {
	var all []string
	for line := range strings.Lines(text) {
		if m := setting.FindStringSubmatch(strings.TrimSpace(line)); m != nil && m[1] == name {
			all = append(all, m[2])
		}
	}
	return strings.Join(all, " ")
}
