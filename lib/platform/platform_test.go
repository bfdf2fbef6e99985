package platform

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// The os-release of each distribution, and its package with iptables.
func TestDistributionsByTheirFiles(t *testing.T) {
	for file, want := range map[string]struct{ name, iptables string }{
		"debian": {"Debian", "iptables"}, "ubuntu": {"Ubuntu", "iptables"}, "mint": {"Ubuntu", "iptables"}, "fedora": {"Fedora", "iptables-nft"},
		"rhel": {"RHEL, CentOS Stream, Rocky, Alma", "iptables-nft"}, "centos": {"RHEL, CentOS Stream, Rocky, Alma", "iptables-nft"},
		"rocky": {"RHEL, CentOS Stream, Rocky, Alma", "iptables-nft"}, "almalinux": {"RHEL, CentOS Stream, Rocky, Alma", "iptables-nft"},
		"tumbleweed": {"Debian", "iptables"}, // the name of the package is the same
	} {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		d := Of(string(text))
		if remedy := d.Remedy(IPTables); d.Name != want.name || remedy != "install the package "+want.iptables {
			t.Errorf("%s: %s: %s", file, d.Name, remedy)
		}
	}
}

// os-release(5) allows each kind of quotation, comments, and a file in /usr/lib alone.
func TestFormsOfAnOSRelease(t *testing.T) {
	for text, want := range map[string]string{
		"ID=fedora": "Fedora", "ID='fedora'": "Fedora", "  ID=\"fed\\ora\"\n": "Debian", "# ID=fedora\n": "Debian", "XID=fedora\n": "Debian",
		"ID=debian\nID=fedora\n": "Fedora", "ID=\nID_LIKE=\"x  fedora debian\"\r\n": "Fedora", "ID=\"": "Debian", "": "Debian", "ID_LIKE=fedora": "Fedora",
	} {
		if d := Of(text); d.Name != want {
			t.Errorf("%q: %s, want %s", text, d.Name, want)
		}
	}
	for path, want := range map[string]string{"etc/os-release": "Fedora", "usr/lib/os-release": "Fedora", "etc/other": "Debian"} {
		root := fstest.MapFS{path: {Data: []byte("ID=fedora\n")}}
		if d := Host(func(name string) ([]byte, error) { return fs.ReadFile(root, strings.TrimPrefix(name, "/")) }); d.Name != want {
			t.Errorf("%s: %s, want %s", path, d.Name, want)
		}
	}
	if d := Host(func(string) ([]byte, error) { return nil, errors.New("not readable") }); d.Name != "Debian" {
		t.Errorf("an unreadable file: %s", d.Name)
	}
}

func FuzzOSRelease(f *testing.F) {
	for _, text := range []string{"ID=debian", "ID=\"rhel\"\nID_LIKE='fedora'", "ID=\\\"", "ID_LIKE=", "=", "ID"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d := Of(text); !slices.ContainsFunc(Distributions(), func(o Distribution) bool { return o.Name == d.Name }) {
			t.Errorf("%q: %+v", text, d)
		}
	})
}

// Each distribution has all facts, and its ID no other one.
func TestTablesAreComplete(t *testing.T) {
	ids := map[string]string{}
	for _, d := range Distributions() {
		for _, id := range d.IDs {
			if ids[id] != "" {
				t.Errorf("%s has ID %s of %s", d.Name, id, ids[id])
			}
			ids[id] = d.Name
		}
		for _, p := range []Part{OpenVSwitch, OVNHost, OVNCentral, NFTables, IPTables, Loopback} {
			if d.Packages[p] == "" {
				t.Errorf("%s has no package of part %d", d.Name, p)
			}
		}
	}
	linux, managers, clusters := Markdown()
	for _, table := range []string{linux, managers, clusters} {
		lines := strings.Split(strings.TrimSuffix(table, "\n"), "\n")
		for _, l := range lines {
			if strings.Count(l, "|") != strings.Count(lines[0], "|") || strings.Contains(l, "``") || strings.Contains(l, "|  |") && l != lines[0] && !strings.HasPrefix(l, "| unit |") {
				t.Errorf("a cell is missing or empty: %s", l)
			}
		}
	}
}
