package main

import (
	"io"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/names"
)

// takeover bounds the time until another watcher is active: 10 s of the Lease, and some tries.
const takeover = 20 * time.Second

// A relay is a proxy between a watcher and the API server. It can lose its connections without closing them, like a
// firewall or a router.
type relay struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex
	lost  chan struct{} // closed: present connections carry nothing more
	conns []net.Conn
	deaf  bool // new connections carry nothing either
}

// newRelay starts a relay, used by the world's watchers from now on.
func newRelay(t *testing.T, w *world) *relay {
	t.Helper()
	u, err := url.Parse(cluster.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{lost: make(chan struct{})}
	if r.listener, err = net.Listen("tcp", u.Hostname()+":0"); err != nil {
		t.Fatal(err)
	}
	r.wg.Go(func() { r.serve(u.Host) })
	t.Cleanup(r.close)
	w.url = "https://" + r.listener.Addr().String()
	return r
}

func (r *relay) serve(server string) {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		api, err := net.Dial("tcp", server)
		if err != nil {
			_ = client.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, client, api)
		lost, deaf := r.lost, r.deaf
		r.mu.Unlock()
		if deaf {
			continue
		}
		for _, way := range [][2]net.Conn{{client, api}, {api, client}} {
			r.wg.Go(func() { copyUntil(lost, way[1], way[0]) })
		}
	}
}

// copyUntil copies until lost is closed, and then discards its input.
func copyUntil(lost <-chan struct{}, to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-lost:
			_, _ = io.Copy(io.Discard, from)
			return
		default:
		}
		if err != nil {
			_ = to.Close()
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// lose loses all connections without closing them. New ones work unless deaf.
func (r *relay) lose(deaf bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.lost)
	r.lost, r.deaf = make(chan struct{}), deaf
}

// heal makes new connections work again.
func (r *relay) heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = false
}

func (r *relay) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// says counts the occurrences of a text in a watcher's log.
func (p *process) says(what string) int { return strings.Count(p.log.String(), what) }

const (
	nowActive   = "active: following"
	nowInactive = "no longer active"
	nowLapsed   = "writing gateways only"
	nowRegained = "is held again: following"
)

// becomesActive waits until a watcher is active, for the nth time.
func (p *process) becomesActive(n int, within time.Duration) {
	p.Helper()
	start := time.Now()
	p.eventually("the watcher is active", func() bool { return p.says(nowActive) >= n })
	took := time.Since(start).Round(10 * time.Millisecond)
	p.Logf("active after %s", took)
	if took > within {
		p.Errorf("active after %s, not within %s", took, within)
	}
}

// A watcher with silently lost connections keeps the Lease by new ones. Without any access to the API server it
// stops before another watcher starts, and has the Lease again as soon as the other one ends, in any state of its
// connections.
func TestLostConnectionsToTheAPIServer(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	r := newRelay(t, w)
	first := w.start("--unixctl=" + w.dir + "/first.ctl")
	first.becomesActive(1, takeover)
	w.url = cluster.URL
	second := w.startAs("other-host")
	w.eventually("the second watcher waits", func() bool {
		out, _ := exec.Command("ovs-appctl", "-t", w.dir+"/other-host.ctl", "reconcile/show").CombinedOutput()
		return strings.Contains(string(out), " leads since ")
	})
	r.lose(false)
	time.Sleep(9 * time.Second) // by now the watcher would have given up the Lease
	if first.says(nowLapsed) > 0 || second.says(nowActive) > 0 {
		t.Fatal("lost connections cost the Lease")
	}
	r.lose(true)
	second.becomesActive(1, takeover)
	if first.says(nowLapsed) != 1 {
		t.Error("two watchers were active")
	}
	w.eventually("the first watcher has ended its term", func() bool { return first.says(nowInactive) == 1 })
	r.heal()
	_ = second.cmd.Process.Signal(terminate)
	_ = second.cmd.Wait()
	first.becomesActive(2, 15*time.Second)
}

// A hanging watcher loses the Lease to another one, and notices when it continues.
func TestAHungWatcherIsReplaced(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	first := w.start("--unixctl=" + w.dir + "/first.ctl")
	w.pod("a", "node1", nil)
	a := w.annotation("a")
	second := w.startAs("other-host")
	w.eventually("the second watcher waits", func() bool { return second.says("standby: the watcher of") > 0 })
	_ = first.cmd.Process.Signal(syscall.SIGSTOP)
	w.pod("b", "node1", nil)
	second.becomesActive(1, takeover)
	b := w.annotation("b")
	_ = first.cmd.Process.Signal(syscall.SIGCONT)
	w.eventually("the first watcher is on standby", func() bool { return first.says(nowInactive) == 1 })
	w.pod("c", "node1", nil)
	c := w.annotation("c")
	if line(a) == line(b) || line(b) == line(c) || line(w.annotation("b")) != line(b) {
		t.Errorf("pods have %s, %s and %s", line(a), line(b), line(c))
	}
	w.checked()
	if n := second.says(nowInactive); n != 0 {
		t.Errorf("the second watcher lost the Lease %d times", n)
	}
}

// A Lease with a renewTime an hour ahead or behind, from a host with another clock, expires after its duration: it
// runs from the moment the watcher sees the Lease, by the watcher's monotonic clock.
func TestALeaseOfAnotherClock(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
			holder, seconds, renewed := "gone/1-1/00000000", int32(2), metav1.NowMicro()
			renewed.Time = renewed.Add(jump)
			lease := &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: names.ConfigNamespace, Name: names.WatcherLease},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &renewed, RenewTime: &renewed},
			}
			if _, err := cluster.Client().CoordinationV1().Leases(names.ConfigNamespace).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			p := w.start()
			p.becomesActive(1, takeover)
			if p.says("standby: the watcher of \"gone/1-1/00000000\" has the Lease") != 1 {
				t.Error("it did not wait for the Lease's end")
			}
		})
	}
}
