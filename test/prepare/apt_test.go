package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ovn-k8s/test/require"
)

// holder is the environment variable with the path of a file. If it is set, this
// program locks the file until the end of standard input.
const holder = "OVNK8S_TEST_HOLD_LOCK"

func TestMain(m *testing.M) {
	if path := os.Getenv(holder); path != "" {
		hold(path)
		return
	}
	os.Exit(m.Run())
}

func hold(path string) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o640)
	if err == nil {
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	fmt.Println("locked", err)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// A watcher is an io.Writer. It calls found when its output contains text.
type watcher struct {
	text  string
	found func()
	all   strings.Builder
}

// Write implements io.Writer.
func (w *watcher) Write(p []byte) (int, error) {
	w.all.Write(p)
	if strings.Contains(w.all.String(), w.text) {
		w.found()
	}
	return len(p), nil
}

// Section 5 of the findings: the preparation failed when another program held apt's lock for a moment.
func TestAptWaitsForALock(t *testing.T) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		require.Nothing(t, require.Central, "apt-get")
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "lists", "partial"), 0o755); err != nil {
		t.Fatal(err)
	}
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), holder+"="+filepath.Join(dir, "lists", "lock"))
	stdin, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdin.Close(); _ = other.Wait() }()
	said := make([]byte, 64)
	if n, err := stdout.Read(said); string(said[:n]) != "locked <nil>\n" {
		t.Fatalf("the other program says %q, %v", said[:n], err)
	}
	w := &watcher{text: "waiting for", found: func() { _ = stdin.Close() }}
	err = apt(t.Context(), w, "update", "-o", "Dir::State::lists="+dir+"/lists", "-o", "Dir::Cache="+dir,
		"-o", "Dir::Etc::sourcelist=/dev/null", "-o", "Dir::Etc::sourceparts=/dev/null")
	if err != nil || !strings.Contains(w.all.String(), "Could not get lock") {
		t.Errorf("%v, after\n%s", err, w.all.String())
	}
	if err := apt(t.Context(), io.Discard, "no-such-command"); err == nil {
		t.Error("a wrong command is no error")
	}
}
