package cnisetup

import (
	"os"
	"path/filepath"
	"testing"

	"ovn-k8s/lib/config"
)

// Edits are applied in order, and may end after any of them: the former configuration stays until there is a new one.
func TestAHostAlwaysHasAConfiguration(t *testing.T) {
	bin, conf, plugin := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), shim)
	for _, path := range []string{plugin, filepath.Join(conf, conflist), filepath.Join(conf, oldShimConflist)} {
		if err := os.WriteFile(path, []byte("x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", filepath.Dir(plugin))
	s, err := FindShim(config.Config{CNIConfDir: conf, CNIBinDir: bin, CNIPlugin: pluginType})
	if err != nil {
		t.Fatal(err)
	}
	edits, warnings, err := s.Configure()
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	want := []string{filepath.Join(bin, pluginType), s.path(), filepath.Join(conf, conflist), filepath.Join(conf, oldShimConflist)}
	for i, path := range want {
		if len(edits) != len(want) || edits[i].Path != path || edits[i].Gone != (i > 1) {
			t.Fatalf("edits %v, want them for %q, and the last two to remove", edits, want)
		}
	}
}
