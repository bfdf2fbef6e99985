package shim

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"

	"ovn-k8s/lib/cni/protocol"
)

// maxSize is the largest size of the program in bytes.
const maxSize = 8 << 20

// Each pod start pays for what is linked.
func TestTheShimIsSmall(t *testing.T) {
	const program = "../../../ovn-k8s-cni-shim"
	deps, err := exec.Command("go", "list", "-deps", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"k8s.io/", "libovsdb", "vishvananda/netlink", "sirupsen/logrus", "net/http", "crypto/tls", "ovn-k8s/lib/kube", "ovn-k8s/lib/ovsdb", "ovn-k8s/lib/link"} {
		for dep := range strings.Lines(string(deps)) {
			if strings.Contains(dep, module) {
				t.Errorf("the shim links %s", strings.TrimSpace(dep))
			}
		}
	}
	file := filepath.Join(t.TempDir(), "shim")
	if out, err := exec.Command("go", "build", "-o", file, program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxSize {
		t.Errorf("the shim has %d bytes, more than %d", info.Size(), maxSize)
	}
}

// server serves a socket until the end of the test.
func server(t *testing.T, path string, handle http.HandlerFunc) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handle}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return func() { _ = s.Close() }
}

func newCall(t *testing.T, command string) call {
	t.Helper()
	dir, err := os.MkdirTemp("", "shim") // short: the path of a socket has at most 107 characters
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return call{command, &skel.CmdArgs{ContainerID: "no-such-container", IfName: "eth0", StdinData: []byte(`{"cniVersion":"1.0.0","name":"n"}`)}, dir + "/socket"}
}

// The shim asks again until a server answers: none is there, one is stale, one dies, one ends.
func TestWaitingForTheServer(t *testing.T) {
	c := newCall(t, "ADD")
	stale, err := net.Listen("unix", c.socket)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = stale.Close()
	answered := make(chan answer)
	go func() {
		a, err := c.await(t.Context())
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	asked := make(chan struct{})
	if err := os.Remove(c.socket); err != nil {
		t.Fatal(err)
	}
	stop := server(t, c.socket, func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		panic(http.ErrAbortHandler) // as if it were killed
	})
	<-asked
	stop()
	_ = os.Remove(c.socket)
	var requests atomic.Int32
	server(t, c.socket, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			http.Error(w, "ovnkube ends", http.StatusServiceUnavailable)
			return
		}
		var request protocol.Request
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || request.Env["CNI_COMMAND"] != "ADD" || string(request.Config) != string(c.args.StdinData) {
			t.Errorf("request %+v, %v", request, err)
		}
		_, _ = io.WriteString(w, `{"cniVersion":"1.1.0"}`)
	})
	if a := <-answered; string(a.result) != `{"cniVersion":"1.1.0"}` || a.failure != nil {
		t.Errorf("answer %+v", a)
	}
}

// AC-59: without a server, STATUS fails. Each other command ends with its own failure.
func TestWithoutAServer(t *testing.T) {
	for _, test := range []struct {
		command string
		code    uint
	}{{"ADD", 11}, {"CHECK", 11}, {"DEL", 0}, {"GC", 11}, {"STATUS", 50}} {
		t.Run(test.command, func(t *testing.T) {
			t.Parallel()
			c := newCall(t, test.command)
			ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("no answer within 200ms"))
			defer cancel()
			a, err := c.await(ctx)
			if test.code == 0 {
				if err != nil || a.failure != nil {
					t.Errorf("answer %+v, %v", a, err)
				}
				return
			}
			f := c.unserved(err)
			if f.Error == nil || f.Code != test.code || f.Version != "1.0.0" || !strings.Contains(f.Details, c.socket) || strings.Contains(f.Details, "\n") {
				t.Errorf("failure %+v", f.Error)
			}
			if !strings.Contains(f.Details, "no answer within 200ms") {
				t.Errorf("it did not wait: %+v", f.Error)
			}
		})
	}
}

// A call ends before the runtime kills it: containerd with the kubelet's request, CRI-O's DEL earlier.
func TestCallsEndBeforeTheRuntimesKillThem(t *testing.T) {
	for command, most := range map[string]time.Duration{"ADD": 4 * time.Minute, "DEL": time.Minute} {
		if got := limit(command); got >= most {
			t.Errorf("%s may take %v, the runtime waits for %v", command, got, most)
		}
	}
}

// The failures of the server are passed on; its refusals become failures.
func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		status             int
		kind, text         string
		code               uint
		message, details   string
		versionOfTheAnswer string
	}{
		{400, "application/json", `{"cniVersion":"0.4.0","code":7,"msg":"m","details":"d"}`, 7, "m", "d", "0.4.0"},
		{413, "text/plain", "too large\n", 100, "the CNI server of ovnkube refused the request", "413 Request Entity Too Large: too large", ""},
		{400, "application/json", "x", 100, "the CNI server of ovnkube refused the request", "400 Bad Request: x", ""},
	} {
		c := newCall(t, "GC")
		server(t, c.socket, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", test.kind)
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.text)
		})
		a, err := c.await(t.Context())
		if err != nil || a.failure == nil {
			t.Fatalf("%+v, %v", a, err)
		}
		if f := a.failure; f.Code != test.code || f.Msg != test.message || f.Details != test.details || f.Version != test.versionOfTheAnswer {
			t.Errorf("%q became %+v %s", test.text, f.Error, f.Version)
		}
	}
}

// A server that does not answer is told when the call ends, and then has time to undo the request.
func TestTheEndOfACall(t *testing.T) {
	c := newCall(t, "ADD")
	ctx, cancel := context.WithCancel(t.Context())
	server(t, c.socket, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done() // the client has ended its half of the connection
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"cniVersion":"1.0.0","code":11,"msg":"undone"}`)
	})
	if f := c.run(ctx); f.Error == nil || f.Msg != "undone" {
		t.Errorf("failure %+v", f)
	}
}

// A large configuration is sent without values that no command reads.
func TestTrim(t *testing.T) {
	huge := strings.Repeat("x", 4<<20)
	previous := `{"interfaces":["` + strings.Repeat("y", 100<<10) + `"]}`
	for in, want := range map[string]string{
		`{"name":"n", "b":1}`: `{"name":"n", "b":1}`,
		`{"name":"n","huge":"` + huge + `","prevResult":` + previous + `}`: `{"name":"n","prevResult":` + previous + `}`,
		huge: huge,
	} {
		if got := string(trim([]byte(in))); got != want {
			t.Errorf("%.100s became %.200s, want %.200s", in, got, want)
		}
	}
}
