package main

import (
	"os"
	"path/filepath"
	"testing"

	"ovn-k8s/lib/daemon"
)

// A kubeconfig of a daemon is found from its other working directory.
func TestKubeconfigIsAbsolute(t *testing.T) {
	t.Chdir(t.TempDir())
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", "variable")
	c := newCommand(daemon.Arguments{})
	c.values["k8s-kubeconfig"] = "option"
	if err := c.completeValues(); err != nil {
		t.Fatal(err)
	}
	if got := c.values["k8s-kubeconfig"]; got != filepath.Join(dir, "option") {
		t.Errorf("option: %s", got)
	}
	if got := os.Getenv("KUBECONFIG"); got != filepath.Join(dir, "variable") {
		t.Errorf("variable: %s", got)
	}
}
