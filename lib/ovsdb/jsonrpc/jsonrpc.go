// Package jsonrpc is a connection to an OVSDB server (RFC 7047, section 4) for
// the large messages: rows of followed tables, and transactions. It reads
// messages while they arrive, into libovsdb's types of values.
package jsonrpc

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// A Conn is a connection. libovsdb's own connection stays for the rest; it parses a value up to seven times and keeps
// a buffer of the largest message.
type Conn struct {
	conn net.Conn

	writing sync.Mutex
	mu      sync.Mutex // guards the following fields
	calls   map[string]chan<- message
	last    int
	gone    error // the reason for no more replies
}

// Dial connects to a remote in the spelling of config.ParseRemotes. c is for ssl:.
func Dial(ctx context.Context, remote string, c *tls.Config) (*Conn, error) {
	scheme, addr, _ := strings.Cut(remote, ":")
	var conn net.Conn
	var err error
	switch scheme {
	case "ssl":
		conn, err = (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", addr)
	default:
		conn, err = (&net.Dialer{}).DialContext(ctx, scheme, addr)
	}
	if err != nil {
		return nil, err
	}
	return &Conn{conn: conn, calls: map[string]chan<- message{}}, nil
}

// Run reads until the connection ends, and returns the reason. take gets rows, and news counts reads from the
// server.
func (r *Conn) Run(take func(ovsdb.TableUpdates2) error, news *atomic.Uint64) error {
	d := newDecoder(bufio.NewReaderSize(counter{r.conn, news}, 1<<16), take)
	for {
		m, err := d.message()
		if err != nil {
			return r.end(err)
		}
		switch m.method {
		case "":
			r.answer(m)
		case "echo": // in a goroutine: else neither side might read while both write
			go r.echo(m)
		}
	}
}

// Close ends the connection, and Run.
func (r *Conn) Close() { r.conn.Close() }

// A counter counts calls of Read.
type counter struct {
	io.Reader
	n *atomic.Uint64
}

// Read implements io.Reader.
func (c counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(1)
	return n, err
}

func notNil(params []jsontext.Value) []jsontext.Value { return append([]jsontext.Value{}, params...) }

// end has all calls return, and returns the reason in a few words.
func (r *Conn) end(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("closed by the server")
	} else if why := NetworkError(err); why != nil {
		err = why
	}
	r.conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = err
	for _, c := range r.calls {
		close(c)
	}
	r.calls = nil
	return err
}

// NetworkError returns the reason of a network error without the address, or nil for other errors.
func NetworkError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return nil
}

// answer passes a reply to its call, if the call still waits.
func (r *Conn) answer(m message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.calls[string(m.id)]; c != nil {
		c <- m
		delete(r.calls, string(m.id))
	}
}

// Transact sends a transaction and waits for the reply.
func (r *Conn) Transact(ctx context.Context, database string, ops ...ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	return r.request(ctx, func(id int) ([]byte, error) { return transact(id, database, ops) })
}

// Call sends a request of another method and waits for the reply.
func (r *Conn) Call(ctx context.Context, method string, params ...any) ([]ovsdb.OperationResult, error) {
	return r.request(ctx, func(id int) ([]byte, error) { return json.Marshal(request{method, append([]any{}, params...), id}) })
}

// request sends the message made by encode for a new ID, and waits for the reply.
func (r *Conn) request(ctx context.Context, encode func(id int) ([]byte, error)) ([]ovsdb.OperationResult, error) {
	reply := make(chan message, 1)
	id, err := r.register(reply)
	if err != nil {
		return nil, err
	}
	text, err := encode(id)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	if err := r.send(text); err != nil {
		return nil, fmt.Errorf("%w: %w", client.ErrNotConnected, err)
	}
	select {
	case m, ok := <-reply:
		switch {
		case !ok:
			return nil, client.ErrNotConnected
		case m.refused != "":
			return nil, errors.New(m.refused)
		}
		return m.results, nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.calls, strconv.Itoa(id))
		return nil, ctx.Err()
	}
}

type request struct {
	Method string `json:"method"`
	Params []any  `json:"params"`
	ID     int    `json:"id"`
}

// register gives a call an ID.
func (r *Conn) register(reply chan<- message) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone != nil {
		return 0, client.ErrNotConnected
	}
	r.last++
	r.calls[strconv.Itoa(r.last)] = reply
	return r.last, nil
}

// echo answers the request to send its parameters back.
func (r *Conn) echo(m message) {
	if text, err := json.Marshal(map[string]any{"id": m.id, "result": notNil(m.params), "error": nil}); err == nil {
		_ = r.send(text) // a lost connection is seen by Run
	}
}

// send writes a request or a reply.
func (r *Conn) send(text []byte) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	_, err := r.conn.Write(text)
	return err
}
