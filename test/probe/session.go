package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"ovn-k8s/test/limit"
)

const (
	// keystroke is the time between two lines of a Session.
	keystroke = 20 * time.Millisecond
	// reconnectTimeout bounds one reconnection of a Session.
	reconnectTimeout = 2 * time.Second
)

// lost is the time a UDP Session waits for an answer. UDP does not retransmit.
const lost = 100 * time.Millisecond

// A Session is an interactive TCP connection: it sends lines regularly, and the
// Server answers each. The kernel retransmits lost segments for a long time, so
// only a reset or a missing Server breaks it. Or it is a UDP socket sending lines
// regularly.
type Session struct {
	probe Probe
	end   context.CancelFunc
	wg    sync.WaitGroup

	mu  sync.Mutex
	now Typed
}

// Typed is the result of a Session.
type Typed struct {
	// Lines is the number of answered lines.
	Lines int
	// Resets is the number of broken connections. A new one is opened after each.
	Resets int
	// Silence is the longest time until an answer.
	Silence time.Duration
	// Last is the time of the last answer.
	Last time.Time
	// Err is the error of the last broken connection.
	Err error
}

// OpenSession connects by TCP from a network namespace to a Server. The caller must
// Close it.
func OpenSession(ctx context.Context, netns string, server netip.AddrPort) (*Session, error) {
	return Probe{Netns: netns, Network: "tcp", Address: server}.Open(ctx)
}

// Open opens a session with the server of p, by TCP, UDP or SCTP. The caller must Close it.
func (p Probe) Open(ctx context.Context) (*Session, error) {
	s := &Session{probe: p}
	conn, err := p.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("opening a session, %v: %w", p, err)
	}
	life, end := context.WithCancel(context.Background())
	s.end = end
	s.wg.Go(func() { s.run(life, conn) })
	return s, nil
}

// run sends lines until ctx ends, reconnecting when needed.
func (s *Session) run(ctx context.Context, conn net.Conn) {
	for ctx.Err() == nil {
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		err := s.typeOn(ctx, conn)
		stop()
		_ = conn.Close()
		for ctx.Err() == nil {
			s.note(func(t *Typed) { t.Resets, t.Err = t.Resets+1, err })
			try, cancel := context.WithTimeout(ctx, limit.Of(reconnectTimeout))
			conn, err = s.probe.dial(try)
			cancel()
			if err == nil {
				break
			}
		}
	}
}

// typeOn sends lines on a connection until it breaks.
func (s *Session) typeOn(ctx context.Context, conn net.Conn) error {
	tick := time.NewTicker(keystroke)
	defer tick.Stop()
	buffer := make([]byte, 512)
	for {
		began := time.Now()
		if _, err := conn.Write([]byte("hello\n")); err != nil {
			return err
		}
		switch err := s.read(conn, buffer); {
		case err == nil:
			s.note(func(t *Typed) { t.Lines, t.Last, t.Silence = t.Lines+1, time.Now(), max(t.Silence, time.Since(began)) })
		case s.probe.Network != "udp" || !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (s *Session) read(conn net.Conn, buffer []byte) error {
	if s.probe.Network == "udp" {
		_ = conn.SetReadDeadline(time.Now().Add(lost))
	}
	_, err := conn.Read(buffer)
	return err
}

func (s *Session) note(f func(*Typed)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.now)
}

// Typed returns the result so far.
func (s *Session) Typed() Typed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// errIdle means that no line was answered.
var errIdle = errors.New("no line was answered")

// Undisturbed returns an error if the connection ever broke, or if no line was
// answered since the given result.
func (s *Session) Undisturbed(since Typed) error {
	now := s.Typed()
	switch {
	case now.Resets > 0:
		return fmt.Errorf("session %v: %d resets, the last: %w", s.probe, now.Resets, now.Err)
	case now.Lines == since.Lines:
		return fmt.Errorf("session %v: %w", s.probe, errIdle)
	}
	return nil
}

// Close ends the session and returns its result.
func (s *Session) Close() Typed {
	s.end()
	s.wg.Wait()
	return s.Typed()
}
