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
)

const (
	// keystroke is how often a Session sends a line.
	keystroke = 20 * time.Millisecond
	// reconnectTimeout is how long a Session tries to connect again.
	reconnectTimeout = 2 * time.Second
)

// lost is when a Session of datagrams gives up an answer. Nobody repeats them.
const lost = 100 * time.Millisecond

// A Session is a TCP connection on which somebody types: a line now and then,
// which the Server answers. Its kernel repeats what is lost, for long; only a
// reset, or a Server that is gone, breaks it. Or it is a UDP socket, from which a
// line is sent again and again.
type Session struct {
	probe Probe
	end   context.CancelFunc
	wg    sync.WaitGroup

	mu  sync.Mutex
	now Typed
}

// Typed is what happened on a Session.
type Typed struct {
	// Lines is the number of lines that were answered.
	Lines int
	// Resets is how often the connection broke. A new one follows.
	Resets int
	// Silence is the longest time that an answer took.
	Silence time.Duration
	// Last is when the last answer came.
	Last time.Time
	// Err is why it broke last.
	Err error
}

// OpenSession connects by TCP from a network namespace to a Server. Its user must
// Close it.
func OpenSession(ctx context.Context, netns string, server netip.AddrPort) (*Session, error) {
	return Probe{Netns: netns, Network: "tcp", Address: server}.Open(ctx)
}

// Open opens a session with whom p asks, by TCP or UDP. Its user must Close it.
func (p Probe) Open(ctx context.Context) (*Session, error) {
	s := &Session{probe: p}
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("opening a session, %v: %w", p, err)
	}
	life, end := context.WithCancel(context.Background())
	s.end = end
	s.wg.Go(func() { s.run(life, conn) })
	return s, nil
}

func (s *Session) connect(ctx context.Context) (conn net.Conn, err error) {
	err = In(s.probe.Netns, func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, s.probe.Network, s.probe.Address.String())
		return err
	})
	return conn, err
}

// run types until ctx ends.
func (s *Session) run(ctx context.Context, conn net.Conn) {
	for ctx.Err() == nil {
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		err := s.typeOn(ctx, conn)
		stop()
		_ = conn.Close()
		for ctx.Err() == nil {
			s.note(func(t *Typed) { t.Resets, t.Err = t.Resets+1, err })
			try, cancel := context.WithTimeout(ctx, reconnectTimeout)
			conn, err = s.connect(try)
			cancel()
			if err == nil {
				break
			}
		}
	}
}

// typeOn types on a connection until it breaks.
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

// Typed is what happened until now.
func (s *Session) Typed() Typed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// errIdle says that a Session has not typed.
var errIdle = errors.New("no line was answered")

// Undisturbed returns an error if the connection ever broke, or if nothing was
// answered since the given state.
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

// Close ends the session and says what happened on it.
func (s *Session) Close() Typed {
	s.end()
	s.wg.Wait()
	return s.Typed()
}
