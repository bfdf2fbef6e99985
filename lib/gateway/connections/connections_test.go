package connections

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/ofctl"
)

// L8: only connections to deleted endpoints are deleted, a bounded number of times, and not
// once the endpoint is back.
func TestStaleConnectionsAreForgottenAFewTimes(t *testing.T) {
	at := func(endpoint string) ofctl.Connection {
		return ofctl.Connection{To: netip.MustParseAddrPort("172.30.0.10:53"), Answers: netip.MustParseAddrPort(endpoint)}
	}
	a, b := at("10.128.1.3:53"), at("10.128.1.4:53")
	s, now := stale{pending: map[ofctl.Connection]retry{}}, time.Unix(0, 0)
	s.update(map[ofctl.Connection]bool{a: true, b: true})
	if due, next := s.due(now), s.next(now); len(due) != 0 || !next.IsZero() {
		t.Errorf("at first: %v, %v", due, next)
	}
	s.update(map[ofctl.Connection]bool{b: true})
	times := 0
	for {
		for _, c := range s.due(now) {
			if times++; c != a {
				t.Errorf("forgot %v", c)
			}
			s.deleted(c, now)
		}
		if again := s.due(now); len(again) != 0 {
			t.Error("forgotten twice at a time")
		}
		next := s.next(now)
		if next.IsZero() {
			break
		}
		now = next
	}
	if times != staleTries || now.Sub(time.Unix(0, 0)) != 15*time.Second {
		t.Errorf("forgotten %d times in %v", times, now.Sub(time.Unix(0, 0)))
	}
	s.update(map[ofctl.Connection]bool{a: true})
	s.update(map[ofctl.Connection]bool{a: true, b: true})
	if due := s.due(now); len(due) != 0 {
		t.Errorf("an endpoint that is back: %v", due)
	}
}

// A failed deletion is no try: the connection stays due however often it fails, and the others are deleted.
func TestFailedDeletionsAreRepeated(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	script := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *10.128.1.3*) [ -e %s/hangs ] && { echo it hangs >&2; exit 1; };; esac\necho \"$*\" >>%s\n", dir, log)
	if err := os.WriteFile(filepath.Join(dir, "ovs-appctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hangs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	connection := func(endpoint string) ofctl.Connection {
		return ofctl.Connection{To: netip.MustParseAddrPort("172.30.0.10:53"), Answers: netip.MustParseAddrPort(endpoint)}
	}
	broken, fine := connection("10.128.1.3:53"), connection("10.128.1.4:53")
	o := New(dir, logrus.NewEntry(logrus.New()), func() {})
	o.update(map[ofctl.Connection]bool{broken: true, fine: true})
	o.last = [][]ofctl.Connection{{broken, fine}}
	deleted := func() string {
		text, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return string(text)
	}
	for i := range 2 * staleTries {
		if err := o.Forget(t.Context(), nil); err == nil {
			t.Fatalf("no error of try %d", i)
		}
	}
	if !strings.Contains(deleted(), "10.128.1.4") {
		t.Error("a connection was not deleted because of another one")
	}
	if err := os.Remove(filepath.Join(dir, "hangs")); err != nil {
		t.Fatal(err)
	}
	if err := o.Forget(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if !strings.Contains(deleted(), "10.128.1.3") {
		t.Error("a connection that could not be deleted was given up")
	}
}
