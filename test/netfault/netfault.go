// Package netfault is a TCP proxy for tests of network faults. It forwards connections
// to a server and can cut them, hold back all data (as if every packet was lost),
// or refuse new connections.
package netfault

import (
	"net"
	"sync"
)

// A Wire forwards connections to a server. Clients connect to Addr.
type Wire struct {
	Addr string

	network, to string
	listener    net.Listener

	mu      sync.Mutex // guards the fields below
	silent  chan struct{}
	refuses bool
	conns   map[net.Conn]bool
}

// New returns a wire to a server; network and to are as in net.Dial. The caller
// must Close it.
func New(network, to string) (*Wire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &Wire{Addr: l.Addr().String(), network: network, to: to, listener: l, conns: map[net.Conn]bool{}}
	go w.accept()
	return w, nil
}

// Close ends the proxy and all connections.
func (w *Wire) Close() {
	_ = w.listener.Close()
	w.Heal()
	w.Cut()
}

// Cut closes all connections. New ones are accepted.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		_ = c.Close()
	}
	w.conns = map[net.Conn]bool{}
}

// Silence holds back all data until Heal. Connections stay open and new ones are
// accepted, but no answer arrives.
func (w *Wire) Silence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent == nil {
		w.silent = make(chan struct{})
	}
}

// Refuse closes all connections, and every new one immediately after accepting it.
func (w *Wire) Refuse() {
	w.mu.Lock()
	w.refuses = true
	w.mu.Unlock()
	w.Cut()
}

// Heal ends Silence and Refuse. It forwards the data held back.
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

// keep records both ends. It returns false while the wire refuses connections.
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

// copy forwards data in one direction until either end closes.
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
