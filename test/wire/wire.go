// Package wire is a TCP connection that a test can break: it leads to a server,
// and can be cut, be silent as if every packet was lost, or refuse.
package wire

import (
	"net"
	"sync"
)

// A Wire leads to a server. Clients connect to Addr.
type Wire struct {
	Addr string

	network, to string
	listener    net.Listener

	mu      sync.Mutex // guards what follows
	silent  chan struct{}
	refuses bool
	conns   map[net.Conn]bool
}

// New returns a wire to a server, whose network and address are as for net.Dial.
// Its user must Close it.
func New(network, to string) (*Wire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &Wire{Addr: l.Addr().String(), network: network, to: to, listener: l, conns: map[net.Conn]bool{}}
	go w.accept()
	return w, nil
}

// Close cuts the wire for good.
func (w *Wire) Close() {
	_ = w.listener.Close()
	w.Heal()
	w.Cut()
}

// Cut ends all connections. New ones are made again.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.Close()
	}
	w.conns = map[net.Conn]bool{}
}

// Silence lets nothing pass any more, and tells nobody: connections stay, and new
// ones are accepted, but nothing comes back.
func (w *Wire) Silence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent == nil {
		w.silent = make(chan struct{})
	}
}

// Refuse cuts the wire, and every new connection at once.
func (w *Wire) Refuse() {
	w.mu.Lock()
	w.refuses = true
	w.mu.Unlock()
	w.Cut()
}

// Heal lets everything pass again, with what was held back.
func (w *Wire) Heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuses = false; w.silent != nil {
		close(w.silent)
		w.silent = nil
	}
}

func (w *Wire) accept() {
	for {
		in, err := w.listener.Accept()
		if err != nil {
			return
		}
		go w.serve(in)
	}
}

func (w *Wire) serve(in net.Conn) {
	w.pause()
	out, err := net.Dial(w.network, w.to)
	if err != nil || !w.keep(in, out) {
		_ = in.Close()
		return
	}
	go w.copy(out, in)
	w.copy(in, out)
}

// keep remembers both ends. It reports false while the wire refuses.
func (w *Wire) keep(in, out net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuses {
		_ = out.Close()
		return false
	}
	w.conns[in], w.conns[out] = true, true
	return true
}

// pause waits while the wire is silent.
func (w *Wire) pause() {
	w.mu.Lock()
	silent := w.silent
	w.mu.Unlock()
	if silent != nil {
		<-silent
	}
}

// copy passes on what comes from one end until either ends.
func (w *Wire) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		w.pause()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
