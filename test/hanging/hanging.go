// Package hanging stands in for a hanging program.
package hanging

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Program puts a hanging program first in PATH, with a hanging child of the same output. It returns a context with a deadline of
// 10 ms, and the cause of its end. The test fails if the end of the child was awaited.
func Program(t *testing.T, name string) (ctx context.Context, late error) {
	t.Helper()
	dir := t.TempDir()
	done := filepath.Join(dir, "done")
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n(sleep 60; touch "+done+") &\nwait\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	late = errors.New("it is late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, late)
	t.Cleanup(func() {
		cancel()
		if _, err := os.Stat(done); err == nil {
			t.Errorf("the end of a child of %s was awaited", name)
		}
	})
	return ctx, late
}
