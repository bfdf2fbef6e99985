package gateway

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/reconcile"
	"ovn-k8s/test/limit"
)

// A lineWriter is called with each line of a log.
type lineWriter func(string)

func (w lineWriter) Write(line []byte) (int, error) {
	w(string(line))
	return len(line), nil
}

// Addresses not read once, for lack of a file descriptor, are read again without another change of them.
func TestAddressesAreReadAgain(t *testing.T) {
	var former syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &former); err != nil {
		t.Fatal(err)
	}
	restore := func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &former) }
	t.Cleanup(restore)
	var lines []string
	log := logrus.New()
	log.SetOutput(lineWriter(func(line string) {
		lines = append(lines, line)
		restore()
	}))
	ctx, cancel := context.WithTimeout(t.Context(), limit.Of(10*time.Second))
	defer cancel()
	e := &engine{helper: &Helper{}, log: logrus.NewEntry(log)}
	e.loop = reconcile.Loop[event, string]{Record: func(ev event) []string {
		ev()
		cancel()
		return nil
	}}
	next, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	one := syscall.Rlimit{Cur: uint64(next.Fd()) + 1, Max: former.Max}
	_ = next.Close()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &one); err != nil { // enough to follow, but not to read
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		e.followAddresses(ctx)
		close(ended)
	}()
	_ = e.loop.Run(ctx)
	<-ended
	if len(lines) != 1 || !strings.Contains(lines[0], "too many open files") || strings.Contains(lines[0], "following") || e.addrs == nil {
		t.Errorf("addresses %v after %q", e.addrs, lines)
	}
}
