package daemon

import (
	"bytes"
	"net"
	"path/filepath"
	"testing"
)

// H14: systemd shows in one line the reason of a daemon's wait.
func TestStatusForSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	var stderr bytes.Buffer
	Options{Detach: true}.Status("prog", &stderr)("waiting: a\nREADY=1")
	Options{}.Status("prog", &stderr)("serving")
	Ready()
	for _, want := range []string{"STATUS=waiting: a", "STATUS=serving", "READY=1"} {
		b := make([]byte, 100)
		if n, err := l.Read(b); err != nil || string(b[:n]) != want {
			t.Errorf("%q, %v, want %q", b[:n], err, want)
		}
	}
	if stderr.String() != "prog: waiting: a\n" {
		t.Errorf("stderr %q", &stderr)
	}
}
