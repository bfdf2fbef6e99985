package kubetest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// progressInterval is how often a long build says that it is alive.
const progressInterval = 10 * time.Second

// Build builds kcluster and returns its path: in $OVNK8S_TEST_BIN if that is
// set, else in the user's cache directory. The first build takes about five
// minutes on two cores, later ones about a second. Progress goes to log line by
// line, which may be nil. Several programs may call it at once.
func Build(ctx context.Context, log func(line string)) (string, error) {
	if log == nil {
		log = func(string) {}
	}
	dir, err := binDir()
	if err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	source, err := sourceDir(ctx)
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "kcluster")
	if err := build(ctx, source, program, log); err != nil {
		return "", fmt.Errorf("building the control plane: %w", err)
	}
	return program, nil
}

// binDir makes the directory of test programs.
func binDir() (string, error) {
	dir := os.Getenv("OVNK8S_TEST_BIN")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil { // no home
			cache = filepath.Join(os.TempDir(), "cache")
		}
		dir = filepath.Join(cache, "ovn-k8s")
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// lock waits until no other program holds the lock on file.
func lock(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking %s: %w", file, err)
	}
	return func() { _ = f.Close() }, nil
}

// sourceDir is the nested module, seen from wherever in this module we run.
func sourceDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	mod := strings.TrimSpace(string(out))
	if err != nil || mod == "" || mod == os.DevNull {
		return "", fmt.Errorf("looking for the source: not inside the module (%w)", err)
	}
	return filepath.Join(filepath.Dir(mod), "test", "controlplane"), nil
}

// build runs go build. The flags must always be these: others do not share the
// build cache.
func build(ctx context.Context, source, program string, log func(string)) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-trimpath", "-o", program, "./cmd/kcluster")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	last := make(chan string, 1)
	go func() { last <- report(r, log) }()
	err := cmd.Run()
	_ = w.Close()
	if said := <-last; err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

// report reads what go build -v prints, one line per package that it compiles,
// logs now and then how far it is, and returns the last few lines.
func report(r io.Reader, log func(string)) string {
	began, logged := time.Now(), time.Now()
	var tail []string
	n := 0
	for lines := bufio.NewScanner(r); lines.Scan(); {
		n++
		if tail = append(tail, lines.Text()); len(tail) > 10 {
			tail = tail[1:]
		}
		if n == 1 || time.Since(logged) > progressInterval {
			logged = time.Now()
			log(fmt.Sprintf("building the control plane: %d packages after %.0f s (%s)",
				n, time.Since(began).Seconds(), lines.Text()))
		}
	}
	return strings.Join(tail, "\n")
}
