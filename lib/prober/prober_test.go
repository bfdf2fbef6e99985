package prober

import (
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A connection and a refused connection are both answers.
func TestAnswers(t *testing.T) {
	if a := ask(t.Context(), []netip.Addr{netip.MustParseAddr("127.0.0.1")}); !a.Alive || a.At.String() != "127.0.0.1" || !a.Here {
		t.Errorf("a refused connection is no answer of this host: %+v", a)
	}
	l, err := net.Listen("tcp", "127.0.0.2:6081")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a := ask(t.Context(), []netip.Addr{netip.MustParseAddr("127.0.0.2")}); !a.Alive {
		t.Error("a connection is no answer")
	}
	ctx, cancel := context.WithCancel(t.Context())
	if cancel(); ask(ctx, []netip.Addr{netip.MustParseAddr("127.0.0.1")}).Alive {
		t.Error("nobody answers")
	}
}

// A network has hosts with delayed answers, or none.
type network struct {
	mu    sync.Mutex
	delay map[string]time.Duration // by address; negative: no answer
	asked map[string]int
	here  string // this host's address
}

func (n *network) set(addr string, delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay[addr] = delay
}

func (n *network) take() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.asked = map[string]int{} }()
	return n.asked
}

func (n *network) ask(ctx context.Context, addrs []netip.Addr) Answer {
	n.mu.Lock()
	n.asked[addrs[0].String()]++
	at, delay := addrs[0], time.Hour
	for _, a := range addrs {
		if d := n.delay[a.String()]; d >= 0 && d < delay {
			at, delay = a, d
		}
	}
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	select {
	case <-ctx.Done():
		return Answer{}
	case <-time.After(delay):
		return Answer{Alive: true, At: at, Here: at.String() == n.here}
	}
}

// world runs a Prober of hosts 10.0.0.1 to 10.0.0.n in a bubble.
func world(t *testing.T, n int, f func(*Prober, *network, *[]map[string]bool)) {
	synctest.Test(t, func(t *testing.T) {
		net := &network{delay: map[string]time.Duration{}, asked: map[string]int{}}
		var p *Prober
		var verdicts []map[string]bool
		changed := make(chan struct{}, 1000)
		p = New(func() { changed <- struct{}{} })
		p.probe = net.ask
		hosts := map[string]Host{}
		addr := netip.MustParseAddr("10.0.0.0")
		for range n {
			addr = addr.Next()
			hosts[addr.String()] = Host{Tunnels: []netip.Addr{addr}}
			net.set(addr.String(), time.Millisecond)
		}
		p.Watch(hosts, func(string) bool { return false })
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { p.Run(ctx) })
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-changed:
					verdicts = append(verdicts, p.Unhealthy())
				}
			}
		})
		f(p, net, &verdicts)
		cancel()
		wg.Wait()
	})
}

const a, b = "10.0.0.1", "10.0.0.2"

// Issue 14, line 8: a host is known to be dead within 1.7 s.
func TestADeadHostIsKnownSoon(t *testing.T) {
	for range 50 { // other phases each time
		world(t, 2, func(p *Prober, n *network, verdicts *[]map[string]bool) {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if len(*verdicts) > 0 {
				t.Fatal("a verdict on hosts that answer")
			}
			n.set(a, -1)
			cut := time.Now()
			for len(*verdicts) == 0 {
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
			if took := time.Since(cut); took > 1700*time.Millisecond || !(*verdicts)[0][a] {
				t.Errorf("%v after %s", *verdicts, took)
			}
			n.set(a, time.Millisecond)
			time.Sleep(time.Second)
			synctest.Wait()
			if len(*verdicts) != 2 || len((*verdicts)[1]) != 0 {
				t.Errorf("after its return: %v", *verdicts)
			}
		})
	}
}

// Slow answers, lost packets and a short interruption do not make a host unhealthy.
func TestSlowHostsLive(t *testing.T) {
	world(t, 2, func(_ *Prober, n *network, verdicts *[]map[string]bool) {
		n.set(a, time.Second) // a probe each 200 ms, the first is answered after a second
		for range 20 {
			time.Sleep(1600 * time.Millisecond)
			n.set(b, -1)
			time.Sleep(time.Second) // Open vSwitch restarts there
			n.set(b, time.Millisecond)
		}
		synctest.Wait()
		if len(*verdicts) > 0 {
			t.Errorf("verdicts %v", *verdicts)
		}
	})
}

// The cost: an answering host gets one probe an Interval, all together at most about 1 000 a second.
func TestProbesAreBounded(t *testing.T) {
	for _, hosts := range []int{2, 100, 1000} {
		world(t, hosts, func(_ *Prober, n *network, _ *[]map[string]bool) {
			time.Sleep(10 * time.Second)
			n.take()
			time.Sleep(10 * time.Second)
			sum := 0
			for _, asked := range n.take() {
				sum += asked
			}
			if most := int(10*time.Second/Interval(hosts)) * hosts; sum > most+hosts || sum < most*9/10 {
				t.Errorf("%d hosts: %d probes in 10 s, not %d", hosts, sum, most)
			}
		})
	}
}

// Other addresses of a host may be in another network than its tunnels, or have moved to another host.
func TestOtherAddresses(t *testing.T) {
	for _, tt := range []struct {
		what               string
		here               string
		first, then, again string // silent addresses: from the start, 10 s later, 10 s later
		dead               [3]string
	}{
		{what: "a dead host's address has moved", then: "a", dead: [3]string{"", "a", ""}},
		{what: "it had before this process started", first: "a", dead: [3]string{"a", "", ""}},
		{what: "another one ends, and both return", first: "a", then: "a b", dead: [3]string{"a", "a b", ""}},
		{what: "the tunnels have a network of their own", first: "a b c", then: "a b c A", again: "a b c", dead: [3]string{"", "a", ""}},
		{what: "only one host answers there, or lies", first: "a b", then: "a b B", again: "a b A", dead: [3]string{"", "b", "a"}},
		{what: "the network of the tunnels is cut off from this host", here: "c", then: "a b", again: "a b A", dead: [3]string{"", "", "a"}},
		{what: "from all", then: "a b c", dead: [3]string{}},
		{what: "another host than this one is cut off", here: "c", then: "b", dead: [3]string{"", "b", ""}},
		{what: "no tunnel is known", here: "x", first: "x", then: "x X", again: "x", dead: [3]string{"", "x", ""}},
	} {
		synctest.Test(t, func(t *testing.T) {
			addr := func(name string) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, name[0]}) }
			n := &network{delay: map[string]time.Duration{}, asked: map[string]int{}, here: addr(tt.here + "0").String()}
			var changes atomic.Int32
			p := New(func() { changes.Add(1) })
			p.probe = n.ask
			hosts := map[string]Host{}
			for _, name := range []string{"a", "b", "c"} {
				hosts[name] = Host{[]netip.Addr{addr(name)}, []netip.Addr{addr(strings.ToUpper(name))}}
			}
			if tt.here == "x" {
				hosts["x"] = Host{nil, []netip.Addr{addr("X")}}
			}
			set := func(silent string) {
				for name := range hosts {
					for _, a := range []string{name, strings.ToUpper(name)} {
						n.set(addr(a).String(), time.Millisecond)
						if strings.Contains(silent, a) {
							n.set(addr(a).String(), -1)
						}
					}
				}
			}
			set(tt.first)
			var before []string
			if tt.dead[0] != "" { // it stays so
				before = append(before, tt.dead[0])
			}
			p.Watch(hosts, func(name string) bool { return slices.Contains(before, name) })
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { p.Run(ctx) })
			for i, silent := range []string{tt.first, tt.then, tt.again} {
				set(silent)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				got, other := slices.Sorted(maps.Keys(p.Unhealthy())), 0
				for name := range hosts {
					if slices.Contains(got, name) != slices.Contains(before, name) {
						other++
					}
				}
				if text := strings.Join(got, " "); text != tt.dead[i] || changes.Swap(0) != int32(other) {
					t.Errorf("%s: with %q silent, %q are dead, want %q, each once", tt.what, silent, text, tt.dead[i])
				}
				before = got
			}
			cancel()
			wg.Wait()
		})
	}
}

// A firewall sends few ICMP errors for all hosts behind it: silence of these means nothing until it rejects no more.
func TestRejectedHosts(t *testing.T) {
	for _, behind := range []int{1, 5, 60} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			rejects, asked, tokens, refilled := true, 0, [2]float64{6, 6}, [2]time.Time{time.Now(), time.Now()} // of two firewalls
			var changes atomic.Int32
			p := New(func() { changes.Add(1) })
			p.probe = func(ctx context.Context, addrs []netip.Addr) Answer {
				mu.Lock()
				defer mu.Unlock()
				asked++
				switch way := rand.IntN(2); {
				case addrs[0].String() == a:
					return Answer{Alive: true, At: addrs[0]}
				case addrs[0].String() != b && rejects:
					tokens[way] = min(6, tokens[way]+time.Since(refilled[way]).Seconds())
					if refilled[way] = time.Now(); tokens[way] >= 1 {
						tokens[way]--
						return Answer{Rejector: netip.AddrFrom4([4]byte{192, 0, 2, byte(way)})}
					}
				}
				return Answer{}
			}
			hosts := map[string]Host{a: {Tunnels: []netip.Addr{netip.MustParseAddr(a)}}}
			for i := range behind {
				addr := netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})
				hosts[addr.String()] = Host{Tunnels: []netip.Addr{addr}}
			}
			p.Watch(hosts, func(string) bool { return false })
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { p.Run(ctx) })
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if len(p.Unhealthy()) > 0 || len(p.Rejected()) != behind || int(changes.Load()) != behind {
				t.Errorf("%d hosts: unhealthy are %v, rejected %v after %d changes", behind, p.Unhealthy(), p.Rejected(), changes.Load())
			}
			if most := (behind*2 + 5) * 600; asked > most {
				t.Errorf("%d hosts: %d probes", behind, asked)
			}
			hosts[b] = Host{Tunnels: []netip.Addr{netip.MustParseAddr(b)}} // nobody has it
			p.Watch(hosts, func(string) bool { return false })
			time.Sleep(hearing*time.Duration(behind) + 3*time.Second)
			synctest.Wait()
			if got := p.Unhealthy(); len(got) != 1 || !got[b] {
				t.Errorf("%d hosts: with one that is dead, unhealthy are %v", behind, got)
			}
			mu.Lock()
			rejects = false
			mu.Unlock()
			time.Sleep(rejectedLately + 5*time.Second)
			synctest.Wait()
			if got := p.Unhealthy(); len(got) != behind+1 {
				t.Errorf("%d hosts: without rejections, unhealthy are %v", behind, got)
			}
			cancel()
			wg.Wait()
		})
	}
}

func TestVerdicts(t *testing.T) {
	var changes int
	p := New(func() { changes++ })
	hosts := map[string]Host{"a": {}, "b": {}}
	p.Watch(hosts, func(name string) bool { return name == "b" })
	unhealthy := func(what string, changed int, want ...string) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(p.Unhealthy())); !slices.Equal(got, want) || changes != changed {
			t.Errorf("%s: unhealthy are %v after %d changes", what, got, changes)
		}
	}
	unhealthy("at first", 0, "b")
	p.answered("b", Answer{Alive: true})
	p.missed("b", false)
	p.answered("b", Answer{Alive: true})
	unhealthy("two answers, not in a row", 0, "b")
	p.answered("b", Answer{Alive: true})
	unhealthy("two answers in a row", 1)
	for range misses - 1 {
		p.missed("a", false)
	}
	p.answered("a", Answer{Alive: true})
	for range misses - 1 {
		p.missed("a", false)
	}
	p.missed("a", true) // this process was frozen
	for range misses - 1 {
		p.missed("a", false)
	}
	unhealthy("too few misses in a row", 1)
	p.missed("a", false)
	unhealthy("misses in a row", 2, "a")
	p.answered("a", Answer{Rejector: netip.MustParseAddr("192.0.2.9")})
	p.answered("a", Answer{Rejector: netip.MustParseAddr("192.0.2.1")})
	for range 2 * misses {
		p.missed("a", false)
	}
	unhealthy("rejected", 3)
	if got := p.Rejected(); len(got) != 1 || got["a"].String() != "192.0.2.1" {
		t.Errorf("rejected are %v", got)
	}
	p.Watch(map[string]Host{"b": {}}, nil)
	if len(p.targets) != 1 || p.missed("a", false) != true {
		t.Error("a host stays that is not watched")
	}
	p.answered("a", Answer{Alive: true})
}

// With fewer than two hosts, none is probed.
func TestASingleHostIsNotProbed(t *testing.T) {
	world(t, 1, func(p *Prober, n *network, _ *[]map[string]bool) {
		time.Sleep(time.Minute)
		if got := n.take(); len(got) > 0 {
			t.Errorf("probed %v", got)
		}
		addrs := map[string]Host{a: {Tunnels: []netip.Addr{netip.MustParseAddr(a)}}, b: {Tunnels: []netip.Addr{netip.MustParseAddr(b)}}}
		p.Watch(addrs, func(string) bool { return true })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(p.Unhealthy()) > 0 {
			t.Errorf("unhealthy are %v", p.Unhealthy())
		}
		delete(addrs, a)
		p.Watch(addrs, nil)
		synctest.Wait()
		n.take()
		time.Sleep(time.Minute)
		if got := n.take(); len(got) > 0 {
			t.Errorf("probed %v", got)
		}
	})
}

// The cost of 1 000 probes of refusing hosts.
func BenchmarkAsk(b *testing.B) {
	addrs := []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	for b.Loop() {
		if !ask(b.Context(), addrs).Alive {
			b.Fatal("no answer")
		}
	}
}
