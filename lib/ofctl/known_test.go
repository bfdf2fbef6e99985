package ofctl_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ovn-k8s/lib/ofctl"
)

// Ports are asked for once in each state, and again after Forget. While ovs-vswitchd is down, what is known is an error.
func TestKnownPorts(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	script := fmt.Sprintf("#!/bin/sh\necho asked >>%s\n[ -S %s/breth0.mgmt ] || exit 1\necho ' LOCAL(breth0): addr:02:00:00:00:00:01'\n", log, dir)
	if err := os.WriteFile(filepath.Join(dir, "ovs-ofctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	l, err := net.Listen("unix", filepath.Join(dir, "breth0.mgmt"))
	if err != nil {
		t.Fatal(err)
	}
	var known ofctl.Known
	check := func(state any, asked int) {
		t.Helper()
		ports, err := known.Ports(t.Context(), ofctl.Bridge{RunDir: dir, Name: "breth0"}, state)
		text, _ := os.ReadFile(log)
		if n := strings.Count(string(text), "asked"); err != nil || ports.LocalMAC() != "02:00:00:00:00:01" || n != asked {
			t.Errorf("state %v: %v, %v, asked %d times, want %d", state, ports, err, n, asked)
		}
	}
	check(1, 1)
	check(1, 1)
	check(2, 2)
	known.Forget()
	check(2, 3)
	check(2, 3)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := known.Ports(t.Context(), ofctl.Bridge{RunDir: dir, Name: "breth0"}, 2); err == nil {
		t.Error("no error while ovs-vswitchd is down")
	}
}
