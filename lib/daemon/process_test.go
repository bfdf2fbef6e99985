package daemon

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// One restart at once, then at most one in 10 s.
func TestRestartDelay(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		last time.Time
		want time.Duration
	}{
		{time.Time{}, 0},
		{now, 10 * time.Second},
		{now.Add(-3 * time.Second), 7 * time.Second},
		{now.Add(-10 * time.Second), 0},
		{now.Add(-time.Hour), 0},
	} {
		if got := restartDelay(tt.last, now); got != tt.want {
			t.Errorf("last %v: %v, want %v", tt.last, got, tt.want)
		}
	}
}

func TestWhatIsACrash(t *testing.T) {
	for _, o := range []outcome{
		{signal: unix.SIGABRT}, {signal: unix.SIGALRM}, {signal: unix.SIGBUS}, {signal: unix.SIGFPE}, {signal: unix.SIGILL},
		{signal: unix.SIGPIPE}, {signal: unix.SIGSEGV}, {signal: unix.SIGXCPU}, {signal: unix.SIGXFSZ}, {signal: unix.SIGKILL}, {status: 5},
	} {
		if !o.crash() {
			t.Errorf("%v is none", o)
		}
	}
	for _, o := range []outcome{{}, {status: 1}, {status: 2}, {signal: unix.SIGTERM}, {signal: unix.SIGINT}, {signal: unix.SIGHUP}, {signal: unix.SIGUSR1}} {
		if o.crash() {
			t.Errorf("%v is one", o)
		}
	}
}

// A child that was ready and ended, both before anybody looked, was ready: a monitor restarts it.
func TestReadyBeforeTheEnd(t *testing.T) {
	end := errors.New("killed")
	for _, was := range []bool{true, false} {
		for range 100 { // the two come in any order
			c := &child{ready: make(chan bool, 1), ended: make(chan error, 1)}
			c.ready <- was
			c.ended <- end
			ready, err := c.untilReady(t.Context())
			if ready {
				err = c.untilEnd(t.Context())
			}
			if ready != was || err != end {
				t.Fatalf("ready: %v, want %v; %v", ready, was, err)
			}
		}
	}
}
