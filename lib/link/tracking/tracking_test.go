package tracking

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ovn-k8s/test/require"
)

// Limits are raised to kube-proxy's, and never lowered. Missing and read-only ones stay.
func TestRaise(t *testing.T) {
	all := limits()
	for name, tt := range map[string]struct {
		have    map[string]int
		mode    os.FileMode
		want    map[string]int
		changes int
	}{
		"the kernel's":     {map[string]int{all[0].name: 4096, all[1].name: 60}, 0o644, map[string]int{all[0].name: all[0].low, all[1].name: 3600}, 2},
		"the operator's":   {map[string]int{all[0].name: all[0].low + 1, all[1].name: 7200}, 0o644, map[string]int{all[0].name: all[0].low + 1, all[1].name: 7200}, 0},
		"no limit":         {map[string]int{all[0].name: 0}, 0o644, map[string]int{all[0].name: 0}, 0},
		"read-only":        {map[string]int{all[0].name: 4096}, 0o444, map[string]int{all[0].name: 4096}, 0},
		"no nf_conntrack":  {nil, 0o644, nil, 0},
		"of one, the time": {map[string]int{all[1].name: 60}, 0o644, map[string]int{all[1].name: 3600}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, value := range tt.have {
				if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendln(nil, value), tt.mode); err != nil {
					t.Fatal(err)
				}
			}
			changes, failed := new(Limits).Raise(dir)
			if len(failed) > 0 || len(changes) != tt.changes {
				t.Errorf("changes %q, %v", changes, failed)
			}
			if again, failed := new(Limits).Raise(dir); len(again) > 0 || len(failed) > 0 {
				t.Errorf("a second time: %q, %v", again, failed)
			}
			for name, want := range tt.want {
				text, _ := os.ReadFile(filepath.Join(dir, name))
				var got int
				if _, err := fmt.Sscan(string(text), &got); err != nil || got != want {
					t.Errorf("%s: %q, want %d", name, text, want)
				}
			}
		})
	}
	if all[0].low < 131072 {
		t.Errorf("nf_conntrack_max: %d", all[0].low)
	}
}

func write(t *testing.T, dir string, l limit, value int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, l.name), fmt.Appendln(nil, value), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Each limit is raised once. An operator's smaller value later stays, and a limit that comes later is raised.
func TestRaiseOnce(t *testing.T) {
	dir, all, raised := t.TempDir(), limits(), &Limits{}
	for i, step := range []struct{ limit, value, want int }{{0, 4096, all[0].low}, {1, 60, closeWait}, {0, 4096, 4096}, {1, 60, 60}} {
		write(t, dir, all[step.limit], step.value)
		if _, failed := raised.Raise(dir); len(failed) > 0 {
			t.Fatal(failed)
		}
		text, _ := os.ReadFile(filepath.Join(dir, all[step.limit].name))
		if got := strings.TrimSpace(string(text)); got != fmt.Sprint(step.want) {
			t.Errorf("step %d: %s is %s, want %d", i, all[step.limit].name, got, step.want)
		}
	}
}

// Limits on a read-only /proc/sys are reported once.
func TestReadOnlySysctls(t *testing.T) {
	if os.Geteuid() != 0 {
		require.Nothing(t, require.Node, "root")
	}
	dir, all, raised := t.TempDir(), limits(), &Limits{}
	write(t, dir, all[0], 4096)
	write(t, dir, all[1], 7200)
	runtime.LockOSThread() // for good: the mounts end with the thread
	for _, err := range []error{
		unix.Unshare(unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount(dir, dir, "", unix.MS_BIND, ""),
		unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	if changes, failed := raised.Raise(dir); len(failed) != 1 || !errors.Is(failed[0], unix.EROFS) || !strings.Contains(failed[0].Error(), all[0].name) || len(changes) > 0 {
		t.Errorf("changes %q, %v", changes, failed)
	}
	if changes, failed := raised.Raise(dir); len(failed) > 0 || len(changes) > 0 {
		t.Errorf("a second time: %q, %v", changes, failed)
	}
}
