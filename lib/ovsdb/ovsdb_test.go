package ovsdb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

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

func TestOpenReadsTables(t *testing.T) {
	s := newServer(t, nbSchema)
	s.nbctl("ls-add", "a")
	db := open(t, s.remote())
	if diff := cmp.Diff([]string{"a"}, switches(t, db.Client())); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := addSwitch(t, db, "b"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, switches(t, db.Client())); diff != "" {
		t.Errorf("the cache lags behind: (-want +got)\n%s", diff)
	}
	if n := db.Transactions(); n != 1 {
		t.Errorf("%d transactions, want 1", n)
	}
}

// Many plugins connect at once: a server slow to accept them must not turn any away.
func TestOpenWaitsForABusyServer(t *testing.T) {
	s := newServer(t, nbSchema)
	s.signal(syscall.SIGSTOP)
	t.Cleanup(func() { s.signal(syscall.SIGCONT) })
	for {
		c, err := net.Dial("unix", s.dir+"/sock")
		if errors.Is(err, syscall.EAGAIN) {
			break // its backlog is full
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	time.AfterFunc(200*time.Millisecond, func() { s.signal(syscall.SIGCONT) })
	open(t, s.remote())
}

// Allows reads the enumerations of the server's schema.
func TestAllows(t *testing.T) {
	db := open(t, newServer(t, nbSchema).remote())
	if !db.Allows(nbdb.LoadBalancerTable, "selection_fields", "ip_src") || db.Allows(nbdb.LoadBalancerTable, "selection_fields", "nonsense") {
		t.Error("the values that a Northbound database allows are others")
	}
}

// After Sync the cache has the earlier commits of others.
func TestSync(t *testing.T) {
	s := newServer(t, nbSchema)
	db := open(t, s.remote())
	var want []string
	for i := range 50 {
		want = append(want, fmt.Sprintf("sw%02d", i))
		s.nbctl("ls-add", want[i])
		if err := db.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, switches(t, db.Client())); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	}
	if db.Transactions() != 0 {
		t.Error("Sync counts as a transaction")
	}
}

func TestOpenErrors(t *testing.T) {
	s := newServer(t, "/usr/share/ovn/ovn-sb.ovsschema")
	old := newServer(t, oldSchema(t))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // accepts, and never answers
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, tt := range []struct {
		name    string
		remotes []string
		want    string
	}{
		{"nothing", nil, "connecting to NB: no address"},
		{"no socket", []string{"unix:/nowhere/x.sock"}, "connecting to NB at unix:/nowhere/x.sock: connect: no such file or directory"},
		{"refused", []string{"tcp:" + closed.Addr().String()}, "connecting to NB at tcp:" + closed.Addr().String() + ": connect: connection refused"},
		{"mute", []string{"tcp:" + l.Addr().String()}, "connecting to NB at tcp:" + l.Addr().String() + ": context deadline exceeded"},
		{"two", []string{"unix:/a", "unix:/b"}, "connecting to NB at unix:/a: connect: no such file or directory; at unix:/b: connect: no such file or directory"},
		{"no certificate", []string{"ssl:127.0.0.1:1"}, "connecting to NB at ssl:127.0.0.1:1: ssl: needs a private key and a certificate"},
		{"another database", []string{s.remote()}, "connecting to NB at " + s.remote() + ": target database OVN_Northbound not found"},
		{"an old schema", []string{old.remote()}, "connecting to NB at " + old.remote() + ": the server's schema OVN_Northbound 5.0.0 lacks table Load_Balancer_Group, column Logical_Switch_Port.mirror_rules: OVN 23.03 or newer is needed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			db, err := ovsdb.Open(ctx, options(t, tt.remotes...))
			if err == nil {
				db.Close()
				t.Fatal("no error")
			}
			if err.Error() != tt.want {
				t.Errorf("\n got %s\nwant %s", err, tt.want)
			}
		})
	}
}

// oldSchema is the installed one without a table and a column.
func oldSchema(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(nbSchema)
	if err != nil {
		require.Nothing(t, require.Central, nbSchema)
	}
	for old, new := range map[string]string{
		`"Load_Balancer_Group"`: `"Load_Balancer_Grp"`, `"mirror_rules"`: `"mirrors"`,
	} {
		text = bytes.ReplaceAll(text, []byte(old), []byte(new))
	}
	_, rest, _ := bytes.Cut(text, []byte(`"version": "`))
	version, _, _ := bytes.Cut(rest, []byte(`"`))
	text = bytes.Replace(text, version, []byte("5.0.0"), 1)
	file := filepath.Join(t.TempDir(), "old.ovsschema")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTransactErrors(t *testing.T) {
	s := newServer(t, nbSchema)
	s.nbctl("ls-add", "a", "--", "lsp-add", "a", "p")
	db := open(t, s.remote())
	c := db.Client()

	var port []*nbdb.LogicalSwitchPort
	if err := c.List(t.Context(), &port); err != nil {
		t.Fatal(err)
	}
	ok, err := c.Create(&nbdb.LogicalSwitch{Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	bad := libovsdb.Operation{Op: libovsdb.OperationInsert, Table: "Logical_Router_Static_Route", Row: libovsdb.Row{"policy": "no such policy", "ip_prefix": "x", "nexthop": "y"}}
	var refused *ovsdb.Refused
	if _, err = db.Transact(t.Context(), append(ok, bad)); !errors.As(err, &refused) || refused.Index != 1 {
		t.Errorf("an operation that fails: %v", err)
	} else if want := "insert Logical_Router_Static_Route (operation 1)"; !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not say %s", err, want)
	}
	del, err := c.Where(port[0]).Delete() // its switch still refers to it
	if err != nil {
		t.Fatal(err)
	}
	var integrity *libovsdb.ReferentialIntegrityViolation
	if _, err = db.Transact(t.Context(), del); !errors.As(err, &refused) || refused.Index != -1 || !errors.As(err, &integrity) {
		t.Errorf("a commit that fails: %v", err)
	}
	if diff := cmp.Diff([]string{"a"}, switches(t, c)); diff != "" {
		t.Errorf("something was committed: (-want +got)\n%s", diff)
	}
	s.stop()
	s.await(func() bool { return db.Client() == nil })
	if _, err = db.Transact(t.Context(), ok); !errors.Is(err, ovsdb.ErrNotConnected) {
		t.Errorf("without a server: %v", err)
	}
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

func TestReconnect(t *testing.T) {
	s := newServer(t, nbSchema)
	s.nbctl("ls-add", "a")
	db := open(t, s.remote())
	added := make(chan string, 100)
	db.Handle(&cache.EventHandlerFuncs{AddFunc: func(_ string, row model.Model) {
		if ls, ok := row.(*nbdb.LogicalSwitch); ok {
			added <- ls.Name
		}
	}})
	up, down := keep(t, db)
	<-up

	s.stop()
	if err := <-down; !strings.Contains(err.Error(), "connection to NB at "+s.remote()) {
		t.Errorf("down: %v", err)
	}
	s.start()
	if diff := cmp.Diff([]string{"a"}, switches(t, <-up)); diff != "" {
		t.Errorf("after a restart: (-want +got)\n%s", diff)
	}
	if err := addSwitch(t, db, "b"); err != nil {
		t.Fatal(err)
	}
	for name := ""; name != "b"; { // the handler is there on the new connection
		name = <-added
	}

	s.stop()
	<-down
	s.create(nbSchema)
	s.start()
	if got := switches(t, <-up); len(got) != 0 {
		t.Errorf("after the database was emptied: %v", got)
	}
	if err := addSwitch(t, db, "c"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"c"}, switches(t, db.Client())); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A transaction committed during Renew arrives once, and is in the cache when Transact returns.
func TestRenew(t *testing.T) {
	s := newServer(t, nbSchema)
	db := open(t, s.remote())
	up, down := keep(t, db)
	<-up
	before := runtime.NumGoroutine()
	const renewals = 20
	renewed := make(chan error)
	go func() {
		for range renewals {
			renewed <- db.Renew(t.Context())
		}
		close(renewed)
	}()
	var want []string
	for done, ups := 0, 0; done < renewals || ups == 0; {
		select {
		case err, ok := <-renewed:
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				done++
			}
		case <-up:
			ups++
		case err := <-down:
			t.Fatal(err)
		default:
			want = append(want, fmt.Sprintf("sw%06d", len(want)))
			if err := addSwitch(t, db, want[len(want)-1]); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, switches(t, db.Client())); diff != "" {
				t.Fatalf("after %d renewals: (-want +got)\n%s", done, diff)
			}
		}
	}
	s.await(func() bool { return runtime.NumGoroutine() <= before })
}

// Lost connections leave nothing behind: neither goroutines nor their caches.
func TestLostConnections(t *testing.T) {
	s := newServer(t, nbSchema)
	db := open(t, s.remote())
	up, down := keep(t, db)
	<-up
	before := runtime.NumGoroutine()
	for range 20 {
		db.Close()
		<-down
		<-up
	}
	s.await(func() bool { return runtime.NumGoroutine() <= before })
}

// No call hangs on a frozen server or one gone without closing its connections, even with a full socket.
func TestFrozenServer(t *testing.T) {
	s := newServer(t, nbSchema)
	db := open(t, s.remote())
	ovsdb.ProbeFast(db)
	up, down := keep(t, db)
	<-up
	s.signal(syscall.SIGSTOP)
	defer s.signal(syscall.SIGCONT)
	stuck := make(chan error)
	for range 2 {
		go func() {
			ops, err := db.Client().Create(&nbdb.LogicalSwitch{Name: strings.Repeat("x", 1<<22)})
			if err == nil {
				_, err = db.Transact(context.Background(), ops)
			}
			stuck <- err
		}()
	}
	for range 2 {
		if err := <-stuck; !errors.Is(err, ovsdb.ErrNotConnected) {
			t.Errorf("Transact: %v", err)
		}
	}
	<-down
	s.signal(syscall.SIGCONT)
	<-up
	if err := addSwitch(t, db, "a"); err != nil {
		t.Fatal(err)
	}
}

// Only the leader of a cluster is accepted: other members lag behind.
func TestClusterLeader(t *testing.T) {
	first := newServer(t, nbSchema)
	first.stop()
	second := &server{t: t, dir: first.dir + "/2"}
	if err := os.Mkdir(second.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.stop)
	_ = os.Remove(first.dir + "/db")
	raft := []string{"tcp:127.0.0.1:" + freePort(t), "tcp:127.0.0.1:" + freePort(t)}
	run(t, "ovsdb-tool", "create-cluster", first.dir+"/db", nbSchema, raft[0])
	first.start()
	run(t, "ovsdb-tool", "join-cluster", second.dir+"/db", "OVN_Northbound", raft[1], raft[0])
	second.start()
	run(t, "ovsdb-client", "--timeout=20", "wait", second.remote(), "OVN_Northbound", "connected")
	db := open(t, second.remote(), first.remote())
	if db.Remote() != first.remote() {
		t.Errorf("connected to %s, want the leader", db.Remote())
	}
	o := options(t, second.remote())
	o.AnyMember = true
	any, err := ovsdb.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	any.Close()
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := netfault.FreePort("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(port)
}
