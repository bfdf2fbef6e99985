package daemon

import (
	"errors"
	"path/filepath"
	"testing"

	"ovn-k8s/test/hanging"
)

// A hanging systemd-run ends with its context, also if a child keeps its output open.
func TestHangingSystemdRun(t *testing.T) {
	ctx, late := hanging.Program(t, "systemd-run")
	if err := transient(ctx, filepath.Join(t.TempDir(), "log"), []string{"prog", "watch"}); !errors.Is(err, late) {
		t.Error(err)
	}
}
