package shim

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"ovn-k8s/lib/cni/protocol"
)

// errAway means that the server is not there, or ended before its answer.
var errAway = errors.New("no CNI server")

// maxAnswer bounds the size of an answer in bytes.
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
	r, err := http.NewRequest(http.MethodPost, "http://dummy/", bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Content-Type", "application/json")
	sent := r.Write(c) // the server may refuse the request before it has all of it
	response, err := http.ReadResponse(bufio.NewReader(c), r)
	if err != nil && sent != nil {
		err = sent
	}
	if err != nil {
		return answer{}, away(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return answer{}, away(err)
	}
	return read(response, text)
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

// read interprets a response: see protocol.Request.
func read(response *http.Response, text []byte) (answer, error) {
	switch {
	case response.StatusCode == http.StatusOK:
		return answer{result: text}, nil
	case response.StatusCode == http.StatusServiceUnavailable:
		return answer{}, fmt.Errorf("%w: it ends", errAway)
	case response.Header.Get("Content-Type") == "application/json":
		f := &protocol.Failure{}
		if err := json.Unmarshal(text, f); err == nil && f.Error != nil {
			return answer{failure: f}, nil
		}
	}
	refusal := types.NewError(protocol.Failed, "the CNI server of ovnkube refused the request", response.Status+": "+strings.TrimSpace(string(text)))
	return answer{failure: &protocol.Failure{Error: refusal}}, nil
}
