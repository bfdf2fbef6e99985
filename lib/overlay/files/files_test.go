package files

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"
)

// Commands writing the same file at once do not sweep each other's unfinished files.
func TestFilesWrittenWhileOthersSweep(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	var g errgroup.Group
	for range 8 {
		g.Go(func() error {
			for range 200 {
				if err := Sweep(dir); err != nil {
					return err
				}
				if err := (Edit{Path: path, Text: "text"}).replaceFile(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
}
