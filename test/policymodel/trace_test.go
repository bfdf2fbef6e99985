package policymodel_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nbsync"
	"ovn-k8s/test/northbound"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/policymodel"
)

const (
	// tracedClusters is the number of random clusters written to OVN, tracesOfEach
	// the number of connections traced in each.
	tracedClusters, tracesOfEach = 200, 120
)

// A tracer is ovn-trace(8) running as a daemon: it answers in a few milliseconds.
// It reads the database once, at its start.
type tracer struct {
	conn net.Conn
	in   *json.Encoder
	out  *json.Decoder
}

func newTracer(t *testing.T, c *ovntest.Central, name string) *tracer {
	t.Helper()
	socket := filepath.Join(c.Dir, name)
	cmd := exec.Command("ovn-trace", "--db="+c.SB, "--unixctl="+socket, "--detach", "--no-chdir")
	// Every packet is the first one of its connection in every conntrack zone. The
	// daemon consumes this list; after its end packets count as established.
	for range 4 * tracesOfEach {
		cmd.Args = append(cmd.Args, "--ct=new")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ovn-trace: %v: %s", err, out)
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	r := &tracer{conn, json.NewEncoder(conn), json.NewDecoder(conn)}
	return r
}

// close ends the daemon.
func (r *tracer) close(t *testing.T) {
	_, _ = r.ask(t, "exit") // it may end before answering
	_ = r.conn.Close()
}

// ask calls a method of the daemon.
func (r *tracer) ask(t *testing.T, method string, params ...string) (string, error) {
	t.Helper()
	_ = r.conn.SetDeadline(time.Now().Add(time.Minute))
	if params == nil {
		params = []string{}
	}
	if err := r.in.Encode(map[string]any{"method": method, "params": params, "id": 1}); err != nil {
		return "", err
	}
	var answer struct {
		Result string
		Error  any
	}
	if err := r.out.Decode(&answer); err != nil {
		return "", err
	}
	if answer.Error != nil {
		return "", fmt.Errorf("%s: %v", method, answer.Error)
	}
	return answer.Result, nil
}

// A place is the logical switch port of an address.
type place struct{ port, node, mac string }

// placesOf returns the logical port of each address. Traffic of strangers enters
// and leaves by the join switch.
func placesOf(c policymodel.Cluster, w *desired.World) map[netip.Addr]place {
	at := map[netip.Addr]place{}
	for _, p := range c.Pods {
		a, _ := w.Pods.Annotation(pod.Key{Namespace: p.Namespace, Name: p.Name}.Unit())
		for _, ip := range a.Addresses.IPs {
			at[ip.Addr()] = place{names.PodPort(p.Namespace, p.Name), p.Spec.NodeName, a.Addresses.MAC}
		}
	}
	for _, n := range c.Nodes {
		mac := topology.ManagementPort(w.Facts().Cluster.Nodes[n.Name]).MAC
		for _, a := range n.Status.Addresses {
			at[netip.MustParseAddr(a.Address)] = place{names.ManagementPort(n.Name), n.Name, mac}
		}
	}
	return at
}

// flow returns a connection as arguments of ovn-trace: datapath and packet.
func flow(conn policymodel.Connection, at map[netip.Addr]place, router string) (datapath, packet string) {
	from, inside := at[conn.From]
	to, local := at[conn.To]
	in, src, dst := names.RouterToJoin(router), "00:00:00:00:00:99", ipnet.RouterMAC(names.RouterToJoin(router))
	datapath = router
	if inside {
		datapath, in, src, dst = from.node, from.port, from.mac, ipnet.RouterMAC(names.RouterToSwitch(from.node))
		if local && to.node == from.node && !strings.HasPrefix(conn.To.String(), "172.16.") {
			dst = to.mac
		}
	}
	ip, icmp := "ip4", "icmp4 && icmp4.type == 8"
	if conn.To.Is6() {
		ip, icmp = "ip6", "icmp6 && icmp6.type == 128"
	}
	packet = fmt.Sprintf("inport == %q && eth.src == %s && eth.dst == %s && %s.src == %s && %s.dst == %s && ip.ttl == 64 && ", in, src, dst, ip, conn.From, ip, conn.To)
	if conn.Proto == "" {
		return datapath, packet + icmp
	}
	proto := strings.ToLower(string(conn.Proto))
	return datapath, packet + fmt.Sprintf("%s && %s.src == 40000 && %s.dst == %d", proto, proto, proto, conn.Port)
}

// passes reports whether a trace reaches its destination: the port of the address
// or, for strangers, the router (it has no route to them).
func passes(trace string, conn policymodel.Connection, at map[netip.Addr]place, router string) bool {
	to, local := at[conn.To]
	if !local || strings.HasPrefix(conn.To.String(), "172.16.") {
		return strings.Contains(trace, `ingress(dp="`+router+`"`)
	}
	return strings.Contains(trace, fmt.Sprintf(`/* output to "%s"`, to.port))
}

// The logical flows computed by OVN from our rows allow the same connections as the reference model.
func TestTheFlowsAgreeWithTheOracle(t *testing.T) {
	central, db := northbound.Start(t)
	sync := &nbsync.Sync{DB: db}
	denied, asked := 0, 0
	for seed := range uint64(tracedClusters) {
		s := policymodel.NewSource(seed)
		c := s.Cluster()
		w := fill(t, &c)
		write(t, sync, w)
		if err := central.Sync(); err != nil {
			t.Fatal(err)
		}
		traces := newTracer(t, central, fmt.Sprint("trace", seed, ".ctl"))
		m, n := compare(t, s, c, w, traces)
		asked, denied = asked+m, denied+n
		traces.close(t)
	}
	t.Logf("%d connections traced in %d clusters, %d of them denied", asked, tracedClusters, denied)
}

// compare traces some connections in a cluster. It returns the number of traces and
// of denied connections.
func compare(t *testing.T, s policymodel.Source, c policymodel.Cluster, w *desired.World, traces *tracer) (asked, denied int) {
	t.Helper()
	router, at := w.Facts().Cluster.Router, placesOf(c, w)
	all := connections(c)
	for range tracesOfEach {
		conn := all[s.IntN(len(all))]
		if at[conn.From] == at[conn.To] && at[conn.From].port != "" {
			continue // does not leave the pod
		}
		datapath, packet := flow(conn, at, router)
		trace, err := traces.ask(t, "trace", "--summary", datapath, packet)
		if err != nil {
			t.Fatalf("%s: %v", packet, err)
		}
		want := c.Allowed(conn)
		if got := passes(trace, conn, at, router); got != want {
			_, answer := ask(t, w, conn)
			t.Fatalf("%+v: oracle says %t, policy/check %s\n%s\n%s\n%s", conn, want, answer, packet, trace, describe(c))
		}
		if asked++; !want {
			denied++
		}
	}
	return asked, denied
}

// write makes the rows of w the only owned rows in the database.
func write(t *testing.T, sync *nbsync.Sync, w *desired.World) {
	t.Helper()
	owners, err := sync.Owners()
	if err != nil {
		t.Fatal(err)
	}
	want := map[nb.Unit][]nb.Row{}
	for _, u := range append(w.Units(), owners...) {
		want[u], _ = w.Rows(u) // a missing named port is not an error here
	}
	if _, failed := sync.Apply(t.Context(), want); len(failed) > 0 {
		t.Fatal(failed)
	}
}
