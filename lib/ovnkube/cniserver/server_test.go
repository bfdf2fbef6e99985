package cniserver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/cni/protocol"
	"ovn-k8s/lib/config"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/test/poll"
	"ovn-k8s/test/require"
)

// noSwitch are the settings of a host without Open vSwitch.
type noSwitch struct{ dir string }

func (s noSwitch) RunDir() (string, error) { return s.dir, nil }

func (s noSwitch) Load(context.Context, *vswitch.Switch) (config.Config, error) {
	return config.Config{RunDir: s.dir}, nil
}

// start starts a server with a new socket. stop ends it.
func start(t *testing.T, socket string) (stop func()) {
	t.Helper()
	s := New(Options{Socket: socket, Settings: noSwitch{t.TempDir()}, Pods: NewPods(), Log: quiet()})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	select {
	case <-s.Ready():
	case err := <-ended:
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func quiet() *logrus.Entry {
	l := logrus.New()
	l.SetOutput(io.Discard)
	return logrus.NewEntry(l)
}

func needRoot(t *testing.T) {
	t.Helper()
	missing := ""
	if os.Geteuid() != 0 {
		missing = "root"
	}
	require.Nothing(t, require.Node, missing)
}

// newSocket is a path in a directory to be made.
func newSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cni") // short: the path of a socket has at most 107 characters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "cni", "server.sock")
}

// A response is the answer to a request.
type response struct {
	status int
	kind   string
	body   string
}

// send sends a text as an HTTP request and returns the answer.
func send(t *testing.T, socket, text string) response {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, text) // the server may answer before it has all
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%.100s: %v", text, err)
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return response{r.StatusCode, r.Header.Get("Content-Type"), string(body)}
}

// post is a request with a body.
func post(body string) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: dummy\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// body is the body of a request.
func body(t *testing.T, config string, env ...string) string {
	t.Helper()
	r := protocol.Request{Env: map[string]string{}, Config: []byte(config)}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		r.Env[k] = v
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const conf = `{"cniVersion":"1.1.0","name":"ovn-kubernetes","type":"x"}`

// AC-60: the directory has mode 0700, the socket 0600, both of root; another user cannot connect.
func TestAC60_OnlyRootConnects(t *testing.T) {
	needRoot(t)
	socket := newSocket(t)
	if err := os.MkdirAll(filepath.Dir(socket), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(socket), 0o777); err != nil {
		t.Fatal(err)
	}
	start(t, socket)
	for path, want := range map[string]fs.FileMode{filepath.Dir(socket): fs.ModeDir | 0o700, socket: fs.ModeSocket | 0o600} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
	if err := os.Chmod(filepath.Dir(filepath.Dir(socket)), 0o755); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0); errno != 0 {
			refused <- errno
			return
		}
		_, err := net.Dial("unix", socket)
		refused <- err
	}()
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("connecting as another user: %v", err)
	}
}

// AC-61, and the other requests that no runtime sends: each gets one line, and the server goes on.
func TestAC61_BadRequests(t *testing.T) {
	socket := newSocket(t)
	start(t, socket)
	container := []string{"CNI_COMMAND=ADD", "CNI_CONTAINERID=0123", "CNI_NETNS=/nonexistent", "CNI_IFNAME=eth0", "CNI_ARGS=K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"}
	with := func(kv ...string) []string { return append(append([]string{}, container...), kv...) }
	for _, test := range []struct {
		name, request string
		status        int
		want          string
	}{
		{"GET", "GET / HTTP/1.1\r\nHost: dummy\r\n\r\n", 405, `method "GET": want POST`},
		{"another path", "POST /metrics HTTP/1.1\r\nHost: dummy\r\nContent-Length: 0\r\n\r\n", 404, `path "/metrics": want /`},
		{"not HTTP", "hello\r\n\r\n", 400, "Bad Request"},
		{"a large header", "POST / HTTP/1.1\r\nHost: dummy\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", 431, "Request Header Fields Too Large"},
		{"nothing", post(""), 400, "the request is not JSON of the form"},
		{"not JSON", post("hello"), 400, "the request is not JSON of the form"},
		{"deep JSON", post(strings.Repeat("[", 1<<19)), 400, "the request is not JSON of the form"},
		{"another type", post(`{"env": [], "config": ""}`), 400, "the request is not JSON of the form"},
		{"config is not base64", post(`{"env": {}, "config": "{}"}`), 400, "illegal base64 data"},
		{"no env", post(`{"config": "e30="}`), 400, "the request lacks env CNI_COMMAND"},
		{"no config", post(body(t, "", container...)), 400, "the request lacks config"},
		{"config is not JSON", post(body(t, "x", container...)), 400, "config is not JSON"},
		{"config without name", post(body(t, `{"cniVersion":"1.1.0"}`, container...)), 400, "config lacks name"},
		{"a network name with a path", post(body(t, `{"name":"../x"}`, container...)), 400, "../x"},
		{"a version of the future", post(body(t, `{"cniVersion":"9.9.9","name":"x"}`, container...)), 400, `config has cniVersion "9.9.9": want one of 0.1.0`},
		{"unknown command", post(body(t, conf, "CNI_COMMAND=SING")), 400, `CNI_COMMAND is "SING"`},
		{"no container", post(body(t, conf, with("CNI_CONTAINERID=")...)), 400, "the request lacks env CNI_CONTAINERID"},
		{"a container with a path", post(body(t, conf, with("CNI_CONTAINERID=../../etc")...)), 400, "../../etc"},
		{"no namespace", post(body(t, conf, with("CNI_NETNS=")...)), 400, "the request lacks env CNI_NETNS"},
		{"DEL without the key CNI_NETNS", post(body(t, conf, "CNI_COMMAND=DEL", "CNI_CONTAINERID=0123")), 400, "the request lacks env CNI_NETNS"},
		{"a long interface name", post(body(t, conf, with("CNI_IFNAME="+strings.Repeat("x", 1<<10))...)), 400, "too long"},
		{"no CNI_ARGS", post(body(t, conf, container[:4]...)), 400, `"code":100,"msg":"required CNI variables missing","details":"K8S_POD_NAMESPACE in CNI_ARGS"`},
		{"larger than 1 MiB", post(strings.Repeat(" ", protocol.MaxRequest+1)), 413, "the request is larger than 1048576 bytes"},
		{"much larger", post(strings.Repeat(" ", 20*protocol.MaxRequest)), 413, "the request is larger than 1048576 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := send(t, socket, test.request)
			if got.status != test.status || !strings.Contains(got.body, test.want) {
				t.Errorf("got %d %.1000s", got.status, got.body)
			}
			if line := strings.TrimSuffix(got.body, "\n"); strings.Contains(line, "\n") || len(line) > 600 {
				t.Errorf("not one line: %.1000q", line)
			}
		})
	}
	if got := send(t, socket, post(body(t, "", "CNI_COMMAND=VERSION"))); got.status != 200 || !strings.Contains(got.body, `"supportedVersions":["0.1.0"`) {
		t.Errorf("VERSION: %+v", got)
	}
}

// The errors of commands are those of the plugin.
func TestFailuresOfCommands(t *testing.T) {
	socket := newSocket(t)
	start(t, socket)
	got := send(t, socket, post(body(t, conf, "CNI_COMMAND=STATUS")))
	var f protocol.Failure
	if err := json.Unmarshal([]byte(got.body), &f); err != nil || got.status != 400 || got.kind != "application/json" || f.Code != 51 || f.Version != "1.1.0" {
		t.Errorf("STATUS: %+v, %v", got, err)
	}
	if got := send(t, socket, post(body(t, conf, "CNI_COMMAND=DEL", "CNI_CONTAINERID=0123", "CNI_NETNS="))); got.status != 200 || got.body != "" {
		t.Errorf("DEL: %+v", got)
	}
}

// Clients that hang before, in and after a request are cut off, and cost the others nothing.
func TestClientsThatHang(t *testing.T) {
	socket := newSocket(t)
	stop := start(t, socket)
	whole := post(body(t, conf, "CNI_COMMAND=STATUS"))
	var hanging []net.Conn
	for n := range 300 {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, whole[:len(whole)*n/300]); err != nil {
			t.Fatal(err)
		}
		hanging = append(hanging, c)
	}
	if got := send(t, socket, whole); got.status != 400 {
		t.Errorf("STATUS among clients that hang: %+v", got)
	}
	for n, c := range hanging { // the server ends each connection, perhaps with an answer
		if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("client %d: %v", n, err)
		}
	}
	again, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	stop() // does not wait for it
}

// A stale socket is taken over. A socket with a server is refused, by one line with its PID; so is a path that is not the
// server's to remove.
func TestTakingOverASocket(t *testing.T) {
	needRoot(t)
	socket := newSocket(t)
	serve := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return New(Options{Socket: socket, Settings: noSwitch{}, Pods: NewPods(), Log: quiet()}).Serve(ctx)
	}
	stop := start(t, socket)
	want := fmt.Sprintf("CNI server: %s: another process serves it (PID %d): stop it first", socket, os.Getpid())
	if err := serve(); err == nil || err.Error() != want {
		t.Errorf("a second server: %v", err)
	}
	stop()
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket outlives the server")
	}
	foreign, err := net.Listen("unix", socket) // a server without the lock, such as that of another project
	if err != nil {
		t.Fatal(err)
	}
	if err := serve(); err == nil || err.Error() != want {
		t.Errorf("with a server of another project: %v", err)
	}
	foreign.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = foreign.Close()
	stop = start(t, socket) // it is stale
	if got := send(t, socket, post(body(t, "", "CNI_COMMAND=VERSION"))); got.status != 200 {
		t.Errorf("after a stale socket: %+v", got)
	}
	stop()
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := serve(); err == nil || !strings.Contains(err.Error(), "is not a socket: remove it") {
		t.Errorf("with a file: %v", err)
	}
	if err := os.RemoveAll(filepath.Dir(socket)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Dir(socket)); err != nil {
		t.Fatal(err)
	}
	if err := serve(); err == nil || !strings.Contains(err.Error(), "is not a directory: remove it") {
		t.Errorf("with a link: %v", err)
	}
	if err := os.Remove(filepath.Dir(socket)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Dir(socket), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := serve(); err == nil || !strings.Contains(err.Error(), "belongs to user 65534, and must belong to user 0: remove it") {
		t.Errorf("with another user's directory: %v", err)
	}
}

// A removed socket is made again, alone or with its directory.
func TestARemovedSocketIsMadeAgain(t *testing.T) {
	needRoot(t)
	socket := newSocket(t)
	stop := start(t, socket)
	for _, path := range []string{socket, filepath.Dir(socket)} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := poll.Until(ctx, func() error {
			c, err := net.Dial("unix", socket)
			if err == nil {
				_ = c.Close()
			}
			return err
		})
		cancel()
		if err != nil {
			t.Fatalf("without %s: %v", path, err)
		}
		if got := send(t, socket, post(body(t, "", "CNI_COMMAND=VERSION"))); got.status != 200 {
			t.Errorf("without %s: %+v", path, got)
		}
	}
	stop()
	if _, err := os.Lstat(socket); err == nil {
		t.Error("the socket outlives the server")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"env":{"CNI_COMMAND":"ADD","CNI_CONTAINERID":"a","CNI_NETNS":"/x"},"config":"e30="}`))
	f.Add([]byte(`{"env":{"CNI_COMMAND":"GC"},"config":"eyJuYW1lIjoieCJ9"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parse(text)
		if err != nil {
			return
		}
		if r.Command != "VERSION" && (r.Args == nil || len(r.Args.StdinData) == 0) {
			t.Errorf("accepted %q", text)
		}
		if r.Args != nil && strings.ContainsAny(r.Args.ContainerID+r.Args.IfName, "/\x00") {
			t.Errorf("accepted %+v", r.Args)
		}
	})
}
