package daemon_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// dial connects to the only daemon in w.
func (w *world) dial(pid int) net.Conn {
	w.t.Helper()
	conn, err := net.Dial("unix", w.path(ctl(pid)))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// ask sends text and returns the next reply, compact.
func ask(t *testing.T, conn net.Conn, dec *json.Decoder, text string) string {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	var reply json.RawMessage
	if err := dec.Decode(&reply); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return string(reply)
}

func TestControlProtocol(t *testing.T) {
	w := newWorld(t)
	w.start()
	conn := w.dial(w.ready())
	dec := json.NewDecoder(conn)
	for _, tt := range []struct{ ask, want string }{
		{`{"id":0,"method":"version","params":[]}`, `{"id":0,"result":"prog 1.2.3\n","error":null}`},
		{`{"id":"x","method":"test/say","params":["a","b c"]}`, `{"id":"x","result":"a|b c\n","error":null}`},
		{`{"id":null,"method":"version","params":[]} {"id":1,"method":"test/say","params":["` + "\u00e9\\n" + `"]}`, `{"id":1,"result":"é\n","error":null}`},
		{`{"id":2,"method":"test/fail","params":[]}`, `{"id":2,"result":null,"error":"not today\n"}`},
		{`{"id":3,"method":"test/say","params":[]}`, `{"id":3,"result":null,"error":"\"test/say\" command requires at least 1 arguments\n"}`},
		{`{"id":4,"method":"test/say","params":["1","2","3","4"]}`, `{"id":4,"result":null,"error":"\"test/say\" command takes at most 3 arguments\n"}`},
		{`{"id":5,"method":"test/say","params":[1]}`, `{"id":5,"result":null,"error":"\"test/say\" command has non-string argument\n"}`},
		{`{"id":6,"method":"test/say","params":[null]}`, `{"id":6,"result":null,"error":"\"test/say\" command has non-string argument\n"}`},
		{`{"id":7,"method":"nope"}`, `{"id":7,"result":null,"error":"\"nope\" is not a valid command (use \"list-commands\" to see a list of valid commands)\n"}`},
		{`{"id":8,"method":"exit","params":[]}`, `{"id":8,"result":"","error":null}`},
	} {
		if got := ask(t, conn, dec, tt.ask); got != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.ask, got, tt.want)
		}
	}
}

// Broken and stuck peers do not block others.
func TestBadPeersHarmNobody(t *testing.T) {
	w := newWorld(t)
	w.start("--pidfile")
	pid := w.ready()
	for _, junk := range []string{
		"\x00\xff not JSON\n", `{"id":1,"method":7}`, `{"id":1}`, `[]`, `{"id":1,"method":"version","params":"x"}`,
		strings.Repeat("[", 100_000), `{"id":1,"method":"` + strings.Repeat("x", 3<<20),
	} {
		conn := w.dial(pid)
		_, _ = io.WriteString(conn, junk) // the server may close it first
		if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%.20q: not cut off: %v", junk, err)
		}
	}
	for range 20 {
		_, _ = io.WriteString(w.dial(pid), `{"id":1,"meth`)                             // stuck in a request
		_, _ = io.WriteString(w.dial(pid), `{"id":1,"method":"test/hang","params":[]}`) // stuck in a command
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if status, out := w.appctl("-t", "prog", "test/say", "x"); status != 0 || out != "x\n" {
				t.Errorf("status %d: %s", status, out)
			}
		})
	}
	wg.Wait()
	w.kill(pid, unix.SIGTERM) // nor do they delay the end
	w.gone(pid)
	w.wantFiles()
}

// Errors are worded as in Open vSwitch.
func TestWordsAreOpenVSwitchs(t *testing.T) {
	needTool(t, "ovsdb-server")
	w := newWorld(t)
	cmd := exec.Command("ovsdb-server", w.database(), "--detach", "--pidfile", "-vconsole:off")
	cmd.Env = w.env()
	if status, out := w.finish(cmd); status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	w.reap(w.pidfile("ovsdb-server.pid"))
	w.start("--pidfile")
	w.ready()
	for _, args := range [][]string{
		{"nosuch"}, {"version", "x"}, {"exit", "a", "b"}, {"vlog/set", "a:b"}, {"vlog/set", "nosuch:dbg"},
		{"vlog/set", "dbg:info"}, {"vlog/set", "file:console"}, {"vlog/set", "info", "console:warn"}, {"vlog/close"}, {"vlog/reopen"},
	} {
		wantStatus, want := w.appctl(append([]string{"-t", "ovsdb-server"}, args...)...)
		want = strings.ReplaceAll(want, "ovsdb-server", "prog")
		if status, out := w.appctl(append([]string{"-t", "prog"}, args...)...); status != wantStatus || out != want && args[1:] == nil {
			t.Errorf("%q: status %d, %q, want %d, %q", args, status, out, wantStatus, want)
		}
	}
	header := func(target string) string {
		_, out := w.appctl("-t", target, "vlog/list")
		return strings.Join(strings.SplitAfterN(out, "\n", 3)[:2], "")
	}
	if a, b := header("prog"), header("ovsdb-server"); a != b {
		t.Errorf("vlog/list:\n%s%s", a, b)
	}
}

func TestUnixctlOption(t *testing.T) {
	for _, option := range []string{"sock", "/abs"} {
		w := newWorld(t)
		name := strings.TrimPrefix(option, "/")
		if option[0] == '/' {
			option = w.path(name)
		}
		r := w.start("--unixctl=" + option)
		w.ready()
		w.wantFiles(name)
		if status, out := w.appctl("-t", w.path(name), "version"); status != 0 || out != "prog 1.2.3\n" {
			t.Errorf("status %d: %s", status, out)
		}
		info, err := os.Stat(w.path(name))
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("others may connect: %v, %v", info.Mode(), err)
		}
		// A second process leaves a live socket alone.
		if status, stderr := w.run("--unixctl=" + option); status != 1 || stderr != "prog: making control socket: another process listens on "+w.path(name)+"\n" {
			t.Errorf("status %d: %s", status, stderr)
		}
		_ = r.cmd.Process.Kill()
		r.wait()
		w.wantFiles(name)
		r = w.start("--unixctl=" + option) // the stale one is replaced
		w.ready()
		if status, out := w.appctl("-t", w.path(name), "exit"); status != 0 {
			t.Errorf("status %d: %s", status, out)
		}
		r.wait()
		w.wantFiles()
	}
}

func TestUnixctlNone(t *testing.T) {
	w := newWorld(t)
	w.start("--unixctl=none")
	w.ready()
	w.wantFiles()
}

func TestUnixctlSparesOtherFiles(t *testing.T) {
	w := newWorld(t)
	if err := os.WriteFile(w.path("precious"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, stderr := w.run("--unixctl=precious")
	if want := fmt.Sprintf("prog: making control socket: %s exists and is not a socket\n", w.path("precious")); status != 1 || stderr != want {
		t.Errorf("status %d: %s", status, stderr)
	}
	w.wantFiles("precious")
}

// A socket's name has at most 107 bytes; directories may be longer.
func TestLongRunDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w := worldIn(t, dir)
	r := w.start("--pidfile")
	pid := w.ready()
	if status, out := w.appctl("-t", "prog", "version"); status != 0 || out != "prog 1.2.3\n" {
		t.Errorf("status %d: %s", status, out)
	}
	w.kill(pid, unix.SIGTERM)
	r.wait()
	w.wantFiles()
}
