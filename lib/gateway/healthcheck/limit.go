package healthcheck

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// clientTimeout bounds the time for a client to send its request, and that to take the answer.
const clientTimeout = 5 * time.Second

// maxOpen bounds the open connections of a limit. Anybody may connect to these ports, and every connection takes a descriptor.
const maxOpen = 500

// newServer returns a server of small answers: one for each connection.
func newServer(h http.Handler) *http.Server {
	s := &http.Server{Handler: h, ReadHeaderTimeout: clientTimeout, ReadTimeout: clientTimeout, WriteTimeout: clientTimeout, MaxHeaderBytes: 16 << 10}
	s.SetKeepAlivesEnabled(false)
	return s
}

// A limit bounds the open connections of some listeners. Another one closes the oldest: so silent clients hold up
// no load balancer, whose request comes at once. The zero value has none.
type limit struct {
	mu   sync.Mutex
	open []*limited // the oldest first
}

// A limitedListener accepts connections of a limit.
type limitedListener struct {
	net.Listener
	limit *limit
}

// A limited is an open connection of a limit.
type limited struct {
	net.Conn
	limit *limit
}

// listener returns a listener whose connections belong to the limit.
func (l *limit) listener(of net.Listener) net.Listener { return limitedListener{of, l} }

// Accept implements net.Listener.
func (l limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.limit.add(c), nil
}

func (l *limit) add(c net.Conn) net.Conn {
	now := &limited{c, l}
	l.mu.Lock()
	var oldest *limited
	if len(l.open) >= maxOpen {
		oldest = l.open[0]
		l.open = slices.Delete(l.open, 0, 1)
	}
	l.open = append(l.open, now)
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Conn.Close()
	}
	return now
}

// Close implements net.Conn.
func (c *limited) Close() error {
	c.limit.mu.Lock()
	if at := slices.Index(c.limit.open, c); at >= 0 {
		c.limit.open = slices.Delete(c.limit.open, at, at+1)
	}
	c.limit.mu.Unlock()
	return c.Conn.Close()
}
