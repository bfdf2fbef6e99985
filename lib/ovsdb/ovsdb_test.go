package ovsdb_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb"
)

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
	later := newServer(t, schemaWith(t, "99.0.0", map[string]string{`"networks": {"type": {"key": "string",`: `"networks": {"type": {"key": "integer",`}))
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
		{"a column of another type", []string{later.remote()}, "connecting to NB at " + later.remote() + ": the server's schema OVN_Northbound 99.0.0 has another type of column Logical_Router_Port.networks than this program knows: install a release of this program for that schema"},
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

// A DB closed during Renew stays closed, and the new connection ends.
func TestACloseDuringRenew(t *testing.T) {
	s := newServer(t, nbSchema)
	before := runtime.NumGoroutine()
	db := open(t, s.remote())
	s.signal(syscall.SIGSTOP)
	connected := runtime.NumGoroutine()
	renewed := make(chan error)
	go func() { renewed <- db.Renew(t.Context()) }()
	s.await(func() bool { return runtime.NumGoroutine() > connected+1 }) // it connects
	db.Close()
	s.signal(syscall.SIGCONT)
	if err := <-renewed; err != nil || db.Cache() != nil {
		t.Errorf("error %v, connected %t", err, db.Cache() != nil)
	}
	s.await(func() bool { return runtime.NumGoroutine() <= before })
}

// A server is asked less and less often if it accepts connections and ends them at once.
func TestBrokenConnectionsAreTriedLessOften(t *testing.T) {
	s := newServer(t, nbSchema)
	db := open(t, s.remote())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var pauses []time.Duration
	var lost time.Time
	err := db.Run(ctx, func() {
		if !lost.IsZero() {
			pauses = append(pauses, time.Since(lost))
		}
		if len(pauses) == 5 {
			cancel()
			return
		}
		if err := exec.Command("ovs-appctl", "--target="+s.dir+"/ctl", "ovsdb-server/reconnect").Start(); err != nil {
			t.Error(err)
		}
	}, func(error) { lost = time.Now() })
	if !errors.Is(err, context.Canceled) || pauses[4] < 2*pauses[0] {
		t.Errorf("error %v, tried again after %v", err, pauses)
	}
}

// Lost connections leave nothing behind: neither goroutines nor their caches.
func TestLostConnections(t *testing.T) {
	s := newServer(t, nbSchema)
	db := open(t, s.remote())
	up, down := keep(t, db)
	<-up
	before := runtime.NumGoroutine()
	for range 6 {
		run(t, "ovs-appctl", "--target="+s.dir+"/ctl", "ovsdb-server/reconnect")
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
