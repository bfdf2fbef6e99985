package ovsdb_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"testing"
)

// S1: monitor_cond_since would not make a reconnection cheaper. A server without a cluster
// keeps no history, and a member of a cluster keeps 100 transactions: after more, everything is read as well.
func TestNoHistory(t *testing.T) {
	alone := newServer(t, nbSchema)
	_, last := since(t, alone, "00000000-0000-0000-0000-000000000000")
	if found, _ := since(t, alone, last); found {
		t.Error("a server without a cluster knows what happened since the last transaction: use that")
	}

	member := newServer(t, nbSchema)
	member.stop()
	_ = os.Remove(member.dir + "/db")
	run(t, "ovsdb-tool", "create-cluster", member.dir+"/db", nbSchema, "tcp:127.0.0.1:"+freePort(t))
	member.start()
	run(t, "ovsdb-client", "--timeout=20", "wait", member.remote(), "OVN_Northbound", "connected")
	args := []string{"ls-add", "a"}
	for i := range 1000 { // or the history would be larger than the database, and is cut
		args = append(args, "--", "ls-add", fmt.Sprint("b", i))
	}
	member.nbctl(args...)
	member.nbctl("ls-add", "c")
	_, last = since(t, member, "00000000-0000-0000-0000-000000000000")
	db := open(t, member.remote())
	for i := range 120 {
		if err := addSwitch(t, db, fmt.Sprint("d", i)); err != nil {
			t.Fatal(err)
		}
		if found, _ := since(t, member, last); i < 50 && !found || i == 119 && found {
			t.Fatalf("after %d transactions, the history begins before: %t", i+1, found)
		}
	}
}

// since asks a server for the changes of its switches since a transaction. found reports whether the server knows
// the transaction; last is the latest one.
func since(t *testing.T, s *server, id string) (found bool, last string) {
	t.Helper()
	conn, err := net.Dial("unix", s.dir+"/sock")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	request := `{"method":"monitor_cond_since","params":["OVN_Northbound","x",{"Logical_Switch":[{"columns":["name"]}]},"` + id + `"],"id":0}`
	if _, err := conn.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	var reply struct{ Result []any }
	if err := json.NewDecoder(conn).Decode(&reply); err != nil || len(reply.Result) != 3 {
		t.Fatalf("%v, %v", reply, err)
	}
	return reply.Result[0].(bool), reply.Result[1].(string)
}
