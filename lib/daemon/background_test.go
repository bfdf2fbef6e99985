package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A hanging systemd-run ends with its context, also if a child keeps its output open.
func TestHangingSystemdRun(t *testing.T) {
	dir := t.TempDir()
	done := filepath.Join(dir, "done")
	if err := os.WriteFile(filepath.Join(dir, "systemd-run"), []byte("#!/bin/sh\n(sleep 60; touch "+done+") &\nwait\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	late := errors.New("it is late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, late)
	defer cancel()
	if err := transient(ctx, filepath.Join(dir, "log"), []string{"prog", "watch"}); !errors.Is(err, late) {
		t.Error(err)
	}
	if _, err := os.Stat(done); err == nil {
		t.Error("it was awaited until a child of it had ended")
	}
}
