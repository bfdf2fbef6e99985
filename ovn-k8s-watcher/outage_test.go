package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/netfault"
	"ovn-k8s/test/reaper"
)

// complaints are the lines of the watcher's log above INFO.
func (p *process) complaints() (lines []string) {
	for l := range strings.Lines(p.log.String()) {
		if strings.Contains(l, "|WARN|") || strings.Contains(l, "|ERR|") || strings.Contains(l, "|EMER|") {
			lines = append(lines, l)
		}
	}
	return lines
}

// cpu is the processor time used by the watcher.
func (p *process) cpu() time.Duration {
	p.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var user, system int64
	fmt.Sscan(fields[11], &user)
	fmt.Sscan(fields[12], &system)
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

// outage runs a failure and events during it, and checks that the log reports it in a few lines, and that the
// watcher needs little processor time.
func (p *process) outage(t *testing.T, begin, meanwhile, end func(), lasts time.Duration) {
	t.Helper()
	lines, used := len(p.complaints()), p.cpu()
	begin()
	meanwhile()
	busy := p.cpu()
	time.Sleep(lasts)
	idle := p.cpu() - busy
	// client-go sends a request ten times, a second apart, before it fails.
	p.eventually("the log reports the failure", func() bool { return len(p.complaints()) > lines })
	end()
	fresh := p.complaints()[lines:]
	t.Logf("%d lines, CPU %s while %s, of it %s in the last %s:\n%s", len(fresh), p.cpu()-used, "it lasted", idle, lasts, strings.Join(fresh, ""))
	if len(fresh) > 12 {
		t.Errorf("%d lines about one outage", len(fresh))
	}
	if idle > lasts/10 {
		t.Errorf("%s of processor time in %s of waiting", idle, lasts)
	}
}

// Each outage is reported in a few lines, for any number of objects held up, and events during it are processed
// afterwards.
func TestOutages(t *testing.T) {
	w := newWorld(t, manyNodes())
	api, err := netfault.New("tcp", strings.TrimPrefix(cluster.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	nb, err := netfault.New("unix", strings.TrimPrefix(w.central.NB, "unix:"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nb.Close)
	w.url = "https://" + api.Addr
	p := w.start("--ovn-nb=tcp:" + nb.Addr)
	w.burst(0, 60)
	w.settled(60)
	pods := 60
	more := func() { w.burst(pods, 60); pods += 60 }
	for _, tt := range []struct {
		name                  string
		begin, meanwhile, end func()
		lasts                 time.Duration
	}{
		{"NB refuses", nb.Refuse, more, nb.Heal, 3 * time.Second},
		{"NB silent", nb.Silence, more, func() { nb.Cut(); nb.Heal() }, 16 * time.Second},
		{"API refuses", api.Refuse, more, api.Heal, 3 * time.Second},
		{"API silent", api.Silence, more, api.Heal, 12 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p.outage(t, tt.begin, tt.meanwhile, tt.end, tt.lasts)
			w.T = t
			w.settled(pods)
		})
		w.T = t
	}
}

// A database with a full disk refuses new rows. The watcher writes them soon after there is room again: it does not
// wait for the end of long backoffs.
func TestANorthboundWithAFullDisk(t *testing.T) {
	w := newWorld(t, manyNodes())
	full, room := w.limitNB()
	p := w.start("--unixctl=" + w.dir + "/ctl")
	w.burst(0, 60)
	w.settled(60)
	var longest time.Duration
	p.outage(t, full, func() {
		w.burst(60, 60)
		w.eventually("a backoff is long", func() bool {
			longest = w.longestBackoff()
			return longest >= 30*time.Second
		})
	}, room, 3*time.Second)
	start := time.Now()
	w.settled(120)
	if took := time.Since(start); took > longest/2 {
		t.Errorf("it took %s, with a backoff of %s", took, longest)
	}
}

// longestBackoff is the longest time until the watcher's next attempt for a unit.
func (w *world) longestBackoff() (longest time.Duration) {
	w.Helper()
	out, err := exec.Command("ovs-appctl", "--timeout=10", "-t", w.dir+"/ctl", "reconcile/show").Output()
	if err != nil {
		w.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`next in (\w+)\)`).FindAllSubmatch(out, -1) {
		next, err := time.ParseDuration(string(m[1]))
		if err != nil {
			w.Fatal(err)
		}
		longest = max(longest, next)
	}
	return longest
}

// limitNB serves the Northbound database by another process, and returns functions to fill its disk and to make
// room.
func (w *world) limitNB() (full, room func()) {
	w.Helper()
	w.central.StopNB()
	file, pidfile := filepath.Join(w.central.Dir, "ovnnb_db.db"), filepath.Join(w.dir, "nb.pid")
	socket := strings.TrimPrefix(w.central.NB, "unix:")
	if err := os.Remove(socket); err != nil {
		w.Fatal(err)
	}
	// a write beyond the limit fails; SIGXFSZ, ignored here, would kill the server (setrlimit(2))
	server, err := reaper.Start(nil, "env", "--ignore-signal=XFSZ", "ovsdb-server", "-vconsole:off", "--pidfile="+pidfile,
		"--unixctl="+filepath.Join(w.dir, "nb.ctl"), "--remote=punix:"+socket, file)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(server.Stop)
	w.eventually("the database is served", func() bool {
		_, err := os.Stat(pidfile)
		return err == nil
	})
	limit := func(size string) {
		w.Helper()
		pid, err := os.ReadFile(pidfile)
		if err != nil {
			w.Fatal(err)
		}
		if out, err := exec.Command("prlimit", "--pid="+strings.TrimSpace(string(pid)), "--fsize="+size+":unlimited").CombinedOutput(); err != nil {
			w.Fatalf("%v: %s", err, out)
		}
	}
	return func() { limit("1") }, func() { limit("unlimited") }
}

// A faulty is a proxy before the API server that injects errors.
type faulty struct {
	status atomic.Int32 // of patches of pods; 0: the API server's own
	failed atomic.Int32 // patches with it
	watch  atomic.Int32 // of watches
	server *httptest.Server
}

func faultyAPI(t *testing.T, w *world) *faulty {
	t.Helper()
	target, err := url.Parse(cluster.URL)
	if err != nil {
		t.Fatal(err)
	}
	f := &faulty{}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = insecure()
	proxy.FlushInterval = -1
	f.server = httptestServer(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		status := 0
		switch {
		case r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/pods/"):
			status = int(f.status.Load())
		case r.URL.Query().Get("watch") != "":
			status = int(f.watch.Load())
		}
		if status == 0 {
			proxy.ServeHTTP(rw, r)
			return
		}
		f.failed.Add(1)
		reason := map[int]metav1.StatusReason{429: "TooManyRequests", 410: "Expired", 500: "InternalError", 504: "Timeout", 409: "AlreadyExists"}[status]
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(status)
		fmt.Fprintf(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"trouble with %s","reason":%q,"code":%d}`, r.URL.Path, reason, status)
	}))
	w.url = f.server.URL
	return f
}

// S3: a pod's port is written while the copy of the topology waits for the API server. Each request for the
// ConfigMap hangs until the watcher cancels it, after 5 s.
func TestPodsDoNotWaitForTheCopyOfTheTopology(t *testing.T) {
	w := newWorld(t, manyNodes())
	target, err := url.Parse(cluster.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.FlushInterval = insecure(), -1
	begun, ended := make(chan struct{}, 100), atomic.Int32{}
	hang := atomic.Bool{}
	w.url = httptestServer(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if hang.Load() && strings.Contains(r.URL.Path, "/configmaps/") {
			_, _ = io.Copy(io.Discard, r.Body) // or the server does not notice that the client is gone
			begun <- struct{}{}
			<-r.Context().Done()
			ended.Add(1)
			return
		}
		proxy.ServeHTTP(rw, r)
	})).URL
	w.start()
	w.pod("first", "node0", nil)
	w.annotation("first")
	hang.Store(true)
	nodes := manyNodes()
	nodes["another"] = "192.168.200.0/24,fd00:0:200::/64"
	w.topology(nodes)
	for i := range 5 { // a busy machine may take 5 s for a pod
		<-begun
		before := ended.Load()
		w.pod(fmt.Sprint("p", i), "node0", nil)
		w.annotation(fmt.Sprint("p", i))
		if ended.Load() == before {
			return
		}
	}
	t.Error("pods waited for the ConfigMap")
}

func TestAPIServerInTrouble(t *testing.T) {
	w := newWorld(t, manyNodes())
	f := faultyAPI(t, w)
	p := w.start()
	w.burst(0, 60)
	w.settled(60)
	pods := 60
	for _, status := range []int32{429, 500} {
		t.Run(fmt.Sprint("patches get ", status), func(t *testing.T) {
			p.outage(t, func() { f.status.Store(status) }, func() { w.burst(pods, 60); pods += 60 }, func() { f.status.Store(0) }, 3*time.Second)
			w.settled(pods)
			if f.failed.Swap(0) == 0 {
				t.Error("nothing failed")
			}
		})
	}
	t.Run("watches get 410", func(t *testing.T) {
		p.outage(t, func() { f.watch.Store(410); f.server.CloseClientConnections() }, func() { w.burst(pods, 60); pods += 60 }, func() { f.watch.Store(0) }, 3*time.Second)
		w.settled(pods)
	})
}

// An API server with data from an older backup has deleted objects again, lacks newer ones, and repeats resource
// versions.
func TestAPIServerGoesBackInTime(t *testing.T) {
	w := newWorld(t, manyNodes())
	w.start()
	w.burst(0, 20)
	w.settled(20)
	etcd, backup := filepath.Join(cluster.Dir, "etcd"), filepath.Join(t.TempDir(), "etcd")
	again := func(from, to string) {
		t.Helper()
		cluster.Stop()
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := cluster.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	again(etcd, backup)
	for i := range 10 {
		w.delete(fmt.Sprintf("p%03d", i))
	}
	w.burst(20, 40)
	w.settled(50)
	again(backup, etcd)
	w.settled(20)
	w.burst(100, 20)
	w.settled(40)
}

// A pod with too large annotations for ours is reported.
func TestNoRoomForTheAnnotation(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	p := w.start()
	w.pod("big", "node1", func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{"a": strings.Repeat("x", 256<<10-10)}
	})
	if got := w.event("Pod", "big", "NetworkNotReady"); !strings.Contains(got, "metadata.annotations: Too long") {
		t.Errorf("Event %q", got)
	}
	if n := strings.Count(p.log.String(), "WARN|annotating pod default/big: "); n != 1 {
		t.Errorf("%d lines: %q", n, p.complaints())
	}
	w.pod("small", "node1", nil)
	w.annotation("small")
}

// Serving the database of another cluster would delete all of its pods' ports.
func TestAnotherClustersDatabase(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	p := w.start()
	w.pod("a", "node1", nil)
	w.annotation("a")
	uid := w.nbctl("get", "logical_router", names.ClusterRouter, "external_ids:"+names.KubernetesUID)
	const theirs = "11111111-2222-3333-4444-555555555555"
	w.nbctl("set", "logical_router", names.ClusterRouter, "external_ids:"+names.KubernetesUID+"="+theirs)
	want := fmt.Sprintf("the Northbound database is that of another Kubernetes cluster, whose namespace kube-system has the UID %s instead of %s: correct ovn-nb or k8s-api-server; "+
		`or if that cluster is no more, run "ovn-nbctl remove Logical_Router ovn_cluster_router external_ids ovn-k8s-kubernetes-uid"`, theirs, strings.Trim(uid, `"`))
	if err := p.cmd.Wait(); err == nil || !strings.Contains(p.log.String(), "ovn-k8s-watcher: "+want+"\n") {
		t.Errorf("%v: %s", err, p.log)
	}
	w.delete("a")
	before, err := w.central.NBTransactions()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{w.args(), w.args("--check")} {
		if status, _, stderr := w.once(args...); status != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%q: status %d\n%s", args, status, stderr)
		}
	}
	if after, err := w.central.NBTransactions(); err != nil || after != before {
		t.Errorf("%d transactions on another cluster's database (%v)", after-before, err)
	}
	if w.port("default_a", "name") == "" {
		t.Error("the port of another cluster's pod is gone")
	}
	w.nbctl("remove", "logical_router", names.ClusterRouter, "external_ids", names.KubernetesUID)
	w.start()
	w.eventually("the port is gone", func() bool { return w.port("default_a", "name") == "" })
	w.eventually("the database is ours", func() bool {
		return w.nbctl("get", "logical_router", names.ClusterRouter, "external_ids:"+names.KubernetesUID) == uid
	})
}
