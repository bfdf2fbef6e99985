package shim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"ovn-k8s/lib/cni/protocol"
)

// errAway means that the server is not there, or ended before its answer.
var errAway = errors.New("no CNI server")

// maxAnswer bounds the size of an answer in bytes, with its header.
const maxAnswer = 1 << 20

// undoGrace bounds the time in which the server undoes a call that has ended.
const undoGrace = 30 * time.Second

// An answer is the answer of the server.
type answer struct {
	result  []byte            // of ADD, as JSON
	failure *protocol.Failure // nil: success
}

// ask sends a request. The error wraps errAway if the server is not there. When ctx ends, the server is told by half of the
// connection, and its answer comes after it has undone the request.
func ask(ctx context.Context, socket string, body []byte) (answer, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EAGAIN) || isTimeout(err) {
		return answer{}, fmt.Errorf("%w: %w", errAway, err)
	}
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() {
		_ = c.(*net.UnixConn).CloseWrite()
		_ = c.SetDeadline(time.Now().Add(undoGrace))
	})()
	_, sent := fmt.Fprintf(c, "POST / HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	r, err := readResponse(c)
	if err != nil && sent != nil { // the server may refuse the request before it has all of it
		err = sent
	}
	if err != nil {
		return answer{}, away(err)
	}
	return r.answer()
}

// A response is a response of HTTP/1.0 (RFC 1945, section 6).
type response struct {
	status string // code and reason
	kind   string // media type
	body   []byte
}

// readResponse reads a response of a server that gives its length, as ours does. The standard client of HTTP is not used: its
// packages, such as TLS, take a fifth of the CPU time of the program to initialize.
func readResponse(c io.Reader) (response, error) {
	lines := textproto.NewReader(bufio.NewReader(io.LimitReader(c, maxAnswer)))
	first, err := lines.ReadLine()
	if err != nil {
		return response{}, err
	}
	version, status, _ := strings.Cut(first, " ")
	if !strings.HasPrefix(version, "HTTP/1.") {
		return response{}, fmt.Errorf("the answer starts with %.40q: want HTTP", first)
	}
	header, err := lines.ReadMIMEHeader()
	if err != nil {
		return response{}, err
	}
	length, err := strconv.ParseUint(header.Get("Content-Length"), 10, 32)
	if err != nil || length > maxAnswer {
		return response{}, fmt.Errorf("the answer has Content-Length %.40q: want at most %d", header.Get("Content-Length"), maxAnswer)
	}
	r := response{status: status, kind: header.Get("Content-Type"), body: make([]byte, length)}
	_, err = io.ReadFull(lines.R, r.body)
	return r, err
}

// away wraps errAway, except if the server is there but does not answer.
func away(err error) error {
	if isTimeout(err) {
		return errors.New("no answer")
	}
	return fmt.Errorf("%w: it ended before its answer: %w", errAway, err)
}

// isTimeout reports whether a deadline has passed. While connecting, it is that of the context.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// answer interprets a response: see protocol.Request.
func (r response) answer() (answer, error) {
	code, _, _ := strings.Cut(r.status, " ")
	switch {
	case code == "200":
		return answer{result: r.body}, nil
	case code == "503":
		return answer{}, fmt.Errorf("%w: it ends", errAway)
	case r.kind == "application/json":
		f := &protocol.Failure{}
		if err := json.Unmarshal(r.body, f); err == nil && f.Error != nil {
			return answer{failure: f}, nil
		}
	}
	refusal := types.NewError(protocol.Failed, "the CNI server of ovnkube refused the request", r.status+": "+strings.TrimSpace(string(r.body)))
	return answer{failure: &protocol.Failure{Error: refusal}}, nil
}
