package healthcheck

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func dial(t *testing.T, to net.Addr) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// L3: a server of health checks answers once over a connection, and closes it.
func TestNoConnectionIsKept(t *testing.T) {
	l, s := listen(t), newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	go func() { _ = s.Serve(l) }()
	defer func() { _ = s.Shutdown(context.Background()) }()
	c := dial(t, l.Addr())
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: n1\r\nConnection: keep-alive\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	answer, err := http.ReadResponse(r, nil)
	if err != nil || answer.StatusCode != http.StatusOK || !answer.Close {
		t.Fatalf("%v, %+v", err, answer)
	}
	_ = answer.Body.Close()
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection is kept: %v", err)
	}
	if s.ReadHeaderTimeout == 0 || s.ReadTimeout == 0 || s.WriteTimeout == 0 {
		t.Error("a client may take any time")
	}
}

// L3: of too many connections to all ports together the oldest is closed, and the others go on.
func TestTheOldestConnectionGivesWay(t *testing.T) {
	var all limit
	first, second := listen(t), listen(t)
	ends := map[net.Conn]net.Conn{}
	connect := func(l net.Listener) (client net.Conn) {
		client = dial(t, l.Addr())
		end, err := all.listener(l).Accept()
		if err != nil {
			t.Fatal(err)
		}
		ends[client] = end
		return client
	}
	var clients []net.Conn
	for range maxOpen {
		clients = append(clients, connect(first))
	}
	answered := func(client net.Conn) {
		t.Helper()
		if _, err := io.WriteString(ends[client], "x"); err != nil {
			t.Error(err)
		}
		if n, err := client.Read(make([]byte, 1)); n != 1 {
			t.Error(err)
		}
	}
	answered(clients[0])
	_ = ends[clients[1]].Close()
	connect(first) // in its place
	answered(clients[0])
	answered(connect(second))
	if n, err := clients[0].Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("the oldest is still there")
	}
	answered(clients[2])
	if len(all.open) != maxOpen {
		t.Errorf("%d are open", len(all.open))
	}
	_ = ends[clients[0]].Close()
	if len(all.open) != maxOpen {
		t.Errorf("%d are open after a second close", len(all.open))
	}
}
