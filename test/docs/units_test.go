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
)

// others are the external units named by ours: Debian's for Open vSwitch and OVN,
// systemd's, and the kubelet's.
var others = []string{
	"openvswitch-switch.service", "openvswitch.service", "ovsdb-server.service", "ovs-vswitchd.service", "ovn-controller.service", "ovn-northd.service",
	"networking.service", "systemd-networkd.service", "NetworkManager.service", "network-pre.target", "local-fs.target", "shutdown.target",
	"ovn-host.service", "ovn-central.service", "kubelet.service",
	"network.target", "network-online.target", "multi-user.target",
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
					if !slices.Contains(others, unit) && !slices.Contains(names, "systemd/"+unit) {
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
