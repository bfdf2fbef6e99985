package ovsdb_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb"
)

// A relay is in front of a server. Until release it holds the replies with tables, as if the database were large;
// if mute, it holds all replies.
type relay struct {
	server, path string
	asked        chan struct{} // a client reads tables
	release      chan struct{}
	mute         bool
	wg           sync.WaitGroup
}

func newRelay(t *testing.T, s *server, mute bool) *relay {
	t.Helper()
	dir, err := os.MkdirTemp("", "relay")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{server: s.dir + "/sock", path: dir + "/sock", asked: make(chan struct{}), release: make(chan struct{}), mute: mute}
	l, err := net.Listen("unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		r.wg.Wait()
		_ = os.RemoveAll(dir)
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.wg.Go(func() { r.serve(c) })
		}
	}()
	return r
}

func (r *relay) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", r.server)
	if err != nil {
		return
	}
	defer server.Close()
	reads := make(chan struct{})
	go func() {
		defer client.Close()
		var first [4096]byte
		n, err := server.Read(first[:])
		for err == nil {
			select {
			case <-reads:
				<-r.release
			default:
				if r.mute && closed(r.asked) {
					<-r.release
				}
			}
			_, _ = client.Write(first[:n])
			n, err = server.Read(first[:])
		}
	}()
	var buf [4096]byte
	for asked := false; ; {
		n, err := client.Read(buf[:])
		if err != nil {
			return
		}
		if !asked && bytes.Contains(buf[:n], []byte(`"monitor_cond"`)) && !bytes.Contains(buf[:n], []byte(`_Server`)) {
			asked = true
			close(reads)
			if !closed(r.asked) {
				close(r.asked)
			}
		}
		_, _ = server.Write(buf[:n])
	}
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// L9b: reading the tables has no limit, and its progress is in the log.
func TestReadingHasNoLimit(t *testing.T) {
	s := newServer(t, nbSchema)
	s.nbctl("ls-add", "a")
	r := newRelay(t, s, false)
	log := &lines{}
	o := options(t, "unix:"+r.path)
	o.Log = log.entry()
	const dial = 200 * time.Millisecond
	ovsdb.Impatient(&o, dial, time.Minute)
	go func() {
		<-r.asked
		<-time.After(5 * dial)
		close(r.release)
	}()
	db, err := ovsdb.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if diff := cmp.Diff([]string{"a"}, switches(t, db.Client())); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if !strings.Contains(log.String(), "reading NB: 0 rows so far") {
		t.Errorf("no progress in the log:\n%s", log)
	}
}

// L9b: a server without any answers is given up while its tables are read.
func TestReadingFromAFrozenServer(t *testing.T) {
	r := newRelay(t, newServer(t, nbSchema), true)
	o := options(t, "unix:"+r.path)
	ovsdb.Impatient(&o, 200*time.Millisecond, 500*time.Millisecond)
	defer close(r.release)
	db, err := ovsdb.Open(t.Context(), o)
	if err == nil {
		db.Close()
		t.Fatal("no error")
	}
	if want := "reading the tables: the server no longer answers: context deadline exceeded"; !strings.Contains(err.Error(), want) {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
}

// The begin of reading the tables and its progress are reported, and silence is not.
func TestProgressOfReadingIsReported(t *testing.T) {
	s := newServer(t, nbSchema)
	s.nbctl("ls-add", "a", "--", "set", "logical_switch", "a", "external_ids:long="+strings.Repeat("x", 40000))
	r := newRelay(t, s, false)
	looks, progress := make(looks, 1000), make(chan struct{}, 100)
	log := logrus.New()
	log.SetOutput(looks)
	o := options(t, "unix:"+r.path)
	o.Log, o.Reading = logrus.NewEntry(log), func() { progress <- struct{}{} }
	ovsdb.Impatient(&o, 500*time.Millisecond, time.Minute)
	opened := make(chan error)
	go func() {
		db, err := ovsdb.Open(t.Context(), o)
		if err == nil {
			db.Close()
		}
		opened <- err
	}()
	<-r.asked
	select {
	case <-progress: // the server answers
	default:
		t.Error("the begin is not reported")
	}
	for range 3 {
		r.release <- struct{}{} // for 4 kB at most
		<-progress
		for len(looks) > 0 {
			<-looks
		}
		<-looks
		<-looks // the one before is done
		if len(progress) > 0 {
			t.Error("silence is reported as progress")
		}
	}
	close(r.release)
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// libovsdb drops events if there are too many: then a new connection shows all rows.
func TestDroppedEvents(t *testing.T) {
	s := newServer(t, nbSchema)
	db := open(t, s.remote())
	release := make(chan struct{})
	db.Handle(&cache.EventHandlerFuncs{AddFunc: func(string, model.Model) { <-release }})
	up, down := keep(t, db)
	<-up
	writer := open(t, s.remote())
	const most = 65536 + 2 // libovsdb's queue, and the events held by the handler
	for n := 0; n <= most; {
		var ops []libovsdb.Operation
		for range 20000 {
			ops = append(ops, libovsdb.Operation{Op: libovsdb.OperationInsert, Table: nbdb.LoadBalancerTable, Row: libovsdb.Row{"name": "lb"}})
			n++
		}
		if _, err := writer.Transact(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Sync(t.Context()); err != nil && !errors.Is(err, ovsdb.ErrNotConnected) {
		t.Fatal(err)
	}
	close(release)
	if err := <-down; !strings.Contains(err.Error(), "too many changes at once") {
		t.Errorf("down: %v", err)
	}
	<-up
}

// looks is a log with a value for each line about the progress.
type looks chan struct{}

func (l looks) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("reading NB: ")) {
		l <- struct{}{}
	}
	return len(p), nil
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lines) entry() *logrus.Entry {
	log := logrus.New()
	log.SetOutput(l)
	return logrus.NewEntry(log)
}

// L9c: OnRow names each row before the change is visible, so that our own changes are known when Transact returns.
// It depends on libovsdb's log: should this fail after an update of libovsdb, see cachelog.go.
func TestOnRow(t *testing.T) {
	s := newServer(t, nbSchema)
	s.nbctl("ls-add", "there")
	db := open(t, s.remote())
	var mu sync.Mutex
	named := map[string]int{}
	remove := db.OnRow(func(table, uuid string) {
		mu.Lock()
		defer mu.Unlock()
		named[table+" "+uuid]++
	})
	up, _ := keep(t, db)
	<-up
	check := func(what string, row string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if len(named) != 1 || named[row] == 0 {
			t.Errorf("%s: %v, want %s", what, named, row)
		}
		clear(named)
	}
	transact := func(op libovsdb.Operation) libovsdb.OperationResult {
		t.Helper()
		results, err := db.Transact(t.Context(), []libovsdb.Operation{op})
		if err != nil {
			t.Fatal(err)
		}
		return results[0]
	}
	op := libovsdb.Operation{Op: libovsdb.OperationInsert, Table: nbdb.LogicalSwitchTable, Row: libovsdb.Row{"name": "a"}}
	uuid := transact(op).UUID
	row := nbdb.LogicalSwitchTable + " " + uuid.GoUUID
	check("insert", row)
	op.Op, op.Row = libovsdb.OperationUpdate, libovsdb.Row{"name": "b"}
	op.Where = []libovsdb.Condition{libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, uuid)}
	transact(op)
	check("update", row)
	op.Op, op.Row = libovsdb.OperationDelete, nil
	transact(op)
	check("delete", row)
	s.nbctl("set", "logical_switch", "there", "name=here")
	if err := db.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(named) != 1 {
		t.Errorf("a change of others: %v", named)
	}
	clear(named)
	if err := db.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-up
	if len(named) > 0 {
		t.Errorf("a new connection names the rows that it begins with: %v", named)
	}
	remove()
}
