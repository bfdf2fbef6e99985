package ovsdb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"

	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/test/netfault"
	"ovn-k8s/test/reaper"
	"ovn-k8s/test/require"
)

const nbSchema = "/usr/share/ovn/ovn-nb.ovsschema"

// A server is a real ovsdb-server.
type server struct {
	t    *testing.T
	dir  string
	args []string
	proc *reaper.Process
}

// newServer starts one with an empty database of a schema.
func newServer(t *testing.T, schema string, args ...string) *server {
	t.Helper()
	missing := ""
	for _, tool := range []string{"ovsdb-server", "ovsdb-tool", "ovn-nbctl"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = tool
		}
	}
	require.Nothing(t, require.Central, missing)
	dir, err := os.MkdirTemp("", "db") // shorter than t.TempDir, for the socket
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, args: args}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Cleanup(s.stop)
	s.create(schema)
	s.start()
	return s
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (s *server) create(schema string) {
	s.t.Helper()
	_ = os.Remove(s.dir + "/db")
	run(s.t, "ovsdb-tool", "create", s.dir+"/db", schema)
}

func (s *server) start() {
	s.t.Helper()
	var err error
	_ = os.Remove(s.dir + "/sock")
	args := []string{"--unixctl=" + s.dir + "/ctl", "--pidfile=" + s.dir + "/pid", "--remote=punix:" + s.dir + "/sock"}
	s.proc, err = reaper.Start(nil, "ovsdb-server", append(append(args, s.args...), s.dir+"/db")...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.await(func() bool { return exec.Command("ovsdb-client", "--timeout=1", "list-dbs", s.remote()).Run() == nil })
}

// await polls a condition without an event.
func (s *server) await(ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(end) {
			s.t.Fatal("waited too long")
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (s *server) stop() {
	if s.proc != nil {
		s.proc.Stop()
	}
	s.proc = nil
}

func (s *server) signal(sig syscall.Signal) {
	s.t.Helper()
	text, err := os.ReadFile(s.dir + "/pid")
	if err != nil {
		s.t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		s.t.Fatal(err)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) remote() string { return "unix:" + s.dir + "/sock" }

func (s *server) nbctl(args ...string) string {
	s.t.Helper()
	return run(s.t, "ovn-nbctl", append([]string{"--db=" + s.remote(), "--timeout=60"}, args...)...)
}

func options(t *testing.T, remotes ...string) ovsdb.Options {
	t.Helper()
	m, err := ovsdb.NBModel()
	if err != nil {
		t.Fatal(err)
	}
	return ovsdb.Options{Name: "NB", Remotes: remotes, Model: m, Needs: "OVN 23.03"}
}

func open(t *testing.T, remotes ...string) *ovsdb.DB {
	t.Helper()
	db, err := ovsdb.Open(t.Context(), options(t, remotes...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

func switches(t *testing.T, c client.Client) []string {
	t.Helper()
	var rows []*nbdb.LogicalSwitch
	if err := c.List(t.Context(), &rows); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range rows {
		out = append(out, r.Name)
	}
	slices.Sort(out)
	return out
}

func addSwitch(t *testing.T, db *ovsdb.DB, name string) error {
	t.Helper()
	c := db.Client()
	if c == nil {
		return ovsdb.ErrNotConnected
	}
	ops, err := c.Create(&nbdb.LogicalSwitch{UUID: "ls", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Transact(t.Context(), ops)
	return err
}

// oldSchema is the installed one without a table and a column.
func oldSchema(t *testing.T) string {
	t.Helper()
	return schemaWith(t, "5.0.0", map[string]string{`"Load_Balancer_Group"`: `"Load_Balancer_Grp"`, `"mirror_rules"`: `"mirrors"`})
}

// schemaWith writes the Northbound schema with another version and texts replaced, and returns its file.
func schemaWith(t *testing.T, version string, replaced map[string]string) string {
	t.Helper()
	text, err := os.ReadFile(nbSchema)
	if err != nil {
		require.Nothing(t, require.Central, nbSchema)
	}
	for old, new := range replaced {
		text = bytes.ReplaceAll(text, []byte(old), []byte(new))
	}
	_, rest, _ := bytes.Cut(text, []byte(`"version": "`))
	is, _, _ := bytes.Cut(rest, []byte(`"`))
	text = bytes.Replace(text, is, []byte(version), 1)
	file := filepath.Join(t.TempDir(), "nb.ovsschema")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// keep runs DB.Run and reports its calls of onUp and onDown.
func keep(t *testing.T, db *ovsdb.DB) (up chan client.Client, down chan error) {
	t.Helper()
	up, down = make(chan client.Client, 10), make(chan error, 10)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- db.Run(ctx, func() { up <- db.Client() }, func(err error) { down <- err }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	return up, down
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := netfault.FreePort("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}
