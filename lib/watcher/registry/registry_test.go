package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// largeTopology has n nodes, all of them gateways.
func largeTopology(t *testing.T, n int) topology.Cluster {
	t.Helper()
	c, err := topology.New(names.ClusterRouter, []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}, []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes, c.Gateways = map[string][]netip.Prefix{}, map[string]topology.Gateway{}
	for i := range n {
		a := netip.AddrFrom4([4]byte{10, byte(128 + i/256), byte(i), 0})
		name := fmt.Sprintf("node-%04d.example.com", i)
		c.Nodes[name] = []netip.Prefix{netip.PrefixFrom(a, 24)}
		c.Gateways[name] = topology.Gateway{
			Mode: topology.Physical, Interface: "breth0", Chassis: "chassis-" + name, MAC: fmt.Sprintf("02:00:00:00:%02x:%02x", i/256, i%256),
			IPs: []netip.Prefix{netip.PrefixFrom(a, 16)}, NextHops: []netip.Addr{netip.MustParseAddr("10.255.255.1")}, Tunnel: a, Node: name,
		}
	}
	return c
}

// S3: the copy of the topology is bounded before the API server refuses it.
func TestTheCopyOfTheTopologyIsBounded(t *testing.T) {
	if data, _, err := copyOf(ConfigMap("kube-system"), largeTopology(t, 1000), nil); err != nil || len(data) == 0 {
		t.Errorf("1 000 gateways: %v", err)
	}
	_, _, err := copyOf(ConfigMap("kube-system"), largeTopology(t, 5000), nil)
	if err == nil || !strings.Contains(err.Error(), "takes 1048576") || strings.Contains(err.Error(), "\n") {
		t.Errorf("5 000 gateways: %v", err)
	}
}

// S3: transactions do not wait for the copy of the topology. The newest one wins.
func TestCopiesOfTheTopologyWaitForNobody(t *testing.T) {
	var current topology.Cluster
	y := New(nil, ConfigMap("kube-system"), func(func() []nb.Unit) {}, func() (topology.Cluster, bool) { return current, true })
	cluster := []nb.Unit{topology.ClusterUnit}
	step := func(what string, dirty []nb.Unit, want error, jobs int) {
		t.Helper()
		if err := y.Sync(dirty); err != want || len(y.jobs) != jobs {
			t.Errorf("%s: %v, %d jobs", what, err, len(y.jobs))
		}
	}
	done := func(err error) []nb.Unit {
		touched := y.copied(<-y.jobs, err)
		if err == nil {
			touched = append(touched, y.rested()...)
		}
		return touched
	}
	first, second := largeTopology(t, 1), largeTopology(t, 2)
	current = first
	step("the first", cluster, nil, 1)
	step("while the API server does not answer", cluster, nil, 1)
	refused := errors.New("refused")
	if touched := done(refused); len(touched) != 1 {
		t.Errorf("after a failure: %v", touched)
	}
	step("another unit", nil, nil, 0)
	step("told once", cluster, refused, 0)
	step("tried again", cluster, refused, 1)
	current = second
	step("another one meanwhile", cluster, refused, 1)
	if touched := done(nil); len(touched) != 2 { // it works again, and another one waits
		t.Errorf("the newest: %v", touched)
	}
	step("the newest", cluster, nil, 1)
	if touched := done(nil); len(touched) != 0 || !y.saved.Equal(second) {
		t.Errorf("at the end: %v", touched)
	}
	step("at the end", cluster, nil, 0)
}

// An api is the API server's ConfigMap. It counts its writes.
type api struct {
	Cluster
	data   map[string]string
	writes int
	last   *corev1.ConfigMap // of the last call
	events []string          // their reasons
}

func (a *api) Leads() bool { return true }

func (a *api) WriteConfigMap(_ context.Context, _ types.NamespacedName, data map[string]string, last *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	a.data, a.last = data, last
	a.writes++
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: fmt.Sprint(a.writes)}}, nil
}

// While nodes join, the copy is written once in ten seconds. A single change is written at once, and the last one in any
// case, at the latest by the next process.
func TestCopiesAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, events := &api{}, make(chan func() []nb.Unit, 100)
		current := largeTopology(t, 1000)
		start := func() (y *Copy, stop func()) {
			y = New(a, ConfigMap("kube-system"), func(ev func() []nb.Unit) { events <- ev }, func() (topology.Cluster, bool) { return current, true })
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				y.Run(ctx)
			}()
			return y, func() { cancel(); <-ended }
		}
		y, stop := start()
		// step is the owner's goroutine, for some time.
		step := func(what string, d time.Duration, writes int, equal bool) {
			t.Helper()
			if err := y.Sync(nil); err != nil {
				t.Fatal(err)
			}
			timeout := time.After(d)
			for waits := true; waits; {
				select {
				case ev := <-events:
					if touched := ev(); len(touched) > 0 {
						if err := y.Sync(touched); err != nil {
							t.Fatal(err)
						}
					}
				case <-timeout:
					waits = false
				}
			}
			synctest.Wait()
			if written := maps.Equal(a.data, current.Registry()); a.writes != writes || written != equal {
				t.Errorf("%s: %d writes, equal: %v; want %d, %v", what, a.writes, written, writes, equal)
			}
		}
		step("the first", time.Second, 1, true)
		for i := range 60 { // seconds
			current = largeTopology(t, 1001+i)
			step(fmt.Sprint("node ", i), time.Second, 1+(i+1)/10, i%10 == 9)
		}
		step("the end of the pause", maxPause, 7, true)
		step("nothing new", time.Hour, 7, true)
		current = largeTopology(t, 1100)
		step("a single change", time.Second, 8, true)
		if a.last == nil || a.last.ResourceVersion != "7" {
			t.Errorf("it was written after %v", a.last)
		}
		former := current
		current = largeTopology(t, 1101)
		step("a change before the end", time.Second, 8, false)
		stop()
		for len(events) > 0 {
			<-events
		}
		y, stop = start()
		y.Found(&former)
		step("the next process", time.Second, 9, true)
		stop()
	})
}

// In a small cluster nothing waits for long.
func TestCopiesOfSmallClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, events, rested := &api{}, make(chan func() []nb.Unit, 100), time.Time{}
		y := New(a, ConfigMap("kube-system"), func(ev func() []nb.Unit) { events <- ev }, func() (topology.Cluster, bool) { return topology.Cluster{}, true })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go y.Run(ctx)
		began := time.Now()
		y.jobs <- largeTopology(t, 3)
		for range 2 { // copied, rested
			<-events
			rested = time.Now()
		}
		if pause := rested.Sub(began); pause != 3*pausePerNode {
			t.Errorf("a pause of %s", pause)
		}
	})
}
